/*
test_export.cpp -- the command export: what is in the directory, that it reads back to the bit and
measures the same, that it is the same each time, and what it refuses. What PyTorch makes of it:
dev/peers/check_export.py.
*/
#include "../check.h"
#include "../../attention_variants.cuh"
#include "../../arch.h"
#include "../../text/encode.h"
#include "../../core/safetensors.h"

// a build of other switches: no default of theirs is that of a file
const int BUILD_BIAS = row_named(BIAS_ROWS, "k"), BUILD_PE = PE_alibi, BUILD_NORM = NORM_post, BUILD_FFN = row_named(FFN_ROWS, "relu2");
const int BUILD_COMBINE = COMBINE_sum, BUILD_QKNORM = QKNORM_all, BUILD_GATE = row_named(GATE_ROWS, "head");
const std::vector<SwitchValue> SWITCH_VALUES;
const char *const COMMIT = "", *const PRECISION_NAME = "fp32", *const BACKEND_NAME = "cpu";
namespace build {
const char* const Attn::name = "softmax";
const bool Attn::exp_family = true, Attn::is_signed = false, Attn::capped = false;
const bool Attn::by_count = false;
const ZKind Attn::Z = Z_SUM;
const Clip Attn::clip = NO_CLIP;
const Twin Attn::twin = AttnBase::twin;
const Phi Attn::phi = PHI_NONE;
float Attn::sim(float s) { return s; }
double Attn::sim(double s) { return s; }
const ExtraKind Bias::extra = KEY_EXTRA;
const bool Pe::score_bias = true;
} // namespace build

static const std::string SCRATCH = "build/test/export/", TEXT = SCRATCH + "text.txt";
static const char* const PROGRAM = "build/cpu/train_sink";

static Ran program(const std::string& arguments) {
    return check_run(std::string("OMP_NUM_THREADS=1 ") + PROGRAM + " " + arguments);
}

static Ran exported(const std::string& from, const std::string& to, const std::string& more = "") {
    return program("export " + from + " --out " + to + " " + more);
}

// a run of a few steps; returns its checkpoint
static std::string trained(const std::string& name, const std::string& flags) {
    const std::string out = SCRATCH + name;
    const Ran r = program(flags_once(
        "train --steps 6 --warmup 2 --lr 0.02 --layers 2 --heads 2 --width 12 --ffn-width 8 --seq 16 "
        "-b 4 --eval-every 3 --sample 0 --val-seqs 4 --probe-seqs 4 --probe-len 16 --out " + out +
        " " + flags));
    check_ended(r, 0, name);
    return out + "/step_6";
}

static bool same_files(const std::string& a, const std::string& b) {
    return file_read(a) == file_read(b);
}

// what probe measures of a checkpoint, without its name
static std::string measured(const std::string& checkpoint) {
    const std::string json = SCRATCH + "probe.json";
    const Ran r = program("probe " + checkpoint + " --probe-input random --probe-len 16 "
                          "--probe-seqs 4 --per-sequence --json " + json);
    if (!check_ended(r, 0, strf("probe %s", checkpoint.c_str()))) { return ""; }
    const std::string text = file_read(json);
    const size_t at = text.find("\"probe_loss\"");
    return at == std::string::npos ? "" : text.substr(at);
}

// the PyTorch file in the program is that of the repository without its first line and its last
static void code_check(const std::string& dir) {
    std::string source = file_read("scripts/modeling_train_sink.py");
    source.erase(0, source.find('\n') + 1);
    source.erase(source.rfind("# )PYTHON"));
    CHECK(file_read(dir + "/modeling_train_sink.py") == source, "the PyTorch file is another");
}

