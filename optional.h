/*
optional.h -- the folders that may be deleted: text/, open/, after/, cpu/, cuda/ and dist/. Without
any of them all else builds, trains to the same bits and passes its tests.

HAS_TEXT and the others are 1 where the folder is, 0 where it is not. A folder's rows are macros:
they join the tables of arch.h, tensors.h and flags.h, and are empty where the folder is not. Its
functions are behind pointers, which are NULL then.
*/
#ifndef OPTIONAL_H
#define OPTIONAL_H
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#if __has_include("text/rows.h")
#include "text/rows.h"
#else
#define HAS_TEXT 0
#define TEXT_COMMANDS(X)
#define TEXT_FLAGS(X)
#endif

#if __has_include("open/rows.h")
#include "open/rows.h"
#else
#define HAS_OPEN 0
#define OTHER_MODELS ""
#define OPEN_POSITIONS(X)
#define OPEN_ARCH(X)
#define OPEN_PARAMS(LAYER)
#define OPEN_ACTS(X)
#define OPEN_FLAGS(X)
#define OPEN_COMMANDS(X)
#define OPEN_MIXER_STAGES
#define OPEN_FFN_STAGES
#define LAYER_AT(l) { true, true }
#endif

#if __has_include("after/rows.h")
#include "after/rows.h"
#else
#define HAS_AFTER 0
#define AFTER_FLAGS(X)
#define AFTER_COMMANDS(X)
#endif

#if __has_include("cpu/rows.h")
#include "cpu/rows.h"
#else
#define HAS_CPU 0
#define CPU_FLAGS(X)
#endif

#if __has_include("cuda/rows.h")
#include "cuda/rows.h"
#else
#define CUDA_FLAGS(X)
#endif
#ifndef HAS_CUDA
#define HAS_CUDA 0
#endif

// What to type where something of open/ is wanted.
static const char* const OPEN_MISSING =
    "the folder open/ reads it, which this build does not include: get it, and compile again";

// Commands and flags that this program does not have, as their folder is not there.
static const struct { const char *folder, *names; } NAMES_OF_FOLDERS[] = {
#if !HAS_TEXT
    { "text/", " tokenize --sft --sft-loss --skip-bad --probe-from --text --val --val-fraction"
               " --domains --shard-tokens --threads " },
#endif
#if !HAS_OPEN
    { "open/", " export --rope-scaling --rope-factor --rope-context --rope-low --rope-high"
               " --rope-fast --rope-slow --rope-length --rope-round " },
#endif
#if !HAS_AFTER
    { "after/", " eval score --sink-at --per-sequence --dump --dump-heads --dump-seq --anatomy"
                " --anywhere --factors --noise " },
#endif
#if !HAS_CPU
    { "cpu/", " --product --products " },
#endif
#ifndef CUDA_ROWS_H
    { "cuda/", " --graph --hopper " },
#endif
    { "", "" },
};

// Keys of the object train_sink of config.json that are rows of open/. Versions 1.0 and 1.1 wrote
// them for every model, where 0, "" and false mean: it has no such thing.
static const char* const KEYS_OF_OPEN =
    " experts experts_used expert_shares expert_limit router_bias expert_layers shared_expert"
    " attn_layers rope_most mamba_width mamba_state mamba_conv mamba_rank"
    " delta_keys delta_values delta_key_size delta_value_size delta_conv ";

enum Reader : int;
struct Arch;
struct ArchCheck;
struct ArchRow;
struct Checkpoint;
struct Data;
struct DataOptions;
struct FileKind;
struct Flags;
struct Json;
struct JsonObject;
struct Metrics;
struct Model;
struct ModelFile;
struct OtherBos;
struct ProbeBos;
struct ProbeData;
struct ProbeInput;
struct Run;
struct Shard;
struct Sizes;
struct Step;
struct StOut;
struct Tokenizer;
struct TokenizerBuild;
struct Weight;
struct Weights;
struct WeightType;

// The kernel that multiplies matrices on a CPU.
struct ProductChoice {
    std::string name;               // "" if there is no choice
    std::string why;
};

// Which matrices of a model that only runs stay in their file: some are as large as memory.
enum Stay { STAY_NONE, STAY_ALL };

// The first n rows of a weight.
template <class R> struct WeightRows { const R* x; int n; };

// What cpu/ does beside the operations of its backend.
struct CpuFolder {
    // Settles the kernel of all products of this process: --product's, or its processor's.
    void (*product_settle)(const Flags& f);
    // Takes the kernel that a run had, unless --product asks for another. If it cannot run here,
    // *changed tells.
    void (*product_resume)(const std::string& was, JsonObject* changed);
    // Returns what was settled.
    const ProductChoice& (*product)();
    // Times all kernels: bench --products. Returns false if it was not asked for.
    bool (*bench_products)(const Flags& f);

