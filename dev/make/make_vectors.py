"""make_vectors.py NEOX/tokenizer.json VECTORS TEXT OUT -- small golden files for test_tokenizer:
OUT/NAME.json and OUT/NAME.jsonl.

neox.json is GPT-NeoX's tokenizer with only those merges whose product occurs in the test strings:
all others cannot fire, so the ids are those of the whole file. The other tokenizers have
the components of GPT-2, LLaMA-2 (both forms) and LLaMA-3 but a vocabulary trained here on TEXT.
All ids and decoded texts are what the `tokenizers` library gives (pip install tokenizers).
"""
import json, os, random, sys, tempfile
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

neox, vectors, text, out = sys.argv[1:5]
block = '\u2581'
strings = [json.loads(line)['text'] for line in open(os.path.join(vectors, 'gptneox.jsonl'))]
strings = [s for s in strings if len(s) < 90]
dump = lambda j, path: open(os.path.join(out, path), 'w').write(
    json.dumps(j, ensure_ascii=True, separators=(',', ':')) + '\n')
keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
chars = {b: chr(b) for b in keep}
chars.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in keep)})

def golden(name, j):
    rng = random.Random(0)
    with tempfile.NamedTemporaryFile('w', suffix='.json') as f:
        json.dump(j, f); f.flush()
        t = Tokenizer.from_file(f.name)
    dump(j, name + '.json')
    ids_all = sorted(j['model']['vocab'].values())
    with open(os.path.join(out, name + '.jsonl'), 'w') as f:
        for s in strings[::2] if name == 'llama2_first' else strings:
            f.write(json.dumps(dict(text=s, ids=t.encode(s, add_special_tokens=False).ids),
                               separators=(',', ':')) + '\n')
        for s in strings[::9]:
            ids = t.encode(s).ids
            row = dict(text=s, template=ids, decoded=t.decode(ids, skip_special_tokens=False))
            f.write(json.dumps(row, separators=(',', ':')) + '\n')
        # token soup: incomplete characters, specials in odd places, unknown ids
        for k in range(25):
            ids = [rng.choice(ids_all) for _ in range(rng.randint(1, 8))] + [10 ** 6] * (k % 5 == 0)
            f.write(json.dumps(dict(soup=ids, decoded=t.decode(ids, skip_special_tokens=False),
                                    skipped=t.decode(ids, skip_special_tokens=True)),
                               separators=(',', ':')) + '\n')

# --- NeoX, pruned
j = json.load(open(neox))
import unicodedata
seen = set()
for s in strings:
    for form in (s, unicodedata.normalize('NFC', s)):
        b = ''.join(chars[x] for x in form.encode())
        seen.update(b[i:k] for i in range(len(b)) for k in range(i + 1, len(b) + 1))
vocab = j['model']['vocab']
merges = [m for m in j['model']['merges'] if m.replace(' ', '') in seen]
used = (set(chars.values()) | {x for m in merges for x in m.split(' ')}
        | {m.replace(' ', '') for m in merges} | {a['content'] for a in j['added_tokens']})
j['model']['vocab'] = {v: i for v, i in vocab.items() if v in used or len(v) == 1}
j['model']['merges'] = merges
# else they are numbered by the size of the vocabulary
j['model']['vocab'].update({a['content']: a['id'] for a in j['added_tokens']})
golden('neox', j)
full = Tokenizer.from_file(neox)
for line in open(os.path.join(out, 'neox.jsonl')):
    r = json.loads(line)
    assert 'ids' not in r or r['ids'] == full.encode(r['text'], add_special_tokens=False).ids, r

# --- the other families' components on a small vocabulary
def token(content, i):
    return dict(id=i, content=content, single_word=False, lstrip=False, rstrip=False,
                normalized=False, special=True)
def train(pre, size, specials, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    level = isinstance(pre, pre_tokenizers.ByteLevel)
    t.train([text], trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=specials,
        limit_alphabet=256 if level else 60,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if level else []))
    return json.loads(t.to_str())
level = dict(type='ByteLevel', add_prefix_space=False, trim_offsets=True, use_regex=True)
small = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 450, ['<|endoftext|>'])
golden('gpt2', dict(small, pre_tokenizer=level, decoder=level, post_processor=level))
regex = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
plain = dict(level, use_regex=False)
begin = dict(SpecialToken=dict(id='<|begin_of_text|>', type_id=0))
seq = lambda x: dict(Sequence=dict(id=x, type_id=0))
llama3 = json.loads(json.dumps(small).replace('<|endoftext|>', '<|begin_of_text|>'))
# as in LLaMA-3, some tokens have no merges
kept = [m for m in llama3['model']['merges'] if len(''.join(m)) != 3]
llama3['model'].update(ignore_merges=True, merges=kept)
pieces = dict(type='Split', pattern=dict(Regex=regex), behavior='Isolated', invert=False)
special = dict(id='<|begin_of_text|>', ids=[0], tokens=['<|begin_of_text|>'])
template = dict(type='TemplateProcessing', single=[begin, seq('A')],
                pair=[begin, seq('A'), seq('B')], special_tokens={'<|begin_of_text|>': special})
golden('llama3', dict(llama3, pre_tokenizer=dict(type='Sequence', pretokenizers=[pieces, plain]),
                      decoder=level,
                      post_processor=dict(type='Sequence', processors=[plain, template])))
words = train(pre_tokenizers.Metaspace(block), 550,
              ['<unk>', '<s>', '</s>'] + [f'<0x{b:02X}>' for b in range(256)], unk_token='<unk>',
              fuse_unk=True, byte_fallback=True)
words['added_tokens'] = [token(s, i) for i, s in enumerate(['<unk>', '<s>', '</s>'])]
bos = dict(SpecialToken=dict(id='<s>', type_id=0))
words.update(post_processor=dict(type='TemplateProcessing', single=[bos, seq('A')],
                                 pair=[bos, seq('A'), seq('B')],
                                 special_tokens={'<s>': dict(id='<s>', ids=[1], tokens=['<s>'])}),
    decoder=dict(type='Sequence', decoders=[
        dict(type='Replace', pattern=dict(String=block), content=' '), dict(type='ByteFallback'),
        dict(type='Fuse'), dict(type='Strip', content=' ', start=1, stop=0)]))
golden('llama2', dict(words, pre_tokenizer=None, normalizer=dict(
    type='Sequence', normalizers=[dict(type='Prepend', prepend=block),
                                  dict(type='Replace', pattern=dict(String=' '), content=block)])))
golden('llama2_first', dict(words, pre_tokenizer=dict(type='Metaspace', replacement=block,
                                                      prepend_scheme='first', split=False)))