// each key of config.json that may change the model is known to the PyTorch file
static void keys_check(const std::string& dir) {
    const Json config = json_of_file(dir + "/config.json");
    const std::string code = file_read(dir + "/modeling_train_sink.py");
    for (const char* object : { "train_sink", "rope_scaling" }) {
        const Json* rows = config.get(object);
        if (!CHECK(rows, "%s: no %s", dir.c_str(), object)) { continue; }
        for (auto& f : rows->fields) {
            const size_t at = code.find(f.first + "=");
            CHECK(at != std::string::npos && strchr(" (\n", code[at - 1]),
                  "%s of %s is not known to modeling_train_sink.py", f.first.c_str(), object);
        }
    }
}

static std::string joined(const std::vector<std::string>& names) {
    std::string all;
    for (auto& name : names) { list_add(&all, name, " "); }
    return all;
}

// the names of a kind in the PyTorch file are those of its table here, in this order: the first is
// what an absent key means in both. It is looked up by its whole name
static void names_check() {
    const std::string code = file_read("scripts/modeling_train_sink.py");
    Arch c;
    std::vector<std::pair<std::string, std::string>> kinds = 
        { { "attn", joined(names_of(ATTN_ROWS)) } };
    for (auto& r : arch_rows(&c)) {
        if (r.type == FIELD_kind) { kinds.push_back({ key_name(r), joined(r.names) }); }
    }
    CHECK(kinds.size() >= 12, "%zu kinds", kinds.size());
    const size_t tables = code.find("\nKINDS = ");
    for (auto& kind : kinds) {
        const size_t at = code.find(kind.first + "=\"", tables);
        std::string names = code.substr(at + kind.first.size() + 2);
        names.resize(names.find_first_of(",)") - 1);
        const size_t fold = names.find("\"\n");
        if (fold != names.npos) { names.erase(fold, names.find('"', fold + 1) + 1 - fold); }
        CHECK(at < code.find("\nROWS = ") && names == kind.second,
              "modeling_train_sink.py knows %s as '%s', wanted '%s'", kind.first.c_str(),
              names.c_str(), kind.second.c_str());
    }
    for (const char* name : ATTN_ROWS) {
        CHECK(contains(code, strf("\n    %s=Operation(", name)),
              "modeling_train_sink.py has no operation %s", name);
    }
    for (auto& b : BIAS_ROWS) {
        std::string is, row = strf("\n    %s=Bias(", b.name);
        if (b.extra) { list_add(&is, b.extra == KEY_EXTRA ? "\"key\"" : "\"logit\""); }
        if (b.learn_k) { list_add(&is, "learn_k=True"); }
        if (b.learn_v) { list_add(&is, "learn_v=True"); }
        if (b.add_v) { list_add(&is, "add_v=True"); }
        if (b.token) { list_add(&is, "token=True"); }
        row += is + ")";
        CHECK(contains(code, row), "modeling_train_sink.py has no line%s", row.c_str());
    }
}

// The object train_sink has the rows that differ from the fixed defaults, whatever the build's are;
// with all rows, as older versions wrote it, it says the same model
static void rows_check() {
    const std::string plain = SCRATCH + "plain-out", full = SCRATCH + "full";
    const Json mine = *json_of_file(plain + "/config.json").get("train_sink");
    std::string keys;
    for (auto& f : mine.fields) { list_add(&keys, f.first, " "); }
    CHECK(keys == "attn tokenizer", "a plain model says %s", keys.c_str());
    Arch c = arch_fixed();
    c.HS = c.k_dims = 8;
    c.norm = NORM_post;
    c.window = 7;
    JsonObject object(JSON_SPACED);
    arch_fields(&object, c);
    CHECK(object.all() == "{\"norm\": \"post\", \"window\": 7}", "got %s", object.all().c_str());
    for (const char* name : { "plain", "mistral" }) {
        const std::string from = SCRATCH + name + (name[0] == 'p' ? "-out" : "-both");
        check_run("rm -rf " + full + " && cp -r " + from + " " + full);
        Arch all = arch_fixed();
        std::string rows;
        const Json there = *json_of_file(full + "/config.json").get("train_sink");
        for (auto& r : arch_rows(&all)) {
            const bool absent = key_object(r) == "train_sink" && !there.get(key_name(r).c_str());
            if (absent) { rows += json_str(key_name(r)) + ": " + config_text(r) + ", "; }
        }
        std::string config = file_read(full + "/config.json");
        const std::string before = "\"train_sink\": {";
        config.insert(config.find(before) + before.size(), rows);
        file_write(full + "/config.json", config);
        CHECK(measured(full) == measured(from) && !measured(full).empty(),
              "%s with all rows in its config.json is another model", name);
    }
}

