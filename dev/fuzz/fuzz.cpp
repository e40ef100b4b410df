/*
fuzz.cpp -- the whole program on command lines, checkpoints and configs that nobody would write,
under sanitizers. Whatever it reads, it has to end by itself: with 0, 1, 2 or 3, never by a signal,
a sanitizer or an exception.

    g++ -std=c++17 -O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fopenmp \
        -x c++ dev/fuzz/fuzz.cpp -o build/fuzz
    build/fuzz flags|checkpoints|configs|models|files SCRATCH [TRIES [SEED]]

models: those of test/open/families, of other families, as a directory, as several files with an index,
or as a GGUF file. files: bytes of one kind under the name of another, wherever a file is read.

Every try is a child of this process that runs in SCRATCH, which must not be there yet. It may write
wherever a flag says, so the paths it is given are plain names inside SCRATCH and nothing else.
A try that takes more than two seconds of its own time is told to stop, and killed after four; it is
counted. A finding prints its number and its command line, and keeps what the child said in
SCRATCH/finding-N.
*/
#define TESTING
#include "../../test/check.h"
#include "../../test/mutated.h"
#include "../../train_sink.cu"
#include <sys/resource.h>
#include <sys/wait.h>

extern "C" const char* __asan_default_options() {
    return "exitcode=99:detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2000:"
           "quarantine_size_mb=16";
}
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

static const char* const TINY =
    "-b 2 -t 8 --width 8 --heads 2 --layers 2 --ffn-width 8 --bb-vocab 12 -n 2 --val-seqs 2 "
    "--probe-seqs 2 --probe-len 4 --sample 2 --eval-every 1 --save-every 1";
static Rng rng;
static int pick(int n) { return (int)rng_below(&rng, n); }
static std::string one_of(const std::vector<std::string>& list) {
    return list[pick((int)list.size())];
}

static int run_command(const std::vector<std::string>& words) {
    std::vector<char*> argv;
    for (auto& w : words) { argv.push_back((char*)w.c_str()); }
    argv.push_back(NULL);
    char command;
    const Flags f = flags_parse((int)words.size(), argv.data(), &command);
    switch (command) {
        case 'p': return command_probe(f);
        case 'g': return command_generate(f);
        case 'k': return command_tokenize(f);
        case 'b': return f.steps > 20 && f.given_steps ? 0 : command_bench(f);
        default:  return command_train(f);
    }
}
// Runs a command line in a child. Returns its exit status, 1000 + a signal, or -1 if it took too
// long. The program catches SIGXCPU and SIGALRM and stops at its next step, which in a large model
// may be far away: the hard limit of its own time kills it. What only waits gets 30 s.
static int attempt(const std::vector<std::string>& words) {
    const rlim_t soft = 2, hard = 4;                // seconds of its own time
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit cpu = { soft, hard };
        setrlimit(RLIMIT_CPU, &cpu);
        alarm(30);
        signal(SIGXFSZ, SIG_IGN);
        if (!freopen("said", "w", stderr) || !freopen("/dev/null", "w", stdout)) { _exit(98); }
        try { exit(run_command(words)); }
        // the sanitizer's new asks no handler
        catch (const std::bad_alloc&) { exit(EXIT_MACHINE); }
    }

    int status = 0;
    struct rusage used;
    wait4(pid, &status, 0, &used);
    if (!WIFSIGNALED(status)) { return WEXITSTATUS(status); }
    const int by = WTERMSIG(status);
    const double seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec +
                           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    const bool out_of_time = by == SIGKILL && seconds > soft;  // the kernel counts in ticks
    const bool slow = out_of_time || by == SIGXCPU || by == SIGALRM;
    return slow ? -1 : 1000 + by;
}

