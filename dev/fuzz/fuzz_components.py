"""fuzz_components.py BINARY TEXT [COUNT [CASE ..]] -- fuzz_tokenizer.py on small tokenizers that
use each component text/ accepts.

They are trained here on TEXT, then written with other normalizers, splitters, decoders,
added-token flags and model switches.
"""
import copy, json, os, subprocess, sys, tempfile
from tokenizers import Tokenizer, models, pre_tokenizers, trainers, decoders

binary, text = sys.argv[1:3]
count = sys.argv[3] if len(sys.argv) > 3 else '1000'
block = '\u2581'

def train(level):
    t = Tokenizer(models.BPE(unk_token=None if level else '<unk>'))
    t.pre_tokenizer = (pre_tokenizers.ByteLevel(add_prefix_space=False) if level
                       else pre_tokenizers.Metaspace(block))
    t.decoder = decoders.ByteLevel() if level else decoders.Metaspace(block)
    alphabet = (pre_tokenizers.ByteLevel.alphabet() if level
                else list(block + 'abcdefghijklmnopqrstuvwxyz .,'))
    t.train([text], trainers.BpeTrainer(vocab_size=800, show_progress=False,
                                        initial_alphabet=alphabet, limit_alphabet=90 if not level
                                        else 256, special_tokens=['<unk>', '<s>', '</s>']))
    return json.loads(t.to_str())

def token(content, **flags):
    return dict(dict(id=0, content=content, single_word=False, lstrip=False, rstrip=False,
                     normalized=False, special=False), **flags)

level, words = train(True), train(False)
split = lambda p, b, inv=False: dict(type='Split', pattern=p, behavior=b, invert=inv)
bytelevel = dict(type='ByteLevel', add_prefix_space=False, trim_offsets=True, use_regex=False)
gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
cl = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
      r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
nano = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
deepseek = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
            "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
            "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
upper, small = r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]', r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]'
tekken = (rf'[^\r\n\p{{L}}\p{{N}}]?{upper}*{small}+|[^\r\n\p{{L}}\p{{N}}]?{upper}+{small}*'
          r'|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+')
cases = {}
def case(name, base, change):
    j = copy.deepcopy(base); change(j); cases[name] = j
def seq(*items): return dict(type='Sequence', pretokenizers=list(items))
def pre(name, *items): case(name, level, lambda j: j.update(pre_tokenizer=seq(*items)))
pre('prefix space',
    dict(type='ByteLevel', add_prefix_space=True, trim_offsets=True, use_regex=True))
pre('split gpt2', split(dict(Regex=gpt2), 'Isolated'), bytelevel)
pre('split removed inverted', split(dict(Regex=cl), 'Removed', True), bytelevel)
pre('one digit', split(dict(Regex=cl.replace('{1,3}', '')), 'Isolated'), bytelevel)
pre('nanochat', split(dict(Regex=nano), 'Isolated'), bytelevel)
pre('nanochat 3', split(dict(Regex=nano.replace('{1,2}', '{1,3}+')), 'Isolated'), bytelevel)
def each(*regexes): return [split(dict(Regex=regex), 'Isolated') for regex in regexes]
pre('deepseek 3', *each(r'\p{N}{1,3}', '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+', deepseek),
    bytelevel)
pre('deepseek coder', *each('[\r\n]', r'\s?\p{L}+', r'\s?\p{P}+',
                            '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+'),
    dict(type='Digits', individual_digits=True), bytelevel)
pre('deepseek 2', *each('[\r\n]', '\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u0370-\u0373]+',
                        '\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+',
                        r'\s+$', '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+'),
    dict(type='Digits', individual_digits=True), bytelevel)
pre('tekken', *each(tekken), bytelevel)
tail = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
o200k = (rf'[^\r\n\p{{L}}\p{{N}}]?{upper}*{small}+{tail}'
         rf'|[^\r\n\p{{L}}\p{{N}}]?{upper}+{small}*{tail}'
         r'|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+')
pre('o200k', *each(o200k), bytelevel)
pre('bloom', *each(' ?[^(\\s|[.,!?…。，、।۔،])]+'), bytelevel)
for regex in (r'[\p{M}\p{S}]+', r'[^\p{Ll}\p{P}]+', r'\p{N}{1,3}', r'\S?[\p{Lu}\p{Lt}]+',
              r'\s+(?!\S)', r'[\p{Lm}\p{Lo}\-&^]'):
    pre(f'expression {len(cases)}', *each(regex), bytelevel)
pre('digits', dict(type='Digits', individual_digits=True), dict(bytelevel, use_regex=True))
pre('digit runs', dict(type='Digits', individual_digits=False), dict(bytelevel, use_regex=True))
for b in ('Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'):
    for inv in (False, True):
        pre(f'string {b} {inv}', split(dict(String='e'), b, inv), bytelevel)
