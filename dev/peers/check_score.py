"""Does `train_sink score` give the numbers of lm-evaluation-harness? Tiny random
models with a tokenizer of their own, data in the format of each task's data set,
the harness' own tasks on one side, scripts/tasks.py and train_sink on the other:
the log-likelihood of every request, every accuracy, every perplexity.

    python3 dev/peers/check_score.py BINARY [MODEL..]     (needs lm-eval 0.4.13, torch, transformers;
                                                    --speed DIR FILE: items a second)
    python3 dev/peers/check_score.py --save DIR           the models, tasks and answers of test/after/score
"""
import json, logging, os, random, statistics, subprocess, sys, tempfile, time

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
import tokenizers as tk, torch, transformers as tf
import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.tasks import TaskManager

WORDS = ("the a of and to in he she it was that his her with for on at by door river stone light "
         "house Émile naïve 12 1905 café "
         "running quickly slowly opened closed took gave said [step] [title] Köln don't we'll — "
         "...").split()


def sentence(rng, least, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def data(rng, n):
    """records of every task, with what is odd about real ones: double blanks, brackets,
    empty endings of contexts, no word"""
    s = lambda a, b: sentence(rng, a, b)
    for i in range(n):
        label = rng.randint(0, 3)
        yield "hellaswag", {"ind": i, "activity_label": s(1, 3), "ctx_a": s(5, 30) + ".",
                            "ctx_b": "" if i % 5 == 0 else s(1, 4),
                            "endings": [s(1, 8) + "  ." for _ in range(4)], "label": str(label)}
        names = ["A", "B", "C", "D", "E"][:3 + i % 3] if i % 2 else ["1", "2", "3", "4"]
        yield "arc_easy", {"id": str(i), "question": s(3, 20) + "?", "answerKey": rng.choice(names),
                           "choices": {"text": [s(1, 5) for _ in names], "label": names}}
        yield "piqa", {"goal": s(2, 25), "sol1": s(1, 9), "sol2": s(1, 9), "label": label % 2}
        yield "winogrande", {"sentence": s(2, 9) + " _ " + s(1, 8) + " .", "option1": "Ann",
                             "option2": "the river", "answer": str(1 + label % 2)}
        yield "lambada_openai", {"text": s(4, 60) + ("\n" if i % 4 == 0 else "") + " "
                                 + rng.choice(["door", "café", "rivers"])}
        yield "wikitext", {"page": f" = {s(1, 3)} = \n \n "
                           + " , ".join(s(3, 9) for _ in range(2 + i % 4)) + f" @-@ {s(1, 3)} . \n"}


OURS = {"hellaswag": "hellaswag", "arc_easy": "arc", "piqa": "piqa", "winogrande": "winogrande",
        "lambada_openai": "lambada", "wikitext": "wikitext"}


def bpe(kind):
    """a tokenizer of a few hundred ids: byte-level as GPT-2's, or words with a mark for the blank
    and BOS in front as LLaMA's"""
    rng = random.Random(5)
    text = [sentence(rng, 20, 60) for _ in range(200)] + ["".join(map(chr, range(32, 127))) + "\n"]
    if kind == "gpt2":
        t = tk.Tokenizer(tk.models.BPE())
        t.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = tk.decoders.ByteLevel()
        trainer = tk.trainers.BpeTrainer(vocab_size=330,
                                         initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(),
                                         special_tokens=["<|endoftext|>"])
        names = dict(eos_token="<|endoftext|>")
    else:
        t = tk.Tokenizer(tk.models.BPE(unk_token="<unk>", fuse_unk=True))
        t.normalizer = tk.normalizers.Sequence([tk.normalizers.Prepend("▁"),
                                                tk.normalizers.Replace(" ", "▁")])
        # or tokens would span words, and a continuation have none
        t.pre_tokenizer = tk.pre_tokenizers.Split("▁", "merged_with_next")
        trainer = tk.trainers.BpeTrainer(vocab_size=220, special_tokens=["<unk>", "<s>", "</s>"])
        names = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    t.train_from_iterator(text, trainer)
    if kind == "llama":
        t.post_processor = tk.processors.TemplateProcessing(single="<s> $A",
                                                            special_tokens=[("<s>", 1)])
        t.decoder = tk.decoders.Sequence([tk.decoders.Replace("▁", " "), tk.decoders.Fuse(),
                                          tk.decoders.Strip(" ", 1, 0)])
    return tf.PreTrainedTokenizerFast(tokenizer_object=t, **names)


MANAGER = TaskManager()
MODELS = {
    "gpt2": tf.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=72, n_inner=24),
    "llama": tf.LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2,
                            max_position_embeddings=64),
    "mistral": tf.MistralConfig(hidden_size=24, intermediate_size=24, num_hidden_layers=2,
                                num_attention_heads=4, num_key_value_heads=2,
                                max_position_embeddings=96, sliding_window=11),
    "gemma2": tf.Gemma2Config(hidden_size=24, intermediate_size=24, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2,
                              head_dim=10, max_position_embeddings=96, sliding_window=11),
}


