"""check_shards.py DIR TOKENIZER.json FILE.jsonl[.zst]... [--sample N] -- are the documents in DIR's
train shards those of the files?

DIR: made by `train_sink tokenize FILE...` in one series. Shards are cut at EOS,
N documents at random positions are encoded with the `tokenizers` library and compared id for id;
the number of documents must agree.
"""
import glob, json, random, subprocess, sys
import numpy as np
from tokenizers import Tokenizer

args = sys.argv[1:]
sample = 1000
if '--sample' in args:
    k = args.index('--sample'); sample = int(args[k + 1]); del args[k:k + 2]
out, tok = args[0], Tokenizer.from_file(args[1])
manifest = json.load(open(out + '/manifest.json'))
parts = []
for path in sorted(glob.glob(out + '/train_*.bin')):
    head = np.fromfile(path, np.int32, 3)
    ids = np.memmap(path, np.uint16 if head[0] == 20240520 else np.uint32, 'r', 1024)
    assert len(ids) == head[2], path
    parts.append(np.asarray(ids))
ids = np.concatenate(parts)
ends = np.flatnonzero(ids == manifest['eos'])
texts = []
for path in args[2:]:
    data = subprocess.run(['zstd', '-dqc', path], capture_output=True,
                          check=True).stdout if path.endswith('.zst') else open(path, 'rb').read()
    texts += [json.loads(line)['text'] for line in data.decode().split('\n') if line]
assert len(ends) == len(texts) == manifest['documents'], (len(ends), len(texts),
                                                          manifest['documents'])
starts = np.concatenate([[0], ends[:-1] + 1])
chosen = random.Random(0).sample(range(len(texts)), min(sample, len(texts)))
total = 0
for k in chosen:
    want = tok.encode(texts[k], add_special_tokens=False).ids
    assert np.array_equal(ids[starts[k]:ends[k]], want), f'document {k} differs'
    total += len(want)
print(f'{out}: {len(texts)} documents, {len(ids)} tokens; {len(chosen)} documents ({total} tokens) '
      'equal the library')