// ---- command lines
static std::string number() {
    if (pick(3)) { return strf("%d", pick(20)); }
    return one_of({ "-1", "0", "1", "2", "3", "64", "255", "256", "1000", "65536", "2147483647",
                    "2147483648", "4294967296", "4294967297", "9223372036854775807",
                    "9223372036854775808", "-2147483649", "1e9", "0.5", "1e-9", "1e30", "1e309",
                    "-0.0", "nan", "inf", "", " 1", "1 ", "0x10", "1,2", "x", "\xff" });
}
static std::string text_for(const std::string& name) { // never a path that leads out of SCRATCH
    if (name == "data") {
        return one_of({ "bb", "t.txt", "r.jsonl", "shards", "t.txt:3,r.jsonl:1", "bb:2", "nowhere",
                        "", ",", "t.txt:0", "t.txt,bb" });
    }
    if (name == "tokenizer") {
        return one_of({ "", "bytes", "tokenizer.json", "nowhere", "t.txt", "shards" });
    }
    if (name == "out" || name == "json" || name == "dump") {
        return one_of({ "", "o1", "o2", "o3", "run", "t.txt", "said" });
    }
    if (name == "model") { return one_of({ "bb", "nano", "x", "" }); }
    if (name == "dump_heads") {
        return one_of({ "all", "0:0", "1:1", "2:0", "0:0,1:1", ":", "-1:0", "0:4294967296" });
    }
    if (name == "val") { return one_of({ "", "t.txt", "r.jsonl", "nowhere" }); }
    if (name == "prompt") {
        return one_of({ "", "1 2 3", "hello", "99999999999", "-1", "\xff\xfe" });
    }
    return one_of({ "none", "seq", "doc", "heads", "e1:1", "ones:2", "e1:nan", "natural", "random",
                    "repeated", "start", "windows", "sgd", "cosine", "1:2", "1:99", "1,2", "all",
                    "a:1,b:2", "10", "1110", number() });
}
static std::vector<std::string> command_line() {
    Flags f;
    const std::vector<FlagRow> rows = flag_rows(&f);
    auto& command = COMMAND_ROWS[pick(sizeof COMMAND_ROWS / sizeof *COMMAND_ROWS)];
    std::vector<std::string> words = { "train_sink", command.name };
    if (strchr("pg", command.letter)) {
        words.push_back(pick(10) ? "run/step_2"
                                 : one_of({ "run", "nowhere", "run/step_0", "t.txt" }));
    }
    if (command.letter == 'k') {
        words.push_back(one_of({ "t.txt", "r.jsonl", "shards", "nowhere" }));
        words.push_back("-o");
        words.push_back(one_of({ "o1", "o4" }));
    }
    if (strchr("tb", command.letter)) { for (auto& w : split(TINY, ' ')) { words.push_back(w); } }
    if (command.letter == 'b') { words.resize(2 + 14); }
    for (int k = pick(5); k >= 0; k--) {
        const FlagRow& r = rows[pick((int)rows.size())];
        if (!r.of(command.letter) && pick(20)) { k++; continue; }
        words.push_back(pick(50) ? flag_spelling(r.name)
                                 : "--" + one_of({ "x", "attn", "resumee", "" }));
        if (r.type == FIELD_bool) { continue; }
        if (r.takes_words()) { words.push_back(text_for(r.name)); }
        else { words.push_back(r.name == "steps" ? strf("%d", pick(6) - 1) : number()); }
    }
    return words;
}