static void model_check(const std::string& name, const std::string& flags) {
    const std::string from = trained(name, flags), to = SCRATCH + name + "-out";
    const Ran r = exported(from, to, "--to train_sink");
    if (!check_ended(r, 0, name)) { return; }
    CHECK(same_files(from + "/model.safetensors", to + "/model.safetensors"),
          "%s: the weights are not the checkpoint's", name.c_str());
    CHECK(measured(from) == measured(to) && !measured(to).empty(),
          "%s: the probe of what was written is another", name.c_str());
    code_check(to);
    const std::string again = SCRATCH + name + "-again";
    exported(from, again, "--to train_sink");
    CHECK(check_run("diff -r " + to + " " + again).code == 0, "%s: written otherwise the second "
          "time", name.c_str());
    CHECK(exported(to, again, "--to train_sink").code == 0 &&
              same_files(to + "/config.json", again + "/config.json"),
          "%s: an export of the export is another model", name.c_str());
}

// Every family that can be written, as transformers saved it: read and written it has the same
// tensors under the same names, and what is read from that measures the same
static void family_check(const std::string& name) {
    const std::string from = "test/open/families/" + name, to = SCRATCH + name;
    const Ran r = exported(from, to);
    if (!check_ended(r, 0, name)) { return; }
    const Json a = json_of_file(from + "/config.json"), b = json_of_file(to + "/config.json");
    CHECK(a.get("model_type")->string == b.get("model_type")->string &&
              a.get("architectures")->items[0].string == b.get("architectures")->items[0].string,
          "%s: written as %s", name.c_str(), b.get("model_type")->string.c_str());
    for (auto& f : a.fields) {                   // 1 for true is not what transformers wants
        const Json* v = b.get(f.first);
        if (!v || f.second.type != Json::BOOL) { continue; }
        CHECK(v->type == Json::BOOL, "%s: %s is %s", name.c_str(), f.first.c_str(),
              v->string.c_str());
    }
    Weights theirs = safetensors_open(from + "/model.safetensors"),
            ours = safetensors_open(to + "/model.safetensors");
    CHECK(theirs.tensors.size() == ours.tensors.size(), "%s: %zu tensors, wanted %zu", name.c_str(),
          ours.tensors.size(), theirs.tensors.size());
    for (auto& w : theirs.tensors) {
        const Weight* v = ours.find(w.name);
        // the first two positions of OPT are read by nothing
        const size_t skip = name == "opt" && ends_with(w.name, "embed_positions.weight")
                                ? 2 * 4 * w.cols() : 0;
        bool same = v && v->shape == w.shape;
        // Gemma's norms are 1 more here, which rounds them: to half an ulp of 1
        const bool rounds = starts_with(name, "gemma") && ends_with(w.name, "norm.weight");
        for (long i = 0; same && rounds && i < w.count; i++) {
            same = fabs(((const float*)v->data)[i] - ((const float*)w.data)[i]) <= 0x1p-24;
        }
        same = same && (rounds || !memcmp(v->data + skip, w.data + skip, w.bytes - skip));
        CHECK(same, "%s: %s comes back as something else", name.c_str(), w.name.c_str());
    }
    CHECK(measured(from) == measured(to) && !measured(to).empty(),
          "%s: the probe of what was written is another", name.c_str());
}

