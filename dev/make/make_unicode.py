"""make_unicode.py > text/unicode_tables.h -- asks the `tokenizers` library what it knows about each
character, and packs the answers into C strings.

pip install tokenizers. The versions of Unicode differ from component to component of the library:
expressions have Unicode 16, normal forms Unicode 9. So nothing
here is taken from a table of Unicode but the pairs of canonical decompositions, which never change.
Numbers are written in base 32, least digit first, one character a digit: '0' + digit, + 32 if more
digits follow.
"""
import textwrap, unicodedata
from tokenizers import Regex, normalizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERY = ''.join(map(chr, CODES))

# ---------------------------------------------------------------------------- questions

def matched(regex):
    """the code points that an expression matches"""
    kept = normalizers.Replace(Regex(regex), '').normalize_str(EVERY)
    return set(CODES) - set(map(ord, kept))

def removed(normalizer):
    """the code points that a normalizer takes out"""
    return set(CODES) - set(map(ord, normalizer.normalize_str(EVERY)))

def each(normalizer, text='%s'):
    """code point -> what the normalizer makes of it"""
    return {c: normalizer.normalize_str(text % chr(c)) for c in CODES}

def changed(normalizer):
    return {c: s for c, s in each(normalizer).items() if s != chr(c)}

# ---------------------------------------------------------------------------- packing

def num(v):
    out = ''
    while v >= 32:
        out += chr(48 + 32 + v % 32)
        v //= 32
    return out + chr(48 + v)

def signed(v):
    return num(2 * v if v >= 0 else -2 * v - 1)

def literal(name, comment, s):
    print('\n'.join(textwrap.wrap(comment, 96, initial_indent='// ', subsequent_indent='// ')))
    print(f'static const char* const {name} =')
    lines = [f'    R"({line})"' for line in textwrap.wrap(s, 90)]
    # ??) is a trigraph, of which nvcc warns: two literals beside each other are one
    print('\n'.join(line.replace('??)', '?)"\n    R"(?)') for line in lines) + ';')

def runs(values):
    """[first, last, value] of neighbors with one value; values: code point -> value"""
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1 and out[-1][2] == values[c]:
            out[-1][1] = c
        else:
            out.append([c, c, values[c]])
    return out

def ranges(values, write=lambda v: ''):
    out, last = '', 0
    for lo, hi, value in runs(values):
        out += num(lo - last) + num(hi - lo) + write(value)
        last = hi
    return out

def of_set(codes):
    return ranges(dict.fromkeys(codes, 0))

# ---------------------------------------------------------------------------- the tables

print('''/*
unicode_tables.h -- made by dev/make/make_unicode.py, read by unicode.cpp. Numbers in
base 32, least digit first, one character a digit: '0' + digit, + 32 if more digits follow. Code
points are differences from the one before.
*/
#ifndef UNICODE_TABLES_H
#define UNICODE_TABLES_H
''')

for c, what in (('L', '\\p{L}, Unicode 16'), ('N', '\\p{N}, Unicode 16'), ('S', '\\s')):
    literal('unicode_' + c, f'{what}: gap, length - 1',
            of_set(matched({'L': r'\p{L}', 'N': r'\p{N}', 'S': r'\s'}[c])))
for name, regex in (('mark', r'\p{M}'), ('punctuation', r'\p{P}'), ('symbol', r'\p{S}'),
                    ('upper', r'[\p{Lu}\p{Lt}]'), ('small', r'\p{Ll}')):
    literal('unicode_' + name, f'{regex}, Unicode 16: gap, length - 1', of_set(matched(regex)))

# a mark moves before U+0345 (class 240) or behind U+0334 (class 1) if it has a class
nfd, nfc, nfkd = normalizers.NFD(), normalizers.NFC(), normalizers.NFKD()
ccc = {}
for c in CODES:
    moves = any(nfd.normalize_str(s) == s[::-1] for s in ('\u0345' + chr(c), chr(c) + '\u0334'))
    # some marks are written as others, and never stay to be moved
    gone = nfd.normalize_str(chr(c)) != chr(c) and unicodedata.combining(chr(c))
    if moves or gone or c in (0x334, 0x345): ccc[c] = unicodedata.combining(chr(c))
literal('unicode_ccc', 'canonical combining classes, Unicode 9: gap, length - 1, class',
        ranges(ccc, num))

HANGUL = range(0xAC00, 0xD7A4)
canonical = changed(nfd)
out, last, b_last = '', 0, 0
for c in sorted(set(canonical) - set(HANGUL)):
    a, *b = (int(x, 16) for x in unicodedata.decomposition(chr(c)).split())
    kind = 0 if not b else 1 if nfc.normalize_str(chr(a) + chr(b[0])) == chr(c) else 2
    out += num(c - last) + chr(48 + kind) + signed(a - c) + (signed(b[0] - b_last) if b else '')
    last, b_last = c, b[0] if b else b_last
literal('unicode_decomposition', 'canonical decompositions, Unicode 9: gap, kind (0 one, 1 two '
        'that compose again, 2 two that do not), first, second', out)

# ---- what only some normalizers and splitters ask

out, last, before = '', 0, 0
for c, s in sorted(changed(nfkd).items()):
    if c in HANGUL or s == canonical.get(c): continue
    out += num(c - last) + num(len(s))
    for x in s:
        out += signed(ord(x) - before)
        before = ord(x)
    last = c
literal('unicode_compatibility', 'compatibility decompositions in full, Unicode 9: gap, length, '
        'code points', out)

lower = changed(normalizers.Lowercase())
assert {c: s for c, s in lower.items() if len(s) > 1} == {0x130: 'i\u0307'}
del lower[0x130]
out, last, stretches = '', 0, []
for c in sorted(lower):
    delta, known = ord(lower[c]) - c, stretches and stretches[-1]
    if known and known[3] == delta and len(known[4]) == 1 and c - known[1] in (1, 2):
        known[1], known[2], known[4] = c, c - known[1], known[4] + [c]
    elif known and known[3] == delta and c - known[1] == known[2]:
        known[1], known[4] = c, known[4] + [c]
    else:
        stretches.append([c, c, 1, delta, [c]])
for first, end, step, delta, members in stretches:
    out += num(first - last) + num(len(members) - 1) + num(step) + signed(delta)
    last = end
literal('unicode_lower', 'lower case, but for U+0130: gap, length - 1, step, difference', out)
literal('unicode_accent', 'what StripAccents takes out: gap, length - 1',
        of_set(removed(normalizers.StripAccents())))
print('\n#endif // UNICODE_TABLES_H')
