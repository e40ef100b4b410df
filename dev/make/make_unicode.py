"""make_unicode.py CLASSES NFC > text/unicode_tables.h -- pack the Unicode facts that tokenizers
depend on into C strings.

CLASSES lists the ranges of \\p{L}, \\p{N} and \\s that Hugging Face tokenizers 0.23 matches
(Unicode 16); NFC lists combining classes, decompositions and compositions of its normalizer
(Unicode 9). Numbers are written in base 32, least digit first, one character a digit:
'0' + digit, + 32 if more digits follow.
"""
import sys, textwrap

def num(v):
    out = ''
    while v >= 32:
        out += chr(48 + 32 + v % 32)
        v //= 32
    return out + chr(48 + v)

def signed(v):
    return num(2 * v if v >= 0 else -2 * v - 1)

def literal(name, comment, s):
    print(f'// {comment}')
    print(f'static const char* const {name} =')
    print('\n'.join(f'    R"({line})"' for line in textwrap.wrap(s, 90)) + ';')

sections, name = {}, None
for path in sys.argv[1:3]:
    for line in open(path):
        if line.startswith('['):
            name = line[1:line.index(']')]
            sections[name] = []
        elif not line.startswith('#') and name:
            sections[name].append(line.split())

def ranges(words):
    out, last = '', 0
    for w in words:
        lo, hi = (int(x, 16) for x in (w.split('-') * 2)[:2])
        out += num(lo - last) + num(hi - lo)
        last = hi
    return out

print('''/*
unicode_tables.h -- made by dev/make/make_unicode.py, read by unicode_load in unicode.cpp. Numbers
in base 32, least digit first, one character a digit: '0' + digit, + 32 if more digits follow. Code
points are differences from the one before.
*/
#ifndef UNICODE_TABLES_H
#define UNICODE_TABLES_H
''')
for c, what in (('L', '\\p{L}, Unicode 16'), ('N', '\\p{N}, Unicode 16'), ('S', '\\s')):
    literal(f'unicode_{c}', f'{what}: gap, length - 1',
            ranges([w for row in sections[c] for w in row]))

out, last = '', 0
for lo, hi, ccc in sections['ccc']:
    lo, hi = int(lo, 16), int(hi, 16)
    out += num(lo - last) + num(hi - lo) + num(int(ccc))
    last = hi
literal('unicode_ccc', 'canonical combining classes, Unicode 9: gap, length - 1, class', out)

composed = {tuple(int(x, 16) for x in row) for row in sections['comp']}
rows = sorted([int(x, 16) for x in row] for row in sections['decomp'])
out, last, b_last, used = '', 0, 0, 0
for cp, a, *b in rows:
    kind = 0 if not b else 1 if (a, b[0], cp) in composed else 2
    used += kind == 1
    out += num(cp - last) + chr(48 + kind) + signed(a - cp) + (signed(b[0] - b_last) if b else '')
    last, b_last = cp, b[0] if b else b_last
assert used == len(composed), 'a composition without its decomposition'
literal('unicode_decomposition', 'canonical decompositions, Unicode 9: gap, kind (0 one, '
                                 '1 two that compose again, 2 two that do not), first, second', out)
print('\n#endif // UNICODE_TABLES_H')