// a run that begins with a model of another family writes that family, and goes on from it to the
// bit
static void init_check() {
    const std::string flags = " --seq 16 -b 4 --lr 0.01 --warmup 0 --eval-every 0 --sample 0 "
                              "--val-seqs 4 --probe-seqs 4 --probe-len 16 --data "
                              "test/open/families/tokens ";
    for (const char* name : { "gpt_neox", "phi3", "mistral" }) {
        const std::string out = SCRATCH + name + "-run", half = SCRATCH + name + "-half",
                          init = strf("train --init test/open/families/%s", name) + flags;
        Ran r = program(init + "--steps 4 --out " + out);
        if (!check_ended(r, 0, name)) { continue; }
        const Json config = json_of_file(out + "/step_4/config.json");
        CHECK(config.get("model_type")->string == name && config.get("train_sink"),
              "--init %s: written as %s", name, config.get("model_type")->string.c_str());
        CHECK(config.get("max_position_embeddings")->number == 64 &&
                  config.get("train_sink")->get("seq")->number == 16,
              "--init %s --seq 16: written as a model of other positions", name);
        program(init + "--steps 2 --out " + half);
        r = program(init + "--steps 4 --resume --out " + half);
        CHECK(r.code == 0 && same_files(out + "/step_4/model.safetensors",
                                        half + "/step_4/model.safetensors"),
              "--init %s: a resumed run ends with other weights: %s", name, r.err.c_str());
        CHECK(exported(out + "/step_4", SCRATCH + name + "-both").code == 0 &&
                  same_files(out + "/step_4/model.safetensors",
                             SCRATCH + name + "-both/model.safetensors"),
              "--init %s: exported, it is another", name);
    }
    // two norms that share one tensor in Phi are two from the first step on
    program("train --init test/open/families/phi --steps 1 --out " + SCRATCH + "phi-run" + flags);
    CHECK(json_of_file(SCRATCH + "phi-run/step_1/config.json").get("model_type")->string ==
              "train_sink", "a Phi whose norms have parted was written as one");
}

// what a model of ours is, in the words of which family
static void chosen_check() {
    const char* const ROWS[][3] = {
        { "chosen-1", "", "llama" },
        { "chosen-2", "--qkv-bias 1 --out-bias 1", "llama" },
        { "chosen-3", "--window 5", "mistral" },
        { "chosen-4", "--qkv-bias 1 --window 5 --local-layers 01", "qwen2" },
        { "chosen-5", "--qkv-bias 1 --window 5 --local-layers 10", "qwen2" },
        { "chosen-6", "--rope-part 0.34", "phi3" },
        { "chosen-7", "--norm-kind ln --rope-part 0.5 --head-dim 8", "train_sink" },
        { "chosen-8", "--norm-kind ln --rope-part 0.67", "stablelm" },
        { "chosen-9", "--prefix 3", "train_sink" },
        { "chosen-10", "--embed-scale 2", "granite" },
        { "chosen-14", "--residual-scale 0.3 --logit-divisor 6 --score-scale 0.1", "granite" },
        { "chosen-15", "--embed-scale 2 --norm-embed 1", "train_sink" },
        { "chosen-11", "--rope-layers 10 --tied 1", "smollm3" },
        { "chosen-13", "--layers 4 --qkv-bias 1 --window 5 --local-layers 01", "qwen2" },
        { "chosen-12", "--rope-scaling yarn --rope-factor 4", "llama" },
    };
    for (auto& row : ROWS) {
        const std::string to = SCRATCH + row[0] + "-out";
        const Ran r = exported(trained(row[0], row[1]), to);
        if (!check_ended(r, 0, row[1])) { continue; }
        const std::string type = json_of_file(to + "/config.json").get("model_type")->string;
        CHECK(type == row[2], "%s: written as %s, wanted %s", row[1], type.c_str(), row[2]);
        CHECK(measured(to) == measured(SCRATCH + row[0] + "/step_6"), "%s: another probe", row[1]);
    }
    Ran r = exported(SCRATCH + "chosen-3/step_6", SCRATCH + "no", "--to llama");
    check_ended(r, EXIT_USER, "", "cannot be written exactly as a model of llama");
    r = exported(SCRATCH + "chosen-3/step_6", SCRATCH + "no", "--to lama");
    check_ended(r, EXIT_USER, "", "--to lama: wanted");
    CHECK(!is_there(SCRATCH + "no"), "a refused export left a directory");
}

