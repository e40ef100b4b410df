#!/usr/bin/env python3
"""tiktoken_to_json.py RANKS.tiktoken [id=name ...] > tokenizer.json -- tiktoken ranks in Hugging
Face's form, with LLaMA-3's splitter; or tekken.json, Mistral's form, with its own.

RANKS has lines `base64(token) rank`. In tekken.json the special tokens have the first ids, the
others follow in the order of their ranks, and a text begins with <s>. A special token that it has
no name for is <SPECIAL_id>. For every token and every cut with both halves in the
vocabulary there is a merge; they are ordered by the token's rank, then by the ranks of the halves.
ignore_merges: a piece that is a token is that token.
"""
import base64, json, sys

keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
chars = {b: chr(b) for b in keep}
chars.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in keep)})
show = lambda token: ''.join(chars[b] for b in token)

def read_tekken(j):
    """ranks, names of the special tokens by id, expression"""
    config = j['config']
    count = config['default_num_special_tokens']
    special = {i: f'<SPECIAL_{i}>' for i in range(count)}
    special.update(enumerate(('<unk>', '<s>', '</s>')))
    special.update({t['rank']: t['token_str'] for t in j.get('special_tokens') or []})
    used = j['vocab'][:config['default_vocab_size'] - count]
    return {base64.b64decode(t['token_bytes']): t['rank'] for t in used}, special, config['pattern']

tekken = open(sys.argv[1], 'rb').read(1) == b'{'
if tekken:
    ranks, special, regex = read_tekken(json.load(open(sys.argv[1], encoding='utf-8')))
else:
    ranks = {base64.b64decode(token): int(rank)
             for token, rank in (line.split() for line in open(sys.argv[1]) if line.strip())}
    special = {int(a.split('=', 1)[0]): a.split('=', 1)[1] for a in sys.argv[2:]}
    regex = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
             r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
merges = []
for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
    cuts = [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in ranks
            and token[k:] in ranks]
    merges += sorted(cuts, key=lambda c: (ranks[c[0]], ranks[c[1]]))
level = dict(type='ByteLevel', add_prefix_space=False, trim_offsets=True, use_regex=False)
added = [dict(id=i, content=name, single_word=False, lstrip=False, rstrip=False, normalized=False,
              special=True) for i, name in sorted(special.items())]
vocab = {show(t): r for t, r in ranks.items()}
after = level
if tekken:
    vocab = {**{name: i for i, name in special.items()},
             **{t: r + len(special) for t, r in vocab.items()}}
    begin = [dict(SpecialToken=dict(id='<s>', type_id=0)), dict(Sequence=dict(id='A', type_id=0))]
    after = dict(type='TemplateProcessing', single=begin, pair=begin + [
        dict(Sequence=dict(id='B', type_id=0))], special_tokens={
            '<s>': dict(id='<s>', ids=[vocab['<s>']], tokens=['<s>'])})
json.dump(dict(
    version='1.0', truncation=None, padding=None, added_tokens=added, normalizer=None,
    pre_tokenizer=dict(type='Sequence', pretokenizers=[
        dict(type='Split', pattern=dict(Regex=regex), behavior='Isolated', invert=False), level]),
    post_processor=after, decoder=dict(level, use_regex=True),
    model=dict(type='BPE', dropout=None, unk_token=None, continuing_subword_prefix=None,
               end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
               ignore_merges=True, vocab=vocab,
               merges=[f'{show(a)} {show(b)}' for a, b in merges])), sys.stdout)