    // Ends the program if the processor lacks what it was compiled for. (It has run before main.)
    void (*processor_check)();

    // Sets which matrices stay in their file, before they are read; of one model at a time.
    void (*stay)(Stay stay);
    Stay (*stays)();
    // Leaves a matrix (rows, cols) there, whose floats would begin at `at`; read gives row r.
    void (*stay_at)(const float* at, long rows, long cols,
                    const std::function<void(long r, float* out)>& read);
    bool (*is_in_file)(const float* at);
    bool (*any_in_file)();
    // Returns the first of the OC rows (OC, C): some of them, if they have to be read.
    WeightRows<float> (*rows)(const float* weight, int C, int OC);
};

// What text/ does.
struct TextFolder {
    // Reads a tokenizer from its files.
    Tokenizer (*tokenizer)(const std::string& path);
    // Dies of a model without a tokenizer, with what its directory has in place of one.
    void (*no_tokenizer)(const std::string& model);
    // Returns the ids of a text (specials: with what the tokenizer puts around it), and the text of
    // ids; not by a tokenizer of bare ids.
    std::vector<int> (*encode)(const Tokenizer& t, const std::string& text, bool specials);
    std::string (*decode)(const Tokenizer& t, const int* ids, size_t n, bool skip_special);
    // Returns the character that stands for each byte in a byte-level vocabulary.
    std::vector<uint32_t> (*byte_alphabet)();
    // Returns a token as its vocabulary has it, "" for no token and for those of raw bytes.
    std::string (*token)(const Tokenizer& t, int id);
    // Die if a model of V ids has too few for this tokenizer, or for these ids.
    void (*vocabulary_check)(const Tokenizer& t, int V);
    void (*ids_check)(const Tokenizer& t, const int* ids, size_t n, int V);
    // Tells whether the ids from V on are added tokens that a text avoids. Dies if these have one.
    bool (*spares_ids)(const Data& d, int V);

    // Prints a note if --bos doc can put its token in only one place of the data.
    void (*one_document_note)(const std::string& data);
    // Dies unless the file can be read as text. others: what else is wanted.
    void (*check)(const std::string& path, const std::string& others);
    // Dies of a source that --sft cannot read, or if --skip-bad has nothing to leave out.
    void (*sources_check)(const DataOptions& opt, const std::vector<std::string>& names);
    // Returns the directory of shards of a text, made now or found.
    std::string (*cache)(const std::string& path, const Tokenizer& tok, const DataOptions& opt);
    // Finds the tokens in `size` bytes at p, a file of lit-gpt. Returns the bytes of a token in a
    // file without a header: by Megatron's index beside it, else `bare`, which --bin says.
    void (*litpkds)(Shard* s, const unsigned char* p, long size);
    int (*bare_width)(const std::string& path, int bare);
    // Makes the sequences of a probe from the records of a .jsonl. Returns false if --data is none;
    // dies if the flags ask of a text what it has not.
    bool (*records)(const Flags& f, const ProbeBos& bos, const ProbeData& p, int T, int V,
                    ProbeInput* in);
    // Say what a file is, and what its keys ask for: look.h, directory.h.
    void (*look)(const std::string& path, const std::string& first, long size, Reader reader);
    FileKind (*kind_in_dir)(const std::string& dir, Reader reader);
    bool (*key)(const std::string& file, const std::string& key, const std::string& path,
                const Json& value);
    // Returns what ends a text by generation_config.json, or config.json, of a model of V ids, and
    // sets *first to the BOS if the first names one. Notes what it says of drawing tokens, which is
    // not done here.
    std::vector<int> (*generation)(const std::string& dir, int V, int* first);
};

// What it does with a model.
struct TextModel {
    // Returns the one token that --bos names, by default what the tokenizer puts before a text; -1
    // if that is none. And what a probe of text begins with: probe_data.h.
    long (*bos)(const Flags& f, const Tokenizer& tok, int V);
    ProbeBos (*probe_bos)(const Flags& f, int V);
    // Finds the --bos that the template of a model's tokenizer asks for: probe_data.h.
    OtherBos (*other_bos)(const Flags& f, int V);
    // Writes a text from the model of a run as it is now, in the log and, unless it is noise, on
    // the screen.
    void (*sample)(Run* r, long step);
};