// ---- files
static std::string mutated(const std::string& s) {
    return mutated(&rng, s, { "0", "-1", "1e999", "null", "\"\"", "[", "]", "{", "}", ",", ":",
                              "\"", "\\u0000", "\xff", "4294967296", "1.5", "true",
                              "18446744073709551615" });
}
// a config.json in which some values are others, of another type, missing, or under another name
static std::string config_of(const std::string& whole) {
    const std::vector<std::string> values = { "0", "1", "2", "3", "4", "8", "16", "-3", "32.5",
                                              "1e-30", "1e30", "999999999", "4294967296", "\"8\"",
                                              "2.5", "16.0", "-0", "1e300", "1e400", "1e-320",
                                              "9223372036854775807", "9223372036854775808",
                                              "\"\"", "null", "true", "false", "[]", "{}",
                                              "{\"rope_type\": \"linear\", \"factor\": 2}",
                                              "{\"rope_type\": \"yarn\"}",
                                              "{\"rope_type\": \"llama3\", \"factor\": 0}",
                                              "\"softmax\"", "\"sigmoid; ls\"", "\"post\"",
                                              "\"alibi\"", "\"k\"", "\"gelu\"", "\"all\"",
                                              "\"elem\"", "\"sum\"", "\"ln\"", "\"1110\"",
                                              "\"llama\"", "\"gpt2\"", "\"gpt_neox\"", "\"qwen2\"",
                                              "\"gemma2\"", "[1,2]" };
    std::string s = whole;
    for (int k = 1 + pick(3); k > 0; k--) {
        std::vector<size_t> keys;                        // places of `": `
        for (size_t i = s.find("\": "); i != std::string::npos; i = s.find("\": ", i + 3)) {
            keys.push_back(i);
        }
        if (keys.empty()) { return s; }
        const size_t at = keys[rng_below(&rng, keys.size())] + 3, end = s.find_first_of(",}\n", at);
        if (end == std::string::npos) { return s; }
        if (pick(8)) { s.replace(at, end - at, one_of(values)); }
        else { s.replace(at - 4, 1, "x"); }
    }
    if (!pick(6)) {
        s.insert(s.find('{') + 1,
                 "\"" +
                     one_of({ "sliding_window", "rope_parameters", "rope_scaling", "attention_bias",
                              "head_dim", "n_head", "quantization_config", "vocab_size" }) +
                     "\": " + one_of(values) + ",");
    }
    return s;
}
static std::vector<std::string> checkpoint_try(
    bool configs, const std::vector<std::pair<std::string, std::string>>& files,
    const std::string& llama) {
    const std::string at = "mutant/step_2/";
    for (auto& file : files) { file_write(at + file.first, file.second); }
    const auto& file = files[pick((int)files.size())];
    if (!configs) { file_write(at + file.first, mutated(file.second)); }
    if (configs) {
        for (auto& f : files) {
            if (f.first == "config.json") {
                file_write(at + f.first, config_of(pick(2) ? llama : f.second));
            }
        }
    }
    if (configs && !pick(3)) { unlink((at + "state.json").c_str()); }
    std::vector<std::string> words = { "train_sink" };
    auto say = [&](const std::string& line) {
        for (auto& w : split(line, ' ')) { words.push_back(w); }
    };
    switch (pick(3)) {
    case 0:
        say("probe mutant/step_2 --probe-seqs 2 --probe-len 4 --json o1 --dump o5 --dump-heads "
            "all");
        break;
    case 1: say("generate mutant/step_2 --tokens 3 --prompt 1"); break;
    default: say(std::string("train ") + TINY + " -n 3 --resume -o mutant"); break;
    }
    if (words[1] == "probe" && pick(2)) { say("--probe-input random"); }
    return words;
}

// ---- models of other families
struct FamilyFiles { std::string config, weights, gguf; };
static std::vector<FamilyFiles> families;

static void families_read(const std::string& dir) {
    for (auto& name : dir_list(dir)) {
        const std::string at = dir + "/" + name + "/";
        if (!file_exists(at + "config.json")) { continue; }
        families.push_back(
            { file_read(at + "config.json"), file_read(at + "model.safetensors"), "" });
        if (file_exists(at + "model.gguf")) { families.back().gguf = file_read(at + "model.gguf"); }
    }
}
// the beginning of a file is other bytes, what follows stays; `length`, its first 8 bytes,
// may be made to fit again
static std::string head_mutated(const std::string& file, size_t head, bool length) {
    std::string begin = mutated(file.substr(length ? 8 : 0, head));
    const uint64_t n = begin.size();
    if (length) {
        begin.insert(0, pick(8) ? std::string((const char*)&n, 8) : mutated(file.substr(0, 8)));
    }
    return begin + file.substr((length ? 8 : 0) + head);
}
static std::vector<std::string> model_try() {
    const FamilyFiles& f = families[pick((int)families.size())];
    uint64_t header;
    memcpy(&header, f.weights.data(), 8);
    remove_tree("model");
    make_dirs("model");
    const int kind = pick(f.gguf.empty() ? 4 : 6);
    if (kind < 3) { file_write("model/config.json", kind == 0 ? config_of(f.config) : f.config); }
    if (kind == 0) { file_write("model/model.safetensors", f.weights); }
    if (kind == 1) { file_write("model/model.safetensors", head_mutated(f.weights, header, true)); }
    if (kind == 2) {                                     // an index, and what it names
        std::string map;
        for (auto& t : json_of(f.weights.substr(8, header)).fields) {
            if (t.first != "__metadata__") {
                map += (map.empty() ? "" : ", ") + json_str(t.first) + ": \"a.safetensors\"";
            }
        }
        const std::string index = "{\"weight_map\": {" + map + "}}";
        file_write("model/model.safetensors.index.json", pick(20) ? mutated(index) : index);
        file_write("model/a.safetensors", f.weights);
    }
    if (kind == 3) {                                     // names of something around a model
        std::string names = f.weights.substr(8, header);
        const std::string around =
            one_of({ "module.", "_orig_mod.", "language_model.", "x.", "." });
        for (size_t at = 0; (at = names.find("\":{\"dtype", at + 1)) != std::string::npos;) {
            const size_t name = names.rfind('"', at - 1) + 1;
            if (!pick(20)) { continue; }
            names.insert(pick(8) ? name : at, around);
            at += around.size();
        }
        const uint64_t n = names.size();
        file_write("model/config.json", f.config);
        file_write("model/model.safetensors",
                   std::string((const char*)&n, 8) + names + f.weights.substr(8 + header));
    }
    if (kind > 3) {
        file_write("model/model.gguf",
                   head_mutated(f.gguf, std::min<size_t>(f.gguf.size(), 3000), false));
    }
    const std::string how = pick(3)
                                ? "probe model --probe-input random --probe-seqs 2 --probe-len 4"
                                : "generate model --tokens 3 --prompt 1";
    std::vector<std::string> words = { "train_sink" };
    for (auto& w : split(how, ' ')) { words.push_back(w); }
    return words;
}