def build(name):
    tokenizer = bpe("gpt2" if name == "gpt2" else "llama")
    config = MODELS[name]
    config.vocab_size = len(tokenizer)
    config.bos_token_id, config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    torch.manual_seed(1)
    model = tf.AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                                dtype=torch.float32).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p)
                    * (0.3 if p.dim() == 1 else 1.0 / p.shape[-1] ** 0.5) + float(p.dim() == 1))
    return model, tokenizer


def harness_task(name, path):
    """the harness' own task, reading our file"""
    entry = MANAGER._entry(name)
    split = "test" if name in ("lambada_openai", "arc_easy", "wikitext") else "validation"
    return dict(load_yaml(entry.yaml_path), dataset_path="json", dataset_name=None,
                training_split=None,
                dataset_kwargs={"data_files": {split: path}},
                **{s: None for s in ("validation_split", "test_split") if split not in s})


def harness(model, tokenizer, raw):
    """task -> (list of log-likelihoods of each item, metrics), by the harness'
    own tasks on our files"""
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4)
    r = lm_eval.simple_evaluate(model=lm,
                                tasks=[harness_task(task, path) for task, path in raw.items()],
                                log_samples=True, bootstrap_iters=10, verbosity="ERROR")
    out = {}
    for task in raw:
        samples = sorted(r["samples"][task], key=lambda s: s["doc_id"])
        items = [[x[0][0] if isinstance(x[0], (tuple, list)) else x[0] for x in s["resps"]]
                 for s in samples]
        out[task] = items, {k.split(",")[0]: v for k, v in r["results"][task].items()
                            if k.endswith(",none") and v != "N/A"}
    return out


def convert(raw, d):
    paths = {}
    for task, path in raw.items():
        paths[task] = os.path.join(d, task + ".jsonl")
        with open(paths[task], "w") as f:
            subprocess.run([sys.executable, os.path.join(HERE, "scripts/tasks.py"), OURS[task],
                            path], stdout=f, check=True)
    return paths


def ours(binary, model, paths, d, *flags):
    items, json_file = os.path.join(d, "items.jsonl"), os.path.join(d, "score.json")
    r = subprocess.run([binary, "score", model, "--task", ",".join(paths.values()), "--items",
                        items, "--json", json_file, *flags],
                       capture_output=True, text=True)
    if r.returncode:
        return r.stderr.strip(), None
    out = {task: ([], {}) for task in paths}
    of = {path: task for task, path in paths.items()}
    for line in open(items):
        one = json.loads(line)
        out[of[one["task"]]][0].append(one["loglik"])
    for one in json.load(open(json_file))["tasks"]:
        out[of[one["task"]]][1].update(one)
    return None, out


