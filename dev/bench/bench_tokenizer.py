"""bench_tokenizer.py BINARY TOKENIZER.json TEXT... -- text/ against `tokenizers`
and `tiktoken`, one thread, ids compared first.

TEXT: .txt, .jsonl.zst or a folder of sources; cut into documents of about 10 kB. tiktoken gets
the ranks of the same vocabulary (byte-level BPE whose merges are in the order of their ids),
so that all three do the same work; its ids may differ where the tokenizer has more than BPE (NeoX's
runs of spaces, NFC). CPU seconds, best of the rounds, the three in turn. Also the worst cases:
1 MB and 4 MB of one thing; the time per byte must not grow.
"""
import array, glob, json, os, subprocess, sys, tempfile, time
os.environ['TOKENIZERS_PARALLELISM'] = 'false'
from tokenizers import Tokenizer
import tiktoken

binary, path = sys.argv[1:3]
hf = Tokenizer.from_file(path)
spec = json.load(open(path))
keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
chars = {chr(b): b for b in keep}
chars.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in keep)})
ranks = {}
for token, i in sorted(spec['model']['vocab'].items(), key=lambda x: x[1]):
    if all(c in chars for c in token) and token not in [a['content'] for a in spec['added_tokens']]:
        ranks[bytes(chars[c] for c in token)] = i
for b in range(256): ranks.setdefault(bytes([b]), 10 ** 6 + b)   # NeoX lacks 13 bytes
tt = tiktoken.Encoding(
    'same', pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    mergeable_ranks=ranks, special_tokens={})

def documents(source, limit=8_000_000, size=10_000):
    if os.path.isdir(source):
        files = [f for end in ('py', 'h')
                 for f in glob.glob(f'{source}/**/*.{end}', recursive=True)]
        texts = [open(f, errors='replace').read() for f in sorted(files)]
    elif source.endswith('.zst'):
        texts = [json.loads(l)['text'] for l in subprocess.run([
            'zstd', '-dqc', source], capture_output=True).stdout.decode().split('\n') if l]
    else:
        texts = [open(source, errors='replace').read()]
    out, total = [], 0
    for text in texts:
        i = 0
        while i < len(text) and total < limit:
            e = text.find('\n', i + size) + 1 or len(text)
            out.append(text[i:e]); total += e - i; i = e
    return out

def ours(docs, ids=None):
    with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as f:
        f.write('\n'.join(json.dumps(d) for d in docs)); f.flush()
        return json.loads(subprocess.run([binary, path, f.name] + ([ids] if ids else []),
                                         capture_output=True, check=True).stdout)

def timed(encode, docs):
    start = time.process_time()
    for d in docs: encode(d)
    return time.process_time() - start

for source in sys.argv[3:]:
    docs = documents(source)
    mb = sum(len(d.encode()) for d in docs) / 1e6
    with tempfile.NamedTemporaryFile() as f:
        ours(docs, f.name)
        got = array.array('i'); got.frombytes(open(f.name, 'rb').read())
    want = array.array('i')
    for d in docs: want.extend(hf.encode(d, add_special_tokens=False).ids); want.append(-1)
    assert got == want, f'{source}: ids differ'
    fast = lambda d: hf.encode_batch_fast([d], add_special_tokens=False)
    best = dict(ours=1e9, hf=1e9, hf_fast=1e9, tiktoken=1e9)
    for _ in range(3):
        best['ours'] = min(best['ours'], ours(docs)['seconds'])
        best['hf'] = min(best['hf'], timed(lambda d: hf.encode(d, add_special_tokens=False), docs))
        best['hf_fast'] = min(best['hf_fast'], timed(fast, docs))
        best['tiktoken'] = min(best['tiktoken'], timed(tt.encode_ordinary, docs))
    print(f"{os.path.basename(source.rstrip('/'))}: {len(docs)} documents, {mb:.1f} MB, "
          f"{len(got) - len(docs)} ids equal | "
          + ' | '.join(f"{k} {mb / v:.1f} MB/s" for k, v in best.items())
          + ' | ratio ' + ', '.join(f"{k} {best[k] / best['ours']:.1f}"
                                    for k in ('hf', 'hf_fast', 'tiktoken')), flush=True)

for name, unit in (('one letter', 'a'), ('spaces', ' '), ('=', '='), ('CJK', '中文字符没有空格的一段话很长'),
                   ('newlines', '\n'), ('digits', '7'), ('combining', 'e\u0323\u0301'),
                   ('random letters', None)):
    import random
    rng = random.Random(0)
    size, letters = 4_000_000, 'abcdefghijklmnopqrstuvwxyz'
    if unit is None: text = ''.join(rng.choice(letters) for _ in range(size))
    else: text = unit * (size // len(unit.encode()))
    one, four = ours([text[:len(text) // 4]]), ours([text])
    print(f"worst case, {name}: 1 MB at {one['bytes'] / 1e6 / one['seconds']:.1f} MB/s, "
          f"4 MB at {four['bytes'] / 1e6 / four['seconds']:.1f} MB/s", flush=True)