// ---- files that are not what their names say
static std::string any_bytes(const std::string& text) {
    static const std::vector<std::string> begins = {
        "GGUF", "PK\3\4", "PAR1", "ARROW1", "\x1f\x8b\x08", "\x28\xb5\x2f\xfd", "\xff\xfe",
        "\x93NUMPY", "MMIDIDX", "\x80\x04\x95", "LITPKDS", "{\"", "[", "<html", "IQ== 0\n", "tjgg",
        "\x88\xd8\x34\x01\x01", "\xa1\xd9\x34\x01\x07", "\x0a\x0e\x0a\x05<unk>", "%PDF-", "", "",
    };
    std::string s = begins[pick((int)begins.size())];
    const int kind = pick(5), n = pick(3000);
    for (int i = 0; i < n; i++) {
        if (kind == 0) { s += (char)pick(256); }
        if (kind == 1) { s += std::string("\0\0\0", 3) + (char)pick(256); }
        if (kind == 2) { s += std::string(1, '\0') + (char)pick(128); }
        if (kind == 3) { s += "{\"text\": \"" + std::string(pick(4), 'a') + "\"}\n"; }
    }
    return pick(4) ? s : mutated(text);
}
static std::vector<std::string> file_try(const std::string& text) {
    remove_tree("z"); remove_tree("o6");
    make_dirs("z");
    const std::vector<std::string> names = {
        "a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.zst", "train.bin", "val.bin", "train.idx",
        "tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model", "config.json",
        "model.safetensors", "model.safetensors.index.json", "model.gguf", "pytorch_model.bin",
        "adapter_config.json", "manifest.json", "state.json", "x.parquet", "a.md",
    };
    for (int k = 1 + pick(4); k > 0; k--) {
        const std::string at = "z/" + one_of(names);
        switch (pick(20)) {
            case 0: if (!is_there(at)) { if (mkfifo(at.c_str(), 0600)) { continue; } } break;
            case 1: if (!is_there(at)) { make_dirs(at); } break;
            case 2: if (!is_there(at)) { if (symlink("..", at.c_str())) { continue; } } break;
            default: if (!is_there(at)) { file_write(at, any_bytes(text)); }
        }
    }
    const std::string place = pick(2) ? "z" : "z/" + one_of(dir_list("z"));
    std::vector<std::string> words = { "train_sink" };
    auto say = [&](const std::string& line) {
        for (auto& w : split(line, ' ')) { words.push_back(w); }
    };
    switch (pick(5)) {
    case 0: say("tokenize " + place + " -o o6"); break;
    case 1: say("probe " + place + " --probe-seqs 2 --probe-len 4"); break;
    case 2: say("generate run/step_2 --tokens 2 --prompt 1 --tokenizer " + place); break;
    case 3: say("tokenize t.txt -o o6 --tokenizer " + place); break;
    default:
        say(std::string("train ") + TINY + " -o o6 --vocab 50257 -n 1 -d " + place);
        for (size_t i = 0; i + 1 < words.size(); i++) {  // no flag of bb
            if (words[i] == "--bb-vocab") { words.erase(words.begin() + i, words.begin() + i + 2); }
        }
    }
    return words;
}

