"""fuzz_tokenizer.py BINARY TOKENIZER.json [COUNT] [SEED] [FILE.gguf] -- compare text/
with the `tokenizers` library on random strings. With FILE.gguf the library reads TOKENIZER.json
and text/ reads FILE.gguf (scripts/gguf_to_json.py makes the one from the other).

BINARY is dev/fuzz/tokenizer_ids.cpp compiled: g++ -std=c++17 -O2 -fopenmp, with
build/once/*/once.a, which `make binary` builds.
Compared: ids, decode with and without special tokens. Strings mix scripts, runs of spaces
and newlines, emoji, combining marks, look-alikes of special tokens, and pieces of the vocabulary.
"""
import json, os, random, subprocess, sys, tempfile
from tokenizers import Tokenizer

binary, path = sys.argv[1:3]
count = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 0)
ours = sys.argv[5] if len(sys.argv) > 5 else path
reference = Tokenizer.from_file(path)
spec = json.load(open(path))
vocab = [reference.decoder.decode([v]) if reference.decoder else v
         for v in list(spec['model']['vocab'])[::7]]
added = [a['content'] for a in spec['added_tokens']]
blocks = [(0x20, 0x7e), (0xa0, 0x17f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff),
          (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0xb80, 0xbff),
          (0xe00, 0xe7f), (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2070, 0x218f),
          (0x2190, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff),
          (0xac00, 0xd7a3), (0xf900, 0xfaff), (0xfb00, 0xfdff), (0xfe00, 0xffff),
          (0x10000, 0x10ffff), (0x1d100, 0x1d7ff), (0x1f300, 0x1faff), (0x2f800, 0x2fa1f)]
ends = ["'s", "'S", "'ll", "'LL", "'re", "'ve", "'\u017f", "\u2019s", "'", "''s", "\r\n", "\n\n",
        "\n", "\r", "\t", "\x00", "\x1c", "\x85", "\u2028", "\u00a0", "\u3000", "\u200d",
        "\ufeff", "\u180e", "e\u0301", "\u212b", "\u0344", "\u1100\u1161\u11a8", "\uac00\u11a8",
        "\u0915\u093c", "\u2581", "\u2581\u2581", "<0x41>", "<s>", "</s>", "<s", "<|endoftext",
        "<|endoftext|>", "|>", "<unk>", "123", "4567", "\u00bd", "\u0661\u0662", "\u2167", "👨‍👩‍👧",
        "🇨🇭", "\U000e0001", "\ue000", "\ufffd", "\U0010ffff"]

def char():
    lo, hi = rng.choice(blocks)
    c = rng.randint(lo, hi)
    return 'x' if 0xd800 <= c < 0xe000 else chr(c)

def part():
    k = rng.randrange(11)
    if k == 0: return ' ' * rng.choice([1, 1, 2, 3, 4, 5, 8, 23, 24, 25, 26, 48, 49])
    if k == 1: return rng.choice(ends)
    if k == 2: return ''.join(char() for _ in range(rng.randint(1, 6)))
    if k == 3: return char() * rng.randint(1, 80)
    if k == 4: return rng.choice(added) if added else ''
    if k == 5: a = rng.choice(added) if added else ' '; return a[:rng.randint(0, len(a))]
    if k == 6: return rng.choice(vocab)
    if k == 7: return ' ' + rng.choice(vocab)
    if k == 8: return ''.join(rng.choice(' \n\t\r') for _ in range(rng.randint(1, 6)))
    if k == 9:
        lo, hi = rng.choice(blocks[:20])
        return ''.join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 20)))
    return rng.choice(['the', ' the', 'The', ' of', 'def f(x):', '    return', '==', '!=', '...',
                       '----', ' "', '(', ').'])

strings = [''.join(part() for _ in range(rng.randint(1, 9))) for _ in range(count)]
bad = 0
for specials in (False, True):
    with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as f:
        f.write('\n'.join(json.dumps(s) for s in strings) + '\n'); f.flush()
        out = subprocess.run([binary, ours] + ['specials'] * specials, stdin=open(f.name),
                             capture_output=True, check=True).stdout.decode().split('\n')
    for s, line in zip(strings, out):
        got = json.loads(line)
        ids = reference.encode(s, add_special_tokens=specials).ids
        want = dict(ids=ids, text=reference.decode(ids, skip_special_tokens=False),
                    skipped=reference.decode(ids, skip_special_tokens=True))
        for key in want:
            if got[key] != want[key]:
                bad += 1
                if bad <= 10: print(key, json.dumps(s), 'got', got[key], 'wanted', want[key])
print(f'{os.path.basename(os.path.dirname(path))}: {count} strings, {sum(map(len, strings))} '
      f'characters, ids and decode, with and without template: {bad} mismatches')
sys.exit(bad > 0)
