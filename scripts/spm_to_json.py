#!/usr/bin/env python3
"""spm_to_json.py tokenizer.model [legacy|first] > tokenizer.json -- a SentencePiece BPE
model in Hugging Face's form.

For every piece and every cut with both halves in the vocabulary there is a merge
with the piece's score. Within a piece they are ordered by (left id, right id);
then all stably by (score, characters left, characters right), largest first. legacy:
the normalizer puts U+2581 before every stretch of text; first: only before the start (newer files).
"""
import json, struct, sys

def varint(b, i):
    v = shift = 0
    while True:
        v |= (b[i] & 127) << shift; shift += 7; i += 1
        if b[i - 1] < 128:
            return v, i

def fields(b):
    i = 0
    while i < len(b):
        tag, i = varint(b, i)
        kind = tag & 7
        if kind == 0:
            v, i = varint(b, i)
        elif kind == 2:
            n, i = varint(b, i)
            v, i = b[i:i + n], i + n
        else:
            n = 4 if kind == 5 else 8
            v, i = b[i:i + n], i + n
        yield tag >> 3, v

pieces = []
for number, value in fields(open(sys.argv[1], 'rb').read()):
    if number == 1:
        f = dict(fields(value))
        pieces.append((f[1].decode(), struct.unpack('<f', f[2])[0] if 2 in f else 0.0, f.get(3, 1)))
vocab = {p: i for i, (p, _, _) in enumerate(pieces)}
merges = []
for p, score, _ in pieces:
    cuts = [(p[:k], p[k:]) for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab]
    merges += [(score, a, b) for a, b in sorted(cuts, key=lambda c: (vocab[c[0]], vocab[c[1]]))]
merges.sort(key=lambda m: (m[0], len(m[1]), len(m[2])), reverse=True)
legacy = (sys.argv + ['legacy'])[2] == 'legacy'
block = '\u2581'
added = [dict(id=i, content=p, single_word=False, lstrip=False, rstrip=False, normalized=False,
              special=True)
         for i, (p, _, kind) in enumerate(pieces) if kind in (2, 3)]
bos = {'SpecialToken': {'id': '<s>', 'type_id': 0}}
seq = lambda x: {'Sequence': {'id': x, 'type_id': 0}}
normalizer, pre_tokenizer = None, None
if legacy:
    normalizer = dict(type='Sequence', normalizers=[
        dict(type='Prepend', prepend=block),
        dict(type='Replace', pattern={'String': ' '}, content=block)])
else:
    pre_tokenizer = dict(type='Metaspace', replacement=block, prepend_scheme='first', split=False)
json.dump(dict(
    version='1.0', truncation=None, padding=None, added_tokens=added,
    normalizer=normalizer, pre_tokenizer=pre_tokenizer,
    post_processor=dict(type='TemplateProcessing',
                        single=[bos, seq('A')], pair=[bos, seq('A'), bos, seq('B')],
                        special_tokens={'<s>': dict(id='<s>', ids=[vocab['<s>']], tokens=['<s>'])}),
    decoder=dict(type='Sequence', decoders=[
        dict(type='Replace', pattern={'String': block}, content=' '), dict(type='ByteFallback'),
        dict(type='Fuse'), dict(type='Strip', content=' ', start=1, stop=0)]),
    model=dict(type='BPE', dropout=None, unk_token='<unk>', continuing_subword_prefix=None,
               end_of_word_suffix=None, fuse_unk=True, byte_fallback=True, ignore_merges=False,
               vocab=vocab, merges=[f'{a} {b}' for _, a, b in merges])), sys.stdout)
