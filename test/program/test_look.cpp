/*
test_look.cpp -- is a file named for what it is before it is read, whatever its name says? Every
row of text/kinds.cpp has its first bytes here, written by hand; and the readers that ask it.
*/
#include "../../dataloader.h"
#include "../../text/kinds.h"
#include "../../text/tokenize.h"
#include "../files.h"
#include "../../text/encode.h"
#include <set>

static std::string binary;


template <size_t N> static std::string bytes(const char (&s)[N]) { return std::string(s, N - 1); }

// zeros behind what says the kind, so that a file is long enough
static std::string filled(std::string s, size_t n = 64) {
    if (s.size() < n) { s.resize(n); }
    return s;
}

static std::string zip(const std::string& name) {
    std::string s = bytes("PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    s += (char)name.size();
    s += bytes("\0\0\0");
    return filled(s + name, 200);
}

static std::string utf16(const std::string& s) {
    std::string out;
    for (char c : s) { out += c; out += '\0'; }
    return out;
}

static std::string safetensors() {
    const std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    return std::string(1, (char)header.size()) + std::string(7, 0) + header + "1234";
}

// first bytes, what they are, a word of the hint
static const struct { std::string first; const char *what, *hint; } FIRST[] = {
    { filled(bytes("GGUF\3\0\0\0")), "a GGUF file", "mv FILE MODEL.gguf" },
    { safetensors(), "a safetensors file", "beside its config.json" },
    { zip("archive/data.pkl"), "a PyTorch file", "save_pretrained" },
    { zip("pytorch_model/version"), "a PyTorch file", "save_pretrained" },
    { bytes("\x80\x02\x8a\x0al\xfc\x9c" "F\xf9 j\xa8P\x19."), "a pickle", "save_pretrained" },
    { filled(bytes("PAR1\x15\x04\x15\x10")), "a Parquet table",
      "python3 scripts/parquet_to_jsonl.py FILE > FILE.jsonl" },
    { filled(bytes("ARROW1\0\0")), "an Arrow file", "D.from_file('FILE')" },
    { filled(bytes("\xff\xff\xff\xff\x10\0\0\0"), 512), "an Arrow file", "D.from_file('FILE')" },
    { filled(bytes("\x93NUMPY\1\0")), "a NumPy array", "n.uint32(n.load('FILE').ravel())" },
    { filled("\x1f\x8b\x08"), "packed with gzip", "gunzip < FILE > NEW" },
    { filled("\x28\xb5\x2f\xfd"), "packed with zstd", "zstd -d < FILE > NEW" },
    { "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "Git LFS",
      "git lfs pull" },
    { bytes("\x28\xb5\x2f\xfd\x63\x39\x30\0\0") + "..", "a dictionary, number 12345",
      "zstd -d -D DICTIONARY < FILE" },
    { bytes("\x28\xb5\x2f\xfd\x02\x88\x39\x30") + "..", "a dictionary, number 12345", "zstd -d -D" },
    { "Entry not found", "what a hub answers", "logged in to the hub" },
    { "{\"error\":\"Model is gated\"}", "what a hub answers", "logged in" },
    { "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "what a hub answers", "logged" },
    { "# xet version 0\nfilesize = 9\n", "what a hub answers", "logged in" },
    { "\n<!DOCTYPE html><html><body>", "a web page", "/resolve/" },
    { "<HTML><head>", "a web page", "/resolve/" },
    { bytes("\xff\xfe\0\0a\0\0\0"), "text that is not UTF-8", "iconv" },
    { bytes("\0\0\xfe\xff\0\0\0a"), "text that is not UTF-8", "UTF-32" },
    { "\xff\xfe" + utf16("of text"), "text that is not UTF-8", "iconv -f UTF-16" },
    { " [\n {\"a\": 1}]", "a JSON array", "json.load(open('FILE'))]\" > FILE.jsonl" },
};

static void test_kinds() {
    std::set<std::string> named;
    for (auto& row : FIRST) {
        const FileKind k = kind_of(row.first, row.first.size(), READS_NOTHING);
        const std::string hint = k.hint.empty() ? "" : hint_for(k.hint, "FILE");
        CHECK(contains(k.what, row.what), "wanted '%s', got '%s'", row.what, k.what.c_str());
        CHECK(contains(hint, row.hint), "%s: wanted the hint '%s', got '%s'",
              row.what, row.hint, hint.c_str());
        // of the beginning alone, too; and no shorter piece of it is read beyond its end
        for (size_t n = 0; n < std::min<size_t>(row.first.size(), 40); n++) {
            std::string some = row.first.substr(0, n);
            some.shrink_to_fit();
            kind_of(some, n, READS_NOTHING);
        }
        named.insert(k.what.substr(0, k.what.find(", number")));
    }
    const std::string source = file_read("text/kinds.cpp");
    for (size_t at = source.find("KINDS[] = {");
         (at = source.find("\n    { \"", at)) != source.npos;) {
        const size_t end = source.find("\n};", source.find("KINDS[] = {"));
        if (at > end) { break; }
        at += 8;
        const std::string what = source.substr(at, source.find('"', at) - at);
        CHECK(named.count(what), "no first bytes in this test are '%s'", what.c_str());
    }
}

// a text may begin with the letters of a format, and ids with any bytes
static void test_not_sure() {
    for (const char* s : { "GGUF is a file format.\n", "PAR1 and PAR2\n", "LZIP\n", "ORC\n of it\n",
                           "BZh is how it begins\n", "", "a", "Obj\n", "tjgg\n", "{ a set }\n",
                           "[PAD]\n", "[1] is a note\n" }) {
        const FileKind k = kind_of(s, strlen(s), READS_TEXT);
        CHECK(k.what.empty(), "the text '%s' is %s", s, k.what.c_str());
    }
    for (const std::string& s :
         { bytes("\xff\xfe\x01\x02\x03\x04"), bytes("\xff\xff\xff\xff\x10\0\0\0"),
           bytes("[\"\x01\x02\x03\x04\x05\x06") }) {
        const FileKind k = kind_of(filled(s, 4096), 4096, READS_TOKENS);
        CHECK(k.what.empty(), "ids that begin with %02x %02x are %s", (unsigned char)s[0],
              (unsigned char)s[1], k.what.c_str());
    }
    CHECK(!contains(hint_for("unzip FILE", "a b;rm -rf ~"), "rm"), "a name in a command");
    CHECK(begins_with(bytes("\0a\xff")) == "begins with the bytes 00 61 FF" &&
              contains(begins_with(""), "empty"), "%s",
          begins_with(bytes("\0a\xff")).c_str());
    CHECK(hint_for("cp FILE FILE.txt", "a.FILE") == "cp a.FILE a.FILE.txt", "FILE in a name");
    Rng rng{5};
    for (int i = 0; i < 20000; i++) {            // no bytes make it read beyond them
        std::string s(rng_below(&rng, 40), 0);
        for (auto& c : s) { c = (char)rng_next(&rng); }
        if (i % 2) {
            s = FIRST[rng_below(&rng, sizeof FIRST / sizeof *FIRST)].first.substr(0, 12) + s;
        }
        s.shrink_to_fit();
        kind_of(s, rng_below(&rng, 2) ? -1 : (long)s.size(),
                (Reader) "trgzbkjsfc"[rng_below(&rng, 10)]);
    }
}

// ---- the readers

static void refused(const Died& d, const std::string& what, const std::string& says,
                    const std::string& hint) {
    check_ended(d, EXIT_USER,
                strf("%s: wanted '%s' and '%s', got %d", what.c_str(), says.c_str(), hint.c_str(), d.code),
                says, hint);
}

static Died data_of(const std::string& path, int V = 0) {
    DataOptions o;
    o.data = { path };
    o.cache = dir + "/cache";
    o.T = 8; o.val_seqs = 1; o.probe_seqs = 1; o.probe_len = 4;
    o.vocab = V;
    return check_dies([=] { data_open(o); });
}

static void test_texts() {
    const std::string parquet = filled(bytes("PAR1\x15\x04\x15\x10"));
    refused(data_of(put("x.parquet", parquet)), "-d x.parquet", "is a Parquet table",
            "python3 scripts/parquet_to_jsonl.py " + dir + "/x.parquet > " + dir +
                "/x.parquet.jsonl");
    refused(data_of(put("x.jsonl", parquet)), "a .jsonl", "is a Parquet table, wanted lines",
            "parquet_to_jsonl.py");
    refused(data_of(put("gz.jsonl", filled("\x1f\x8b\x08"))), "a .jsonl", "is packed with gzip",
            "gunzip < ");
    refused(data_of(put("w.txt", "\xff\xfe" + utf16("words"))), "a .txt", "text that is not UTF-8",
            "iconv");
    refused(data_of(put("wide.txt", utf16("No mark stands before it."))), "UTF-16 without a mark",
            "begins with the bytes 4E 00", "that you mean");
    // in two bytes each, without a mark and without a zero: Chinese, Thai, Hangul; and Shift-JIS
    for (const char* letters : { "\x60\x4f\x7d\x59\x16\x4e\x4c\x75", "\x4f\x60\x59\x7d\x4e\x16\x75\x4c",
                                 "\x2a\x0e\x27\x0e\x31\x0e\x14\x0e", "\xf4\xd0\x70\xc8\x01\xac\x1c\xb4",
                                 "\x82\xb1\x82\xf1\x82\xc9\x82\xbf" }) {
        std::string text;
        for (int i = 0; i < 900; i++) { text += letters; }
        for (const char* name : { "two.txt", "two.jsonl" }) {
            refused(data_of(put(name, text)), name, "begins with the bytes ", "UTF-16BE: iconv -f ENCODING -t UTF-8 " + dir + "/" + name);
        }
    }
    std::string latin;                           // a text that is read, though not UTF-8
    for (int i = 0; i < 900; i++) { latin += "d\xe9j\xe0 vu l\xe0 o\xf9 \xe7\xe0 a \xe9t\xe9 pass\xe9\n"; }
    CHECK(data_of(put("latin.txt", latin)).code == 0, "Latin-1: %s",
          data_of(dir + "/latin.txt").err.c_str());
    // of any other kind its first bytes are said
    for (const char* name : { "x.txt", "x2.jsonl" }) {
        refused(data_of(put(name, filled(bytes("\xfd" "7zXZ\0")))), name,
                "begins with the bytes FD 37 7A 58 5A 00 00 00, wanted ", "that you mean");
    }
    refused(data_of(put("array.json", "[{\"text\": \"a\"}]")), "a .json", "is a JSON array, wanted .txt",
            "array.json.jsonl");
    refused(data_of(put("t.csv", "text,id\nwords,1\n")), "a .csv", "a table of text", "p.read_csv");
    refused(data_of(put("l.ndjson", "{\"text\": \"a\"}\n")), ".ndjson", "is JSON", "mv ");
    refused(data_of(put("ids.bin", "abcd")), ".bin", "tokens by its name", "-d DIR");
    refused(data_of(put("w.jsonl.gz", filled("\x28\xb5\x2f\xfd"))), "a .gz", "is packed with zstd",
            "zstd -d");
    refused(data_of(put("w.md", "# words\n")), "a .md", "is text, wanted .txt", "w.md.txt");
    refused(data_of(put("w.odd", "words\n")), "an unknown name", "is text", "w.odd.txt");
    refused(data_of(put("w.xz", filled(bytes("\xfd" "7zXZ\0")))), "an unknown kind",
            "begins with the bytes FD 37", "--help");
    // what a packed file has inside is looked at too
    check_run("cd " + dir + " && cp x.parquet inside.jsonl && gzip -f inside.jsonl");
    refused(data_of(dir + "/inside.jsonl.gz"), "inside of .gz", "is a Parquet table",
            "parquet_to_jsonl.py");
    make_dirs(dir + "/tables");
    put("tables/part-0.parquet", parquet);
    refused(data_of(dir + "/tables"), "a directory of tables", "its part-0.parquet is a Parquet",
            "parquet_to_jsonl.py");
    const Died d = check_dies([] {
        TokenizeOptions o;
        o.files = { dir + "/tables" };
        o.out = dir + "/o";
        tokenize_main(o);
    });
    refused(d, "tokenize DIR", "got no text files; its part-0.parquet", "parquet_to_jsonl.py");
}

// ids without a header, `width` bytes each
static std::string ids(const std::vector<long>& list, int width) {
    std::string s;
    for (long id : list) { s.append((const char*)&id, width); }
    return s;
}

static void test_tokens() {
    std::vector<long> list;
    Rng rng{3};
    for (int i = 0; i < 400; i++) { list.push_back(rng_below(&rng, 50257)); }
    make_dirs(dir + "/raw");
    auto raw = [&](const std::string& content) {
        put("raw/train.bin", content);
        return data_of(dir + "/raw", 50257);
    };
    for (auto& content : { ids(list, 2), ids(list, 4), ids(list, 8), std::string(1000, 'w') }) {
        refused(raw(content), "no header", "got no header, wanted", "add --bin uint16");
    }
    refused(raw(zip("archive/data.pkl")), "a model", "is a PyTorch file", "save_pretrained");
    refused(raw(filled(bytes("\x93NUMPY\1\0"))), "npy", "is a NumPy array", "n.load(");
    // what the hint types
    std::string npy = bytes("\x93NUMPY\1\0\x46\0{'descr': '<u4', 'fortran_order': False, "
                            "'shape': (400,), }");
    npy.resize(79, ' ');
    const Died d = raw(npy + "\n" + ids(list, 4));
    const size_t from = d.err.find("python3 -c");
    std::string command = from == d.err.npos ? "false" : d.err.substr(from);
    while (ends_with(command, "\n")) { command.pop_back(); }
    if (check_run("python3 -c 'import numpy'").code) {
        printf("skipped: 1, which needs numpy\n");
        return;
    }
    const Ran r =
        check_run("cd " + dir + " && mkdir -p fixed && " + command + " && mv NEW.bin fixed/");
    const Died fixed = data_of(dir + "/fixed", 50257);
    CHECK(r.code == 0 && fixed.code == 0, "the command of the hint: %s %s", r.err.c_str(),
          fixed.err.c_str());
}

// What the converter makes of a tekken.json is a tokenizer: the special tokens first, then the
// others, of which those past default_vocab_size are left out.
static void test_tekken() {
    if (check_run("python3 -c 1").code) {
        printf("skipped: 2, which need python3\n");
        return;
    }
    const std::string upper = "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]";
    const std::string lower = "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]";
    const std::string before = "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?";
    std::string vocab;
    const std::vector<std::string> tokens = { "YQ==", "Yg==", "QQ==", "IA==", "YWI=", "QWI=",
                                              "YmE=" };   // a b A blank ab Ab ba
    for (size_t k = 0; k < tokens.size(); k++) {
        vocab += strf("%s{\"rank\": %zu, \"token_bytes\": \"%s\", \"token_str\": null}",
                      k ? ", " : "", k, tokens[k].c_str());
    }
    make_dirs(dir + "/tekken");
    put("tekken/tekken.json",
        "{\"config\": {\"pattern\": \"" + before + upper + "*" + lower + "+|" + before + upper +
            "+" + lower + "*|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+"
            "|\\\\s+(?!\\\\S)|\\\\s+\", \"default_vocab_size\": 10, "
            "\"default_num_special_tokens\": 4}, \"vocab\": [" + vocab +
            "], \"special_tokens\": [{\"rank\": 3, \"token_str\": \"[INST]\"}]}");
    const Ran ran = check_run("python3 scripts/tiktoken_to_json.py " + dir +
                              "/tekken/tekken.json > " + dir + "/tekken/tokenizer.json");
    if (!check_ended(ran, 0, "the converter")) { return; }
    const Tokenizer t = tokenizer_load(dir + "/tekken");
    // pieces: abAb is ab|Ab, for a word ends before an upper case letter; ba is beyond the size
    const std::vector<int> want = { 1, 3, 8, 9, 5, 4, 2 };
    CHECK(tokenizer_encode(t, "[INST]abAbba</s>", true) == want && t.vocab_size == 10,
          "tekken: %d ids, of %d", (int)tokenizer_encode(t, "[INST]abAbba</s>", true).size(),
          t.vocab_size);
}

static void test_tokenizers() {
    auto load = [](const std::string& path) { return check_dies([=] { tokenizer_load(path); }); };
    const std::string spm = filled(bytes("\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02"));
    refused(load(put("tokenizer.model", spm)), "tokenizer.model", "wanted a tokenizer.json",
            "scripts/spm_to_json.py " + dir + "/tokenizer.model > tokenizer.json");
    refused(load(put("odd.model", spm)), "odd.model", "begins with the bytes 0A 0E 0A 05 3C",
            "that you mean");
    make_dirs(dir + "/spm");
    put("spm/tokenizer.model", spm);
    refused(load(dir + "/spm"), "a directory", "has no tokenizer.json",
            "scripts/spm_to_json.py " + dir + "/spm/tokenizer.model");
    refused(load(put("ranks.tiktoken", "IQ== 0\nIg== 1\nIw== 2\n")), ".tiktoken",
            "wanted a tokenizer.json", "scripts/tiktoken_to_json.py");
    refused(load(put("tekken.json", "{\"config\":{}}")), "tekken.json", "wanted a tokenizer.json",
            "scripts/tiktoken_to_json.py " + dir + "/tekken.json > tokenizer.json");
    make_dirs(dir + "/mistral");
    put("mistral/tekken.json", "{\"config\":{}}");
    refused(load(dir + "/mistral"), "a directory", "has no tokenizer.json",
            "scripts/tiktoken_to_json.py " + dir + "/mistral/tekken.json > tokenizer.json");
    test_tekken();
    refused(load(put("tokenizer.json", "<!doctype html><p>Not Found")), "a page", "is a web page",
            "/resolve/");
    refused(load(put("no.json", "Sign in first.\n")), "an answer that nobody knows",
            "is text, 'Sign in first.', wanted", "logged in");
    refused(load(put("none.json", "")), "nothing", "got an empty file, wanted a tokenizer.json",
            "");
    refused(load(put("lfs.json", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n")),
            "a pointer", "a pointer of Git LFS", "git lfs pull");
}

// what the program says of a model
static Died model_open(const std::string& path) {
    const Ran r = check_run("timeout 20 env " + binary + " probe " + path);
    return { r.code, r.err };
}

static void test_models() {
    refused(model_open(put("model.bin", filled("tjgg"))), "ggjt",
            "got a file that begins with the bytes 74 6A 67 67", "");
    refused(model_open(put("m.pt", zip("m/data.pkl"))), ".pt", "is a PyTorch file",
            "save_pretrained");
    refused(model_open(put("g.bin", filled(bytes("GGUF\3\0\0\0")))), "GGUF, .bin", "is a GGUF file",
            "MODEL.gguf");
    refused(model_open(put("g.gguf", safetensors())), "safetensors, .gguf", "is a safetensors file",
            "config.json");
    refused(model_open(put("s.safetensors", safetensors())), ".safetensors",
            "is a safetensors file", "beside its config.json");
    make_dirs(dir + "/m");
    const std::string config = file_read("test/open/families/qwen2/config.json");
    put("m/config.json", config);
    put("m/pytorch_model.bin", zip("m/data.pkl"));
    refused(model_open(dir + "/m"), "weights of PyTorch", "its pytorch_model.bin is a PyTorch file",
            "save_pretrained");
    put("m/model.safetensors", filled(bytes("GGUF\3\0\0\0")));
    refused(model_open(dir + "/m"), "GGUF inside", "is a GGUF file, wanted a safetensors",
            "MODEL.gguf");
    put("m/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    refused(model_open(dir + "/m"), "a pointer", "a pointer of Git LFS", "git lfs pull");
    put("m/model.safetensors", "You shall not pass.");
    refused(model_open(dir + "/m"), "an answer", "is text, 'You shall not pass.', wanted", "logged in");
    refused(model_open(put("a.gguf", "You shall not pass.")), "an answer", "is text, 'You", "logged in");
    for (const char* name : { "a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.zst" }) {
        refused(data_of(put(name, "Entry not found")), name, "is what a hub answers", "logged in");
    }
    for (const char* name : { "b.jsonl", "b.txt.gz", "b.jsonl.zst" }) {
        refused(data_of(put(name, "Tea is out.\nSorry")), name, "is text, 'Tea is out.'", "logged in");
    }
    put("m/config.json", "");
    refused(model_open(dir + "/m"), "an empty config.json", "got an empty file, wanted JSON", "");
    put("m/config.json", "<html><body>Sign in</body>");
    refused(model_open(dir + "/m"), "a page", "config.json: is a web page", "/resolve/");
    put("m/config.json", config);
    put("m/adapter_config.json", "{}");
    refused(model_open(dir + "/m"), "a model with an adapter", "holds an adapter (LoRA)",
            "merge_and_unload");
    unlink((dir + "/m/config.json").c_str());
    refused(model_open(dir + "/m"), "an adapter alone", "holds an adapter (LoRA)",
            "merge_and_unload");
    make_dirs(dir + "/hub/snapshots/0123");
    refused(model_open(dir + "/hub"), "a cache of the hub", "a model as its hub's cache keeps it",
            dir + "/hub/snapshots/0123");
}

// a pipe that nobody writes to: an error at once
static void test_pipes() {
    make_dirs(dir + "/p");
    const std::string config = file_read("test/open/families/qwen2/config.json");
    auto pipe = [&](const std::string& name) {
        unlink((dir + "/p/" + name).c_str());
        CHECK(mkfifo((dir + "/p/" + name).c_str(), 0600) == 0, "mkfifo");
        return dir + "/p/" + name;
    };
    const std::string wanted = "got a pipe or a device", hint = "into a file first";
    pipe("config.json");
    auto open = [&] { return ::model_open(dir + "/p"); };
    refused(open(), "config.json", wanted, hint);
    unlink((dir + "/p/config.json").c_str());
    put("p/config.json", config);
    pipe("model.safetensors");
    refused(open(), "model.safetensors", wanted, hint);
    unlink((dir + "/p/model.safetensors").c_str());
    pipe("model.safetensors.index.json");
    refused(open(), "the index", wanted, hint);
    unlink((dir + "/p/model.safetensors.index.json").c_str());
    put("p/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"a.safetensors\"}}");
    pipe("a.safetensors");
    refused(open(), "a shard of the index", wanted, hint);
    const std::string json = pipe("t.json"), lines = pipe("t.jsonl"), gz = pipe("t.txt.gz");
    refused(check_dies([=] { alarm(20); tokenizer_load(json); }), "a tokenizer", wanted, hint);
    refused(data_of(lines), ".jsonl", wanted, hint);
    refused(data_of(gz), ".txt.gz", wanted, hint);
    make_dirs(dir + "/pipes");
    CHECK(mkfifo((dir + "/pipes/train.bin").c_str(), 0600) == 0, "mkfifo");
    refused(data_of(dir + "/pipes"), "a shard", wanted, hint);
    // what the shell makes of <(..) can be read
    const Ran r = check_run("cd " + dir + " && printf '{\"a\": 1}' | cat /dev/stdin");
    CHECK(r.out == "{\"a\": 1}", "a pipe without a name: %s", r.out.c_str());
    int ends[2];
    CHECK(::pipe(ends) == 0 && write(ends[1], "words", 5) == 5, "pipe");
    close(ends[1]);
    CHECK(file_read(strf("/dev/fd/%d", ends[0])) == "words", "a pipe without a name");
}

// a text that is packed is unpacked to its end, or there is an error that says so
static void test_packed() {
    const std::string tokenize = "timeout 60 env " + binary + " tokenize ";
    check_run("cd " + dir + " && seq 60000 > n.txt && gzip -kf n.txt && head -c 60000 n.txt.gz > "
              "cut.txt.gz");
    refused(data_of(dir + "/cut.txt.gz"), "cut", "truncated or damaged (gzip -t says more)", "get the file");
    // whoever started us may ignore the end of children
    Ran r = check_run("cd " + dir + " && trap '' CHLD && " + tokenize + "cut.txt.gz -o cut1");
    refused({ r.code, r.err }, "cut, SIGCHLD ignored", "truncated or damaged", "get the file");
    r = check_run("cd " + dir + " && trap '' CHLD && " + tokenize + "n.txt.gz -o whole");
    check_ended(r, 0, "whole, SIGCHLD ignored");
    const Died d = check_dies([] {
        signal(SIGCHLD, SIG_IGN);
        TextFile t = text_open(dir + "/n.txt.gz");
        TextBlock b;
        while (text_next(&t, Tokenizer(), &b)) {
            if (!b.error.empty()) { die(b.error); }
        }
    });
    refused(d, "no word of the child", "cannot tell whether gzip unpacked all of it", "");
    r = check_run("cd " + dir + " && timeout 60 env PATH=/nowhere " + binary + " tokenize n.txt.gz "
                  "-o none");
    refused({ r.code, r.err }, "no gzip", "needs the program gzip, which is not installed",
            "install it, or unpack the file");
}

static void test_long_lines() {
    const std::string tokenize = "timeout 120 env " + binary + " tokenize ";
    Ran r = check_run("cd " + dir + " && { printf '{\"text\":\"'; head -c 3000000 /dev/zero | tr "
                      "'\\0' a; printf '\"}\n{\"text\":\"b\"}\n'; } | gzip > l.jsonl.gz && " +
                      tokenize + "l.jsonl.gz -o l");
    check_ended(r, 0, "a long line", "2 documents, 3000003 tokens");
    r = check_run("cd " + dir + " && head -c 270000000 /dev/zero | tr '\\0' a | " + tokenize +
                  "- -o l2");
    refused({ r.code, r.err }, "a line without an end", "line 1: got more than 256 MiB",
            "several records");
}

// a directory that links to itself, and one to another: each text once
static void test_links() {
    check_run("cd " + dir + " && mkdir -p d/a d/b && echo '{\"text\":\"x\"}' > d/a/x.jsonl && "
              "ln -s .. d/a/up && ln -s ../a d/b/again && ln -s nowhere d/lost");
    const Ran r = check_run("cd " + dir + " && timeout 60 env " + binary + " tokenize d -o links");
    check_ended(r, 0, "links", "1 document, 2 tokens");
}

int main() {
    binary = "OMP_NUM_THREADS=1 " + check_program();
    dir = check_tmp();
    CASE("kinds") { test_kinds(); }
    CASE("not_sure") { test_not_sure(); }
    CASE("texts") { test_texts(); }
    CASE("tokens") { test_tokens(); }
    CASE("tokenizers") { test_tokenizers(); }
    CASE("models") { test_models(); }
    CASE("pipes") { test_pipes(); }
    CASE("packed") { test_packed(); }
    CASE("long_lines") { test_long_lines(); }
    CASE("links") { test_links(); }
    remove_tree(dir);
    return check_done();
}