int main(int argc, char** argv) {
    const std::string what = argc > 2 ? argv[1] : "", scratch = argc > 2 ? argv[2] : "";
    const long tries = argc > 3 ? atol(argv[3]) : 10000;
    const std::vector<std::string> kinds = { "flags", "checkpoints", "configs", "models", "files" };
    if (!std::count(kinds.begin(), kinds.end(), what) || is_there(scratch)) {
        fprintf(stderr,
                "usage: fuzz flags|checkpoints|configs|models|files SCRATCH [TRIES [SEED]], "
                "SCRATCH a directory that is not there yet\n");
        return 2;
    }
    setenv("OMP_NUM_THREADS", "1", 1); setenv("OMP_WAIT_POLICY", "passive", 1);
    if (what == "models") { families_read("test/open/families"); }
    make_dirs(scratch);
    if (chdir(scratch.c_str())) { return 2; }
    const uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : (uint64_t)time(NULL);
    rng.state = seed;
    std::string text, records;
    for (int i = 0; i < 60; i++) {
        text += strf("%d green bottles\n", i);
        records += strf("{\"text\": \"%d green bottles\"}\n", i);
    }
    file_write("t.txt", text); file_write("r.jsonl", records);
    attempt({ "train_sink", "tokenize", "t.txt", "-o", "shards" });
    std::vector<std::string> words = { "train_sink", "train", "-o", "run" };
    for (auto& w : split(TINY, ' ')) { words.push_back(w); }
    if (attempt(words) != 0) {
        fprintf(stderr, "the good run failed: %s\n", file_read("said").c_str());
        return 1;
    }
    std::vector<std::pair<std::string, std::string>> files;
    for (auto& name : dir_list("run/step_2")) {
        files.push_back({ name, file_read("run/step_2/" + name) });
    }
    make_dirs("mutant/step_2");
    file_write("mutant/log.jsonl", file_read("run/log.jsonl"));
    const std::string llama =
        "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 2,\n"
        " \"vocab_size\": 13, \"max_position_embeddings\": 8, \"rms_norm_eps\": 1e-5, "
        "\"rope_theta\": 10000, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}\n";
    long ended[4] = {}, slow = 0, findings = 0;
    for (long i = 0; i < tries; i++) {
        if (what == "flags") { words = command_line(); }
        else if (what == "models") { words = model_try(); }
        else if (what == "files") { words = file_try(text); }
        else { words = checkpoint_try(what == "configs", files, llama); }
        const int code = attempt(words);
        slow += code == -1;
        if (code >= 0 && code < 4) { ended[code]++; continue; }
        if (code == -1) { continue; }
        printf("finding %ld: status %d:", ++findings, code);
        for (auto& w : words) { printf(" %s", json_str(w).c_str()); }
        printf("\n");
        fflush(stdout);
        file_write(strf("finding-%ld", findings), file_read("said"));
        if (what == "models" || what == "files") {
            rename(what == "models" ? "model" : "z", strf("finding-%ld.%s", findings,
                                                          what.c_str()).c_str());
            continue;
        }
        if (what != "flags") {
            file_write(strf("finding-%ld.config", findings),
                       file_read("mutant/step_2/config.json"));
        }
        for (auto& name : dir_list(".")) {
            if (name[0] == 'o' && name.size() == 2) { remove_tree(name); }
        }
    }
    printf("%s, seed %llu: %ld tries, exit status 0: %ld, 1: %ld, 2: %ld, 3: %ld, slow %ld, "
           "findings %ld\n",
           what.c_str(), (unsigned long long)seed, tries, ended[0], ended[1], ended[2], ended[3],
           slow, findings);
    return findings > 0;
}