case('no split', level, lambda j: j.update(pre_tokenizer=bytelevel))
case('no pre_tokenizer, decoder of bytes', level, lambda j: j.update(pre_tokenizer=None))
case('metaspace, decoder of bytes', level, lambda j: j.update(
    pre_tokenizer=dict(type='Metaspace', replacement=block, prepend_scheme='always', split=True)))
case('replace, then decoder of bytes', level,
     lambda j: j.update(decoder=dict(type='Sequence', decoders=[
         dict(type='Replace', pattern=dict(String='t'), content='u'), dict(bytelevel)])))
for name in ('NFD', 'NFKC', 'NFKD', 'Lowercase', 'StripAccents', 'Strip left', 'Strip right',
             'Strip both'):
    def change(j, name=name):
        side = name.split()[-1]
        j.update(normalizer=dict(type=name.split()[0], strip_left=side in ('left', 'both'),
                                 strip_right=side in ('right', 'both'))
                 if name.startswith('Strip ') else dict(type=name))
    case(name, level, change)
case('NFKD, accents, lower', level, lambda j: j.update(normalizer=dict(
    type='Sequence', normalizers=[dict(type='NFKD'), dict(type='StripAccents'),
                                  dict(type='Lowercase')])))
case('NFC', level, lambda j: j.update(normalizer=dict(type='NFC')))
for scheme in ('always', 'first', 'never'):
    for cut in (True, False):
        def change(j,
                   m=dict(type='Metaspace', replacement=block, prepend_scheme=scheme, split=cut)):
            j.update(pre_tokenizer=m, decoder=m)
        case(f'metaspace {scheme} {cut}', words, change)
def legacy(j):
    j.update(pre_tokenizer=None, normalizer=dict(type='Sequence', normalizers=[
        dict(type='Prepend', prepend=block),
        dict(type='Replace', pattern=dict(String=' '), content=block)]))
case('prepend', words, legacy)
case('replace', level,
     lambda j: j.update(normalizer=dict(type='Replace', pattern=dict(String='the'), content='ab')))
case('unk not fused', words, lambda j: j['model'].update(fuse_unk=False))
case('unk fused', words, lambda j: (legacy(j), j['model'].update(fuse_unk=True)))
case('no unk', words, lambda j: j['model'].update(unk_token=None))
case('ignore merges', level, lambda j: j['model'].update(ignore_merges=True))
case('no decoder', words, lambda j: j.update(decoder=None))
def flags(j):
    j['added_tokens'] += [token('THE', lstrip=True), token(' of', rstrip=True),
                          token('==', lstrip=True, rstrip=True, special=True),
                          token('the\u0301', normalized=True), token('----', id=7),
                          token('....', normalized=True, lstrip=True), token('-----x'),
                          token('1234')]
case('added tokens', level, flags)
case('added tokens, NFC', level, lambda j: (flags(j), j.update(normalizer=dict(type='NFC'))))
case('added tokens, metaspace', words, flags)
case('added tokens, prepend', words, lambda j: (flags(j), legacy(j)))
def fallback(j):
    legacy(j)
    n = max(j['model']['vocab'].values()) + 1
    j['model']['vocab'].update({f'<0x{b:02X}>': n + b for b in range(256)})
    j['model'].update(byte_fallback=True)
    j['decoder'] = dict(type='Sequence',
                        decoders=[dict(type='Replace', pattern=dict(String=block), content=' '),
                                  dict(type='ByteFallback'), dict(type='Fuse'),
                                  dict(type='Strip', content=' ', start=1, stop=0)])
case('byte fallback', words, fallback)
def template(j):
    j['post_processor'] = dict(
        type='TemplateProcessing', single=[dict(SpecialToken=dict(id='<s>', type_id=0)),
                                           dict(Sequence=dict(id='A', type_id=0)),
                                           dict(SpecialToken=dict(id='</s>', type_id=0))],
        pair=[dict(Sequence=dict(id='A', type_id=0)), dict(Sequence=dict(id='B', type_id=0))],
        special_tokens={s: dict(id=s, ids=[i], tokens=[s]) for i, s in ((1, '<s>'), (2, '</s>'))})
case('template', level, template)

chosen = sys.argv[4:]
if chosen: cases = {name: cases[name] for name in chosen}
failed = 0
fuzz = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'fuzz_tokenizer.py')
for k, (name, j) in enumerate(cases.items()):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, name.replace(' ', '_'), 'tokenizer.json')
        os.mkdir(os.path.dirname(path)); json.dump(j, open(path, 'w'))
        failed += subprocess.run([sys.executable, fuzz, binary, path, count,
                                  str(k)]).returncode != 0
print(f'{len(cases)} tokenizers, {failed} failed')
sys.exit(failed > 0)
