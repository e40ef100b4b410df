"""Does llama.cpp compute what train_sink writes for it? Small models of its families (those of
test/open/families, and tiny runs of our own switches and tokenizers) are exported, written by
scripts/to_gguf.py and opened by llama-cpp-python. Compared: the loss of 4 sequences (1e-3, keys and values kept in fp32),
the ids that follow three prompts, taken greedily (the same), the ids of the golden strings of a
tokenizer, and what train_sink itself measures of the file (the same bits, for f32).

    python3 dev/peers/check_gguf.py [NAME..]      all, or the cases whose names begin so
                makes the builds it needs (needs llama-cpp-python, gguf, safetensors, numpy). One that was built by
                cmake alone is found by LLAMA_CPP_LIB_PATH
"""
import ctypes, json, os, sys, tempfile
import numpy as np
import llama_cpp as lib

import shards
from builds import ROOT, binary, each_once, run
T, N, V, NEW = 32, 4, 29, 10
SIZE = ("--bb-vocab 28 --layers 2 --heads 4 --kv-heads 2 --width 32 --ffn-width 64 --seq 32 "
        "-b 8 --steps 12 --lr 0.03 --warmup 5 --eval-every 0 --sample 0 --val-seqs 8 "
        "--probe-seqs 4 --probe-len 16")
FAMILIES = ("falcon_40b falcon_7b gemma granite gpt2 gpt2_untied gpt_neox llama_llama3 llama_yarn olmo2 "
            "phi qwen2 qwen3 stablelm").split()
# name: (switches, flags), a run of our own
RUNS = {
    "llama": ("", ""),
    "biases": ("", "--qkv-bias 1 --out-bias 1 --ffn-bias 1 --tied 1"),
    "head-dim": ("", "--head-dim 12 --rope-base 300 --norm-eps 0.01"),
    "linear": ("", "--rope-scaling linear --rope-factor 3"),
    "llama3": ("", "--rope-scaling llama3 --rope-factor 8 --rope-context 16 --rope-base 500"),
    "qwen3": ("QKNORM=head", "--tied 1 --head-dim 12"),
    "olmo2": ("QKNORM=all NORM=branch", ""),
    "smollm3": ("", "--layers 5 --rope-layers 1110"),
    "gemma": ("FFN=geglu_tanh", "--embed-scale 5.656854249 --tied 1"),
    "gemma2": ("ATTN=softcap NORM=sandwich FFN=geglu_tanh",
               "--embed-scale 5.656854249 --tied 1 --window 9 --local-layers 10 --attn-cap 3 "
               "--logit-cap 4"),
    "gemma3": ("QKNORM=head NORM=sandwich FFN=geglu_tanh",
               "--layers 7 --embed-scale 5.656854249 --tied 1 --window 9 --local-layers 1111101 "
               "--rope-local 10000 --rope-scaling linear --rope-factor 2"),
    "phi3": ("", "--rope-part 0.5 --head-dim 8"),
    "stablelm": ("", "--norm-kind ln --rope-part 0.5"),
    "neox": ("FFN=gelu", "--norm-kind ln --qkv-bias 1 --out-bias 1 --ffn-bias 1 --kv-heads 4 "
                         "--rope-part 0.5 --parallel 1"),
    "gpt2": ("FFN=gelu_tanh PE=learnable", "--norm-kind ln --qkv-bias 1 --out-bias 1 --ffn-bias 1 "
                                           "--kv-heads 4"),
    "bloom": ("FFN=gelu_tanh PE=alibi", "--norm-kind ln --qkv-bias 1 --out-bias 1 --ffn-bias 1 "
                                        "--kv-heads 4 --norm-embed 1 --tied 1"),
    "bloom-6": ("FFN=gelu_tanh PE=alibi", "--norm-kind ln --qkv-bias 1 --out-bias 1 --ffn-bias 1 "
                                          "--heads 6 --kv-heads 6 --width 36 --norm-embed 1 "
                                          "--tied 1 --alibi-slopes published"),
    "granite": ("", "--tied 1 --embed-scale 3 --residual-scale 0.22 --logit-divisor 6 "
                    "--score-scale 0.3"),
    "f16": ("", "--type f16"), "bf16": ("", "--type bf16"), "q8_0": ("", "--type q8_0"),
}
# name: a tokenizer in test/vectors
WORDS = {"bytes": "", "gpt2-words": "gpt2", "llama3-words": "llama3", "neox-words": "neox",
         "llama2-words": "llama2"}