// README.md says of the run what its log says
static void card_check() {
    const std::string card = file_read(SCRATCH + "bytes-out/README.md");
    Json last;
    for (auto& line : split(file_read(SCRATCH + "bytes/log.jsonl"), '\n')) {
        if (contains(line, "\"event\":\"eval\"")) { last = json_of(line); }
    }
    const double loss = last.get("val_loss")->number,
                 sink = last.get("sink")->get("sink_k")->items[0].number;
    for (auto& fact : { strf("| validation loss | %.4f |", loss),
                        strf("| Sink_1 | %.1f%% of heads", 100 * sink),
                        std::string("| steps | 6 (384 tokens) |"), std::string("| data | text.txt |"),
                        std::string("ATTN=softmax BIAS=none"), std::string("parallel 1"),
                        std::string("--lr 0.02") }) {
        CHECK(contains(card, fact), "README.md does not say: %s", fact.c_str());
    }
    CHECK(!contains(card, "build/test"), "README.md names a folder: %s", card.c_str());
    CHECK(split(card, '\n').size() <= 41, "README.md has %zu lines", split(card, '\n').size());
    // a name that would be a table, a heading and HTML is text
    const std::string odd = SCRATCH + "x|y\n# Heading <img src=x>.txt";
    file_write(odd, file_read(TEXT));
    check_run(strf("cd %s && cp -r bytes odd && cp -r odd/step_6 'odd/z|<b>'", SCRATCH.c_str()));
    const std::string state = SCRATCH + "odd/z|<b>/state.json";
    file_write(state, replaced(file_read(state), json_str(TEXT), json_str(odd)));
    const Ran r = exported("'" + SCRATCH + "odd/z|<b>'", "'" + SCRATCH + "o\033[31m'");
    CHECK(r.code == 0 && !contains(r.out, "\033"), "%s", r.said().c_str());
    const std::string escaped = file_read(SCRATCH + "o\033[31m/README.md");
    CHECK(contains(escaped, "| x\\|y?\\# Heading \\<img src=x\\>.txt |") &&
              contains(escaped, "\n# z\\|\\<b\\>\n"), "got %s", escaped.c_str());
    check_run("rm -rf '" + SCRATCH + "o\033[31m'");
    // a checkpoint without its run
    check_run("cp -r " + SCRATCH + "bytes/step_6 " + SCRATCH + "alone && rm " + SCRATCH +
              "alone/state.json");
    exported(SCRATCH + "alone", SCRATCH + "alone-out");
    CHECK(contains(file_read(SCRATCH + "alone-out/README.md"), "is not known"),
          "README.md of a checkpoint without a run speaks of one");
    const std::string one = SCRATCH + "one";
    program("train --steps 1 --layers 1 --heads 1 --width 8 --ffn-width 8 --seq 4 -b 4 --sample 0 "
            "--eval-every 0 --val-seqs 4 --probe-seqs 4 --probe-len 4 --out " + one);
    exported(one + "/step_1", one + "-out");
    CHECK(contains(file_read(one + "-out/README.md"), "| 1, 8, 1, 1, 8 |"),
          "README.md of one layer and one head");
}