def compare(want, got):
    bad, worst = [], 0.0
    for task, (items, metrics) in want.items():
        theirs, mine = items, got[task][0]
        if [len(x) for x in theirs] != [len(x) for x in mine]:
            bad.append(f"{task}: other numbers of requests")
            continue
        far = max(abs(a - b) / max(1, abs(a)) for x, y in zip(theirs, mine) for a, b in zip(x, y))
        worst = max(worst, far)
        if not far < 2e-5:
            bad.append(f"{task}: a log-likelihood is {far:.2g} away")
        for k, v in metrics.items():
            name = k.replace("_stderr", "")
            if k.endswith("_stderr") and name not in ("acc", "acc_norm"):
                continue  # of a perplexity the harness draws it by lot
            if k not in got[task][1] or abs(v - got[task][1][k]) > 2e-5 * max(1, abs(v)):
                bad.append(f"{task}: {k} is {got[task][1].get(k)}, wanted {v}")
    return bad, worst


def raw_files(d, n, seed=3):
    raw = {}
    for task, record in data(random.Random(seed), n):
        raw.setdefault(task, os.path.join(d, task + ".raw.jsonl"))
        with open(raw[task], "a") as f:
            f.write(json.dumps(record, ensure_ascii=False) + "\n")
    return raw


def save(out):
    shared = os.path.join(out, "raw")
    os.makedirs(shared, exist_ok=True)
    raw = raw_files(shared, 6)
    convert(raw, out)
    for name in ("gpt2", "llama"):
        d = os.path.join(out, name)
        model, tokenizer = build(name)
        model.save_pretrained(d)
        tokenizer.save_pretrained(d)
        os.remove(os.path.join(d, "generation_config.json"))
        answers = {t: {"loglik": i, **m} for t, (i, m) in harness(model, tokenizer, raw).items()}
        json.dump(answers, open(os.path.join(d, "answers.json"), "w"))


def speed(binary, directory, path, batch=8, turns=3):
    """items a second of both on a task's raw file (HellaSwag), in turn; run it on a quiet machine.
    Ours with start and loading; of the harness its log-likelihoods alone, which is all but loading
    and preparing a task"""
    model = tf.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tokenizer = tf.AutoTokenizer.from_pretrained(directory)
    n, seconds = sum(1 for _ in open(path)), {"harness": [], "ours": []}
    with tempfile.TemporaryDirectory() as d:
        task = convert({"hellaswag": path}, d)["hellaswag"]
        for _ in range(turns):
            lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch)
            plain = lm.loglikelihood

            def loglikelihood(*words, **named):
                begin = time.time()
                answer = plain(*words, **named)
                seconds["harness"].append(time.time() - begin)
                return answer

            lm.loglikelihood = loglikelihood
            lm_eval.simple_evaluate(model=lm, tasks=[harness_task("hellaswag", path)],
                                    bootstrap_iters=10, verbosity="ERROR")
            begin = time.time()
            subprocess.run([binary, "score", directory, "--task", task], check=True,
                           capture_output=True)
            seconds["ours"].append(time.time() - begin)
            print(f"harness, batch {batch}: {n / seconds['harness'][-1]:.2f} items/s; "
                  f"ours: {n / seconds['ours'][-1]:.2f}", flush=True)
    ratios = [a / b for a, b in zip(seconds["harness"], seconds["ours"])]
    print(f"median of {turns} turns: {statistics.median(ratios):.2f} times as many")


if __name__ == "__main__":
    tf.logging.set_verbosity_error()
    tf.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    if sys.argv[1] == "--save":
        sys.exit(save(sys.argv[2]))
    if sys.argv[1] == "--speed":
        sys.exit(speed(*sys.argv[2:5]))
    torch.set_num_threads(1)
    failed, names = 0, sys.argv[2:] or list(MODELS)
    for name in names:
        with tempfile.TemporaryDirectory() as d:
            model, tokenizer = build(name)
            model.save_pretrained(os.path.join(d, "m"))
            tokenizer.save_pretrained(os.path.join(d, "m"))
            raw = raw_files(d, 25)
            error, got = ours(sys.argv[1] + ("-softcap" if name == "gemma2" else ""),
                              os.path.join(d, "m"), convert(raw, d), d)
            bad, worst = ([error], 0) if error else compare(harness(model, tokenizer, raw), got)
            failed += bool(bad)
            print(f"{name:10s} {'; '.join(bad) or f'agrees, log-likelihoods to {worst:.1g}'}",
                  flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