// What open/ does with files.
struct OpenFiles {
    // Tells whether a path is another family's directory, or a GGUF file.
    bool (*is_theirs)(const std::string& path);
    // Dies if a directory holds a model in a form that is not read, as files in it say.
    void (*form_check)(const std::string& dir);
    // Opens it: what it says of its model, and its tensors.
    Checkpoint (*open)(const std::string& path);
    // Opens weights in several files, which an index names.
    Weights (*open_index)(const std::string& dir);
    // Returns the type of this name, NULL if there is none.
    const WeightType* (*number_type)(const std::string& name);
    // Returns a hint of what to give in place of a directory that is no checkpoint, or not there.
    std::string (*instead_of)(const std::string& path);
    // Takes the names of what a model was run in out of the names of its tensors.
    void (*unwrap)(Weights* w);
    // Dies unless the weight of the head is the embedding, as a config.json says.
    void (*lm_head_is_embedding)(const Weight& lm_head, const Weight* embedding);
    // Writes a model as the family that it was read as. Returns false if that no longer says it.
    bool (*written_as)(const Arch& arch, const std::vector<StOut>& ours, const Tokenizer& tok,
                       const std::string& tokenizer_path, ModelFile* file);
    // Returns how many more bytes the weights that stay in their file would take as floats.
    double (*floats_spared)(const Checkpoint& k);

    // Returns the one GGUF file in a directory, "" if there is none.
    std::string (*gguf_in)(const std::string& dir);
    // Returns such a file without its weights.
    std::string (*tokenizer_file)(const std::string& path);

    // Checks the rows of OPEN_ARCH and OPEN_POSITIONS.
    void (*settle)(ArchCheck* check);
    // Adds the object rope_scaling to a config.json of ours, and reads a value of it.
    void (*rope_write)(JsonObject* config, const Arch& arch);
    void (*rope_read)(const ArchRow& row, const Json& value, const std::string& where);
    // Stretches the angles of a rotation. Returns what rotated vectors are multiplied by.
    double (*rope_stretch)(const Arch& arch, double base, std::vector<double>* angles);
    // Returns the number of positions up to which a model is computed.
    long (*rope_limit)(const Arch& arch);
    // Names what replaces attention in some layers, "Mamba"; NULL: nothing does.
    const char* (*mixer)(const Arch& arch);
    // Names what a model has that only runs forward, "Mamba layers"; "" if all can be trained.
    std::string (*forward_only)(const Arch& arch);

    // Reads the tokenizer of a GGUF file.
    void (*tokenizer)(TokenizerBuild* t);
    // Make a step of a tokenizer. False: not known.
    bool (*normalizer)(const Json& component, Step* step);
    bool (*splitter)(const std::string& regex, Step* step);
};

// What it does with a model.
struct OpenModel {
    // Reads another family's weights by our names. What adds_bias has added stays as it is.
    void (*weights)(Model* m, const Checkpoint& k);
    // Counts the numbers that a layer without attention remembers of the tokens before.
    size_t (*remembered)(const Model* m);
};

// What flags of after/ add to the probe of one source at one length; unset: nothing.
struct ProbeMore {
    std::function<void(const Model* m, int l)> of_layer;         // is told of attention in layer l
    std::function<std::string(double eps)> ending;               // of the line of a threshold
    std::function<void(const Metrics& r, JsonObject* o)> report; // prints, and adds to the object
};

// What after/ does in the commands of others.
struct AfterModel {
    // Sets up what its flags ask of a run. anywhere: words may stand anywhere in names of tensors.
    void (*run)(Run* r, bool anywhere);
    // Dies if its flags ask what sequences of T tokens do not have.
    void (*probe_check)(const Flags& f, const Arch& arch, long T);
    // Returns what they add to a probe of sequences in (n, T + 1). first: to the first of several.
    ProbeMore (*probe)(Model* m, const Flags& f, const ProbeInput& in, int T, bool first);
};

extern const CpuFolder* const cpu_folder;        // NULL where cpu/ was deleted
extern const TextFolder* const text_folder;      // NULL where text/ was deleted
extern const TextModel* const text_model;
extern const OpenFiles* const open_files;        // NULL where open/ was deleted
extern const OpenModel* const open_model;
extern const AfterModel* const after_model;      // NULL where after/ was deleted

// Returns text/. Dies if it was deleted: what, a file or a flag, needs it.
const TextFolder& text_needed(const std::string& what);

// Returns a hint that needs text/: without it, it says so.
inline std::string with_text(const std::string& hint) {
    return text_folder ? hint : "where the folder text/ is: " + hint;
}

inline ProductChoice product_choice() {
    return cpu_folder ? cpu_folder->product() : ProductChoice();
}

// Returns which matrices may stay in their file.
inline Stay stays_wanted() { return cpu_folder ? cpu_folder->stays() : STAY_NONE; }

inline bool any_in_file() { return cpu_folder && cpu_folder->any_in_file(); }

// Returns all rows of weight (OC, C), or if it stays in its file some, good until the thread's next
// call.
template <class R> WeightRows<R> weight_rows(const R* weight, int C, int OC) {
    if constexpr (std::is_same<R, float>::value) {      // other types never stay in their file
        if (cpu_folder) { return cpu_folder->rows(weight, C, OC); }
    }
    return { weight, OC };
}
#endif // OPTIONAL_H