// what generate and score say of a run, of its export: a line less, that of the token
static void run_equals_export(const std::string& run, const std::string& to, bool fixed) {
    const std::string task = SCRATCH + "task.jsonl", items = SCRATCH + "items.jsonl";
    file_write(task, "{\"context\": \"12\", \"choices\": [\"3\", \"45 6\"], \"gold\": 0}\n"
                     "{\"context\": \"\", \"choices\": [\"3\", \"45 6\"], \"gold\": 0}\n");
    for (const char* bos : { "", " --bos none", " --bos 66" }) {
        std::string text[2], scores[2];
        for (int i = 0; i < 2; i++) {
            const std::string of = (i ? to : run) + bos;
            const Ran r = program("generate " + of + " --prompt 12 --temperature 0 --tokens 9");
            text[i] = r.out;
            utf8_repair(&text[i]);               // as the export writes it
            const bool put = r.says("is put before a text"), other = r.says("the run was trained with");
            CHECK(put == (!i && !*bos) && other == (!i && *bos && fixed), "%s%s: generate says %s",
                  run.c_str(), bos, r.err.c_str());
            program("score " + of + " --task " + task + " --items " + items);
            scores[i] = file_read(items);
        }
        CHECK(text[0] == text[1] && text[0].size() > 3, "%s%s: text %s, of its export %s",
              run.c_str(), bos, text[0].c_str(), text[1].c_str());
        CHECK(scores[0] == scores[1] && contains(scores[0], "loglik"), "%s%s: %s, of its export %s",
              run.c_str(), bos, scores[0].c_str(), scores[1].c_str());
    }
}

// A run whose sequences all begin with one token: the export's tokenizer puts it there, and probe
// says so
static void first_token_check() {
    const char* const ROWS[][2] = { { "first", "--bos seq" }, { "fixed", "--fix-token 1:7" } };
    for (auto& row : ROWS) {
        const bool fixed = strstr(row[1], "fix");
        const int id = fixed ? 7 : 256;
        const std::string from = trained(row[0], "--data " + TEXT + " " + row[1]);
        const std::string to = SCRATCH + row[0] + "-out";
        Ran r = exported(from, to);
        check_ended(r, 0, row[1]);
        const Tokenizer tok = tokenizer_load(to + "/tokenizer.json");
        CHECK(tok.before == std::vector<int>{ id } && tok.bos == id, "%s: BOS %d", row[1], tok.bos);
        CHECK(tokenizer_encode(tok, "a", true) == (std::vector<int>{ id, 97 }), "%s: ids", row[1]);
        const Json config = json_of_file(to + "/config.json");
        CHECK(config.get("bos_token_id")->number == id, "%s: bos_token_id", row[1]);
        CHECK(json_of_file(to + "/tokenizer_config.json").get("bos_token"), "%s", row[1]);
        const std::string card = file_read(to + "/README.md");
        const std::string begins = strf("began with token %d, which `tokenizer(text)` puts first. "
                                        "Sink_1 there: ", id);
        CHECK(contains(card, begins) && !contains(card, "its sink") &&
                  contains(card, strf("\n# %s/step\\_6\n", row[0])), "%s", card.c_str());
        CHECK(contains(card, "AutoTokenizer.from_pretrained(PATH)") &&
                  !contains(card, "--model"), "%s", card.c_str());
        run_equals_export(from, to, fixed);
        const std::string probe = " -d " + TEXT + " --probe-len 16 --probe-seqs 4 ";
        r = program("probe " + to + probe);
        CHECK(r.says("begins a text with") && r.says("bos default: "), "%s: probe says %s", row[1],
              r.out.c_str());
        r = program("probe " + to + probe + "--bos default --json " + SCRATCH + "a.json");
        program("probe " + from + probe + "--bos seq --json " + SCRATCH + "b.json");
        const Json a = json_of_file(SCRATCH + "a.json"), b = json_of_file(SCRATCH + "b.json");
        const bool same = a.get("probe_loss")->string == b.get("probe_loss")->string;
        CHECK(r.code == 0 && same != fixed, "%s: --bos default of the export: %s", row[1],
              r.err.c_str());
    }
    CHECK(!contains(file_read(SCRATCH + "bytes-out/README.md"), "began with token"),
          "a run without a first token has one");
}

