/*
text_files.h -- .txt and .jsonl(.zst|.gz) files, read in blocks of whole lines, so that many threads
can encode what one reads. Another text format: text_format, text_next, and documents.h.
*/
#ifndef TEXT_FILES_H
#define TEXT_FILES_H
#include "../dataloader.h"
#include "encode.h"

enum TextFormat { TEXT_UNKNOWN, TEXT_TXT, TEXT_JSONL };

enum { TEXT_BLOCK = 1 << 20 };           // bytes read at a time; a longer line makes a longer block
enum { TEXT_LINE = 256 << 20 };          // bytes of the longest line of a .jsonl, and of a
                                         // packed .txt without a place to cut

// What a text was found to hold.
struct TextCounts {
    long documents = 0;
    long tokens = 0;
    long bytes = 0;
    long replaced = 0;                   // ill-formed sequences that became U+FFFD
    long skipped = 0;                    // records left out
    long begun = 0;                      // documents that begin with BOS themselves
    long dropped = 0;                    // documents of other domains, or over their share
};

struct TextFile {
    std::string path;
    TextFormat format = TEXT_UNKNOWN;
    const char* unpack = NULL;           // the program that unpacks it, NULL if it is not packed
    int fd = 0;                          // what is read
    pid_t child = 0;                     // the process that unpacks, 0 if there is none
    int raw = 0;                         // the file itself: its position tells how far a child is
    std::string rest;                    // read, but not yet given out
    bool at_end = false;
    long line = 0;                       // lines given out
    std::string error;                   // why it could not be read to its end
};

// A document of a block: its last id is ids[end-1]; whole: it ends here.
struct TextDoc {
    size_t end;
    std::string domain;
    bool whole;
};

struct TextBlock {
    const TextFile* file;
    std::string text;
    long line;                           // lines before it
    bool first;                          // of a .txt: the document begins here
    bool last;                           // and ends here
    // what became of the text
    Ids ids;
    std::vector<TextDoc> docs;
    TextCounts counts;
    std::string error;
};

// Returns the format that a name tells; *unpack is the program that unpacks it, or NULL.
TextFormat text_format(const std::string& path, const char** unpack = NULL);

// Prints a note if --bos doc can put its token in only one place of the data.
void one_document_note(const std::string& data);

// Dies if --skip-bad has nothing to leave out: none of the files is a .jsonl.
void check_skip_bad(bool skip_bad, const std::vector<std::string>& names);

// Dies unless the file can be read as text, by its name and its first bytes. others: what else is
// wanted, for the error.
void text_check(const std::string& path, const std::string& others);

TextFile text_open(const std::string& path);
void text_close(TextFile* t);

// Returns what to do about the error of a block: about a record, a program or a file.
std::string text_advice(const std::string& error);

// Tells whether s (n bytes) may be cut before s[i], and its parts be encoded one by one. A
// tokenizer that allows it never looks across the place between "x\n" and "y", or between a letter
// and a space.
bool text_cuts(const Tokenizer& tok, const char* s, size_t n, size_t i);

// Returns the last such place short of the end of a long .txt; 0 if there is none.
size_t text_cut(const Tokenizer& tok, const std::string& s);

// Reads the next block of t. Returns false at the end; the block has an error if the end came too
// soon. A block of a .jsonl has whole lines, one of a .txt can be encoded by itself.
bool text_next(TextFile* t, const Tokenizer& tok, TextBlock* b);
#endif // TEXT_FILES_H
