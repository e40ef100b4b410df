/*
text/text_folder.cpp -- what optional.h asks of text/.
*/
#include "../optional.h"
#include "keys.h"
#include "kinds.h"
#include "text_cache.h"
#include "tokenizer_build.h"

static int format_of_name(const std::string& path) { return text_format(path); }

static FileKind kind_of_bytes(const std::string& first, long size, int reader) {
    return text_kind_of(first, size, (Reader)reader);
}

static FileKind kind_in_directory(const std::string& dir, int reader) {
    return text_kind_in_dir(dir, (Reader)reader);
}

extern const TextFolder TEXT_FOLDER;
const TextFolder TEXT_FOLDER = {
    tokenizer_of_files, convert_command, encode_bpe, decode_bpe,
    format_of_name, text_check, check_skip_bad, text_cache, prompts_of_text,
    kind_of_bytes, kind_in_directory, text_key, generation_check,
};