// tokenizer.json of bytes gives the ids that bytes have
static void bytes_check() {
    const Tokenizer bytes = Tokenizer(),
                    theirs = tokenizer_load(SCRATCH + "bytes-out/tokenizer.json");
    Rng rng{ 7 };
    for (int i = 0; i < 300; i++) {
        std::string text = i == 0 ? "<|endoftext|> \n\n it's 12345" : "";
        for (int n = rng_below(&rng, 40); n > 0; n--) {
            const uint32_t c = rng_below(&rng, 1 << rng_below(&rng, 17));
            utf8_append(&text, c >= 0xD800 && c < 0xE000 ? '?' : c);
        }
        CHECK(tokenizer_encode(bytes, text, true) == tokenizer_encode(theirs, text, true),
              "other ids for '%s'", text.c_str());
    }
    CHECK(theirs.eos == 256 && theirs.vocab_size == 257, "end %d of %d tokens", theirs.eos,
          theirs.vocab_size);
}

static void refused(const std::string& from, const std::string& to, const std::string& says) {
    const Ran r = exported(from, to);
    check_ended(r, EXIT_USER, strf("export %s to %s", from.c_str(), to.c_str()), says, "HINT");
}

static void refusals_check() {
    const std::string from = SCRATCH + "bytes/step_6", mine = SCRATCH + "mine",
                      again = SCRATCH + "bytes-out";
    refused("/nowhere", mine, "/nowhere");
    refused(TEXT, mine, "text.txt");
    refused("test/open/families/mixtral", mine, "experts");
    refused("test/open/families/jamba", mine, "Mamba");
    CHECK(!is_there(mine), "a refused export left a directory");
    refused(from, "''", "--out");
    refused(from, TEXT, "already exists");
    refused(from, from, "is in a run");
    // a run goes on after it: neither a step of it nor anything in a checkpoint is an export
    refused(from, SCRATCH + "bytes/step_9", "is in a run");
    refused(from, SCRATCH + "bytes/new/one", "is in a run");
    refused(from, from + "/one", "is in a run");
    refused(from, again + "/one", "is in a run");
    CHECK(!is_there(SCRATCH + "bytes/new") && !is_there(from + "/one"), "something was made there");
    make_dirs(mine);
    file_write(mine + "/notes.txt", "mine");
    refused(from, mine, "holds notes.txt");
    CHECK(file_read(mine + "/notes.txt") == "mine" && dir_list(mine).size() == 1,
          "a directory of somebody's was changed");
    // an earlier export is replaced, unless something else is in it by now
    CHECK(exported(from, again).code == 0, "an export does not replace an earlier one");
    file_write(again + "/mine.txt", "mine");
    refused(from, again, "holds mine.txt");
    unlink((again + "/mine.txt").c_str());
    CHECK(exported(from, again).code == 0, "without it, it does not");
    // what was ours and is not any more: an edited card, weights trained on, a directory
    for (const char* name : { "README.md", "model.safetensors", "export.json" }) {
        const std::string path = again + "/" + name, before = file_read(path);
        file_write(path, before + "MY EDITS");
        refused(from, again, std::string("holds ") + name + ", which was changed since");
        CHECK(file_read(path) == before + "MY EDITS", "%s was lost", name);
        file_write(path, before);
    }
    const std::string card = again + "/README.md", text = file_read(card);
    unlink(card.c_str());
    make_dirs(card);
    refused(from, again, "holds README.md, which no export wrote");
    rmdir(card.c_str());
    file_write(card, text);
    file_write(mine + "/export.json", "{\"files\": [\"notes.txt\"]}");
    refused(from, mine, "an export of an older version");
    file_write(mine + "/export.json", "{\"files\": {}}");
    refused(from, mine, "holds notes.txt");
    // one that was killed is emptied by the next; a folder of somebody's is not
    const std::string tmp = again + ".tmp", other = SCRATCH + "other";
    make_dirs(tmp);
    file_write(tmp + "/lock", "");
    file_write(tmp + "/model.safetensors", "half");
    CHECK(exported(from, again).code == 0 && !is_there(tmp), "a killed export stays");
    make_dirs(other + ".tmp");
    file_write(other + ".tmp/model.safetensors", "mine");
    refused(from, other, "is not of an export");
    CHECK(file_read(other + ".tmp/model.safetensors") == "mine" && !is_there(other), "was lost");
    check_run("rm -r " + other + ".tmp");
    // killed between the exchange and the end: DIR.tmp is the export before, whole
    check_run("cp -r " + again + " " + tmp);
    CHECK(exported(from, again).code == 0 && !is_there(tmp), "the export before stays");
    // a full disk: nothing is left, and what was there is as it was
    const std::string limit = "ulimit -f 8; trap '' XFSZ; OMP_NUM_THREADS=1 " + std::string(PROGRAM);
    const Ran full = check_run(limit + " export " + SCRATCH + "plain/step_6 -o " + again);
    CHECK(full.code == EXIT_MACHINE && !is_there(tmp) && file_read(card) == text,
          "exit %d, %s", full.code, full.err.c_str());
    CHECK(program("export --out " + SCRATCH + "none").says("wanted one"), "no checkpoint");
    // what older versions did here, and what does it now
    const char* const GONE[][2] = {
        { "export x -o y --to gguf", "scripts/to_gguf.py" },
        { "export x -o y --type f16", "scripts/to_gguf.py" },
        { "probe x --adapter y", "merge_and_unload" },
    };
    for (auto& gone : GONE) {
        const Ran r = program(gone[0]);
        check_ended(r, EXIT_USER, gone[0], gone[1]);
    }
    CHECK(program("export " + from + " --out x --lr 3").says("not a flag of this command"),
          "a flag of another command");
    for (auto& name : dir_list(SCRATCH)) {
        CHECK(!contains(name, ".old") && !ends_with(name, ".tmp"), "%s was left", name.c_str());
    }
}