class Llama:
    """A GGUF file in llama.cpp, without rounding of keys and values."""

    def __init__(self, path):
        self.model = lib.llama_model_load_from_file(path.encode(),
                                                    lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError("llama.cpp does not open it")
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = 256, 256, 256
        params.type_k = params.type_v = lib.GGML_TYPE_F32
        params.n_threads = params.n_threads_batch = 1
        self.context = lib.llama_init_from_model(self.model, params)
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.size = lib.llama_vocab_n_tokens(self.vocab)

    def close(self):
        lib.llama_free(self.context)
        lib.llama_model_free(self.model)

    def logits(self, ids):
        """of all tokens of a sequence, in double"""
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        batch = lib.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.logits[i] = int(token), i, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        if lib.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        rows = [np.ctypeslib.as_array(lib.llama_get_logits_ith(self.context, i), (self.size,)).copy()
                for i in range(len(ids))]
        lib.llama_batch_free(batch)
        return np.array(rows, np.float64)

    def loss(self, ids):
        x = self.logits(ids[:-1])
        x -= x.max(1, keepdims=True)
        return (np.log(np.exp(x).sum(1)) - x[np.arange(len(x)), ids[1:]]).mean()

    def greedy(self, ids, n):
        ids = list(ids)
        for _ in range(n):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids[-n:]

    def encode(self, text):
        data, room = text.encode(), len(text.encode()) + 16
        out = (lib.llama_token * room)()
        n = lib.llama_tokenize(self.vocab, data, len(data), out, room, False, True)
        return list(out[:n])


def probe(program, checkpoint, d):
    out = os.path.join(d, "probe.json")
    run(program, "probe", checkpoint, "-d", d, "--probe-len", T, "--probe-seqs", N,
        "--per-sequence", "--json", out)
    said = json.load(open(out))
    return {k: said[k] for k in ("probe_loss", "alpha", "h_norm_first", "h_norm_rest")}


def written(program, checkpoint, d, flags=()):
    """The path of a GGUF file of a checkpoint, by way of an exported directory."""
    directory, out = os.path.join(d, "exported"), os.path.join(d, "m.gguf")
    run(program, "export", checkpoint, "-o", directory)
    run(sys.executable, os.path.join(ROOT, "scripts", "to_gguf.py"), directory, out, *flags)
    return out


def numbers(program, checkpoint, d, flags=()):
    """What a file of a model whose tokens are ids differs in, and what to tell of it."""
    tokens = np.random.default_rng(3).integers(0, V, (N + 1) * T + 1)
    shards.write(d, tokens)
    out = written(program, checkpoint, d, flags)
    ours, again, bad = probe(program, checkpoint, d), probe(program, out, d), []
    if not flags and ours != again:
        bad.append("read back, train_sink measures something else")
    model = Llama(out)
    far = abs(np.mean([model.loss(tokens[i * T:i * T + T + 1]) for i in range(N)])
              - again["probe_loss"])
    if not far < 1e-3:
        bad.append(f"the loss is {far:.2g} away")
    same = 0
    for at, n in ((3, 9), (40, 4), (70, 12)):
        prompt = tokens[at:at + n].tolist()
        text = run(program, "generate", out, "--temperature", 0, "--tokens", NEW, "--prompt",
                   " ".join(map(str, prompt)))
        mine = [int(w) for w in text.split()][-NEW:]
        same += mine == model.greedy(prompt, NEW)
    if same < 3:
        bad.append(f"{3 - same} of 3 prompts go on otherwise")
    model.close()
    return bad, f"loss {again['probe_loss']:.4f}, {far:.1e} away"


def tokenizer(path, d):
    """a directory with this tokenizer.json and an end of documents, which some do not name"""
    at = os.path.join(d, "words")
    os.makedirs(at)
    whole = json.load(open(os.path.join(ROOT, path + ".json")))
    json.dump(whole, open(os.path.join(at, "tokenizer.json"), "w"))
    json.dump({"eos_token": whole["added_tokens"][-1]["content"]} if "llama3" in path else {},
              open(os.path.join(at, "tokenizer_config.json"), "w"))
    return at


def words(program, name, d):
    """Has the vocabulary in the file the ids of the tokenizer?"""
    path = os.path.join("test", "vectors", WORDS[name])
    text = os.path.join(d, "text.txt")
    open(text, "w").write("".join(f"{i % 7} and {i * i % 11}, " for i in range(4000)))
    more = ["--tokenizer", tokenizer(path, d)] if WORDS[name] else []
    run(program, "train", "-o", os.path.join(d, "run"), *SIZE.split()[2:], "-d", text, *more)
    out = written(program, os.path.join(d, "run", "step_12"), d)
    model, wrong, lines = Llama(out), 0, []
    if WORDS[name]:
        lines = [json.loads(l) for l in open(os.path.join(ROOT, path + ".jsonl"))]
    else:
        lines = [{"text": t, "ids": list(t.encode())} for t in ("it's 12", "caf\u00e9\n\n  x", "\t")]
    lines = [l for l in lines if l.get("text") and "ids" in l]
    for l in lines:
        wrong += model.encode(l["text"]) != l["ids"]
    prompt = "3 and 9, 4 and 5"
    mine = run(program, "generate", out, "--temperature", 0, "--tokens", NEW, "--prompt", prompt)
    theirs = b"".join(piece(model, i) for i in model.greedy(model.encode(prompt), NEW)).decode()
    bad = [] if mine.rstrip("\n").endswith(theirs) else [f"{mine!r} here, {theirs!r} there"]
    model.close()
    # llama.cpp leaves the normal form C out
    if wrong > (len(lines) * 0.1 if name == "neox-words" else 0):
        bad.append(f"{wrong} of {len(lines)} strings have other ids")
    return bad, f"{len(lines)} strings, {wrong} otherwise"


def piece(model, token):
    room = ctypes.create_string_buffer(64)
    n = lib.llama_token_to_piece(model.vocab, token, room, 64, 0, True)
    return room.raw[:n]


def check(name, own):
    with tempfile.TemporaryDirectory() as d:
        if name in WORDS:
            return words(binary(""), name, d)
        if name in FAMILIES and not own:
            return numbers(binary(""), os.path.join("test", "open", "families", name), d)
        switches, flags = RUNS[name]
        program = binary(switches)
        stored = flags.split() if flags.startswith("--type") else []
        run(program, "train", "-o", os.path.join(d, "run"),
            *each_once(SIZE.split() + ([] if stored else flags.split())))
        return numbers(program, os.path.join(d, "run", "step_12"), d, stored)


if __name__ == "__main__":
    os.chdir(ROOT)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    quiet = lib.llama_log_callback(lambda *_: None)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    cases = [*FAMILIES, *["run-" + n for n in RUNS], *WORDS]
    wanted = [n for n in cases if not sys.argv[1:] or any(n.startswith(w) for w in sys.argv[1:])]
    failed = 0
    for case in wanted:
        try:
            bad, told = check(case.replace("run-", ""), case.startswith("run-"))
        except RuntimeError as e:
            bad, told = [str(e)], ""
        failed += bool(bad)
        print(f"{case:22s} {'; '.join(bad) or 'agrees'}   {told}", flush=True)
    print(f"{len(wanted) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
