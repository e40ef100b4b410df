/*
open/export_command.cpp -- the command export: a checkpoint as other programs open it.
*/
#include "export.h"
#include "family_out.h"
#include "../run/commands.h"
#include "export_card.h"
#include "../run/open_model.h"
#include "../run/probe_data.h"
#include "../log.h"
#include "../base/look.h"
#include "../run/run_dir.h"
#include <limits.h>

// Says in README.md how the model is opened, and its tokenizer, if it has one.
static std::string export_about(const std::string& as, const std::string& how, bool has_tokenizer) {
    const std::string open = ".from_pretrained(PATH" + how + ")\n";
    std::string code = "from transformers import AutoModelForCausalLM";
    if (has_tokenizer) { code += ", AutoTokenizer"; }
    code += "\nmodel = AutoModelForCausalLM" + open;
    if (has_tokenizer) { code += "tokenizer = AutoTokenizer" + open; }
    return "It opens in transformers as " + as + ":\n\n```python\n" + code + "```";
}

// Returns the model in the words of the family that --to names, or of the first that can express
// it. Its family is NULL if the model is to be written with our own code.
static FamilyFile export_family(const Flags& f, const Arch& c, const std::vector<StOut>& ours,
                                const Tokenizer& tok) {
    const std::string path = tok.files.empty() ? "" : tok.files[0].first;
    if (f.to == "train_sink") { return FamilyFile(); }
    const std::string type = f.to.empty() ? c.family : f.to;
    FamilyFile file = family_file(c, type, ours, tok, path);
    if (!file.family && !f.to.empty()) {
        die(f.words[0] + ": cannot be written exactly as a model of " + f.to,
            "leave out --to; export then picks a family that can, or adds our own code");
    }
    if (!file.family) { file = family_file(c, "", ours, tok, path); }
    return file;
}

// Dies if --to is no name of what can be written.
static void export_to_check(const Flags& f) {
    if (f.to == "gguf") {
        die("--to gguf: GGUF files are written by a script",
            "leave out --to, then python3 scripts/to_gguf.py DIR NEW.gguf");
    }
    std::vector<std::string> names = families_written();
    names.insert(names.begin(), "train_sink");
    require(f.to.empty() || has(names, f.to), "--to " + f.to, listed(names, ", "));
}

// Writes the model as a directory that transformers opens.
static void export_directory(const Flags& f, const Model& m, const std::vector<StOut>& ours,
                             const Tokenizer& tok) {
    const long first = first_token(trained_data(trained_flags(f.words[0])), tok);
    Tokenizer said = tok;                        // in config.json
    if (first >= 0) {
        said.bos = first;
        said.kind = TOKENIZER_BPE;               // tokenizer.json does more than bytes
    }
    const FamilyFile file = export_family(f, m.arch, ours, said);
    const bool family = file.family != NULL;
    const std::vector<StOut>& tensors = family ? file.tensors : ours;
    const std::string config = family ? file.config : config_with_code(m.arch, said, f.words[0]);
    ExportDir o = export_begin(f.out);
    safetensors_write(o.tmp + "/model.safetensors", tensors);
    o.files.push_back("model.safetensors");
    const std::string as = family ? file.architecture : "the PyTorch file beside the weights";
    const char* how = family ? "" : ", trust_remote_code=True";
    const char* also = family ? "" : ", with trust_remote_code=True";
    export_file(&o, "config.json", config);
    if (!family) { export_file(&o, "modeling_train_sink.py", modeling_source()); }
    const std::string tokens = export_tokenizer(&o, tok, m.arch.T);
    const bool puts = export_begins(&o, tok, first);
    std::string about = export_about(as, how, has(o.files, "tokenizer.json"));
    if (!tokens.empty()) { about += "\n\n" + tokens; }
    if (first >= 0) {
        about += strf("\n\nEvery sequence of its training began with token %ld, which ", first);
        about += puts ? "`tokenizer(text)` puts first." : "no tokenizer here puts first: do it.";
    }
    export_file(&o, "README.md",
                export_card(m.arch, f.words[0], m.num_params, about, first >= 0));
    export_commit(&o);
    printf("wrote  %s: %s parameters, opens in transformers as %s%s\n", printable(o.path).c_str(),
           count_text(m.num_params).c_str(), as.c_str(), also);
}

// Dies if a new directory would be in that of a run, a checkpoint, a model or shards.
static void outside_check(const std::string& given) {
    const std::string path = export_path(given);
    char real[PATH_MAX];
    std::string dir = directory_of(path);
    while (!realpath(dir.c_str(), real) && dir.size() > 1) {     // what make_dirs will make
        dir.pop_back();
        dir = directory_of(dir);
    }
    bool inside = in_run(real);
    for (const char* mark : { "state.json", "manifest.json", "model.safetensors", "export.json" }) {
        inside = inside || file_exists(std::string(real) + "/" + mark);
    }
    if (!inside) { return; }
    die(path + ": is in a run, a model or shards, wanted a directory of its own",
        "choose another --out, such as my-model");
}

// Writes a checkpoint as other programs open it.
int command_export(Flags f) {
    export_to_check(f);
    if (f.out.empty()) {
        die("--out is missing: wanted a new directory",
            hint_for("./train_sink export FILE -o my-model", f.words[0]));
    }
    outside_check(f.out);
    export_check(f.out);
    Model m = model_from_checkpoint(&f, 1, STAY_NONE);
    const std::string only = forward_only_part(m.arch);
    require(only.empty(), f.words[0] + ", with " + only,
            "a model without them: they are only read here");
    const Tokenizer tok = f.tokenizer.empty() ? tokenizer_ids("ids", m.arch.V)
                                              : tokenizer_of(f.tokenizer);
    std::vector<std::vector<float>> copies;
    const std::vector<StOut> ours = tensors_of(&m, { { "", m.master } }, &copies);
    export_directory(f, m, ours, tok);
    model_free(&m);
    return 0;
}