// a program that was moved has all it needs
static void moved_check() {
    const std::string move = "cp " + std::string(PROGRAM) + " " + SCRATCH + "moved && cd " +
                             SCRATCH + " && ./moved export bytes/step_6 --to train_sink "
                                       "--out moved-out/";
    CHECK(check_run(move).code == 0, "a moved program does not export");
    code_check(SCRATCH + "moved-out");
}

int main() {
    check_run("rm -rf " + SCRATCH);
    make_dirs(SCRATCH);
    std::string text;
    for (int i = 0; i < 4000; i++) { text += strf("%d and %d, ", i % 7, i * i % 11); }
    file_write(TEXT, text);
    CASE("model") {
        model_check("plain", "");
        model_check("bytes", "--data " + TEXT + " --parallel 1 --norm-kind ln --qkv-bias 1");
        model_check("yarn", "--rope-scaling yarn --rope-factor 2 --window 4 --local-layers 10 "
                            "--prefix 3 --tied 1");
        keys_check(SCRATCH + "yarn-out");
    }
    CASE("names") { names_check(); }
    for (const char* name : { "llama_llama3", "llama_yarn", "mistral", "qwen2", "qwen3", "olmo2",
                              "smollm3", "gemma", "gemma3", "gemma3_llama3", "phi3", "stablelm",
                              "gpt_neox", "phi", "gptj", "ernie4_5", "gpt2", "gpt2_untied",
                              "gpt_neo", "opt", "falcon_7b", "falcon_40b" }) {
        CASE(name) { family_check(name); }
    }
    CASE("init") { init_check(); }
    CASE("rows") { rows_check(); }
    CASE("chosen") { chosen_check(); }
    CASE("card") { card_check(); }
    CASE("bytes") { bytes_check(); }
    CASE("first_token") { first_token_check(); }
    CASE("refusals") { refusals_check(); }
    CASE("moved") { moved_check(); }
    return check_done();
}
