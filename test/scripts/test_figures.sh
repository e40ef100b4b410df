# the pictures of docs/: in true color, each color of their series in them, and on a page
# (a PNG reduced to a palette once made two of three models one color)
#     sh test/scripts/test_figures.sh
CDPATH= cd "$(dirname "$0")/../.." || exit 1
. test/ok.sh
command -v python3 > /dev/null || { echo "skipped: no python3"; echo "0 passed, 0 failed"; exit; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
cat > "$dir/figures.py" << 'END'
import os, re, struct, sys, zlib

source = open("scripts/lib/drawing.py", encoding="utf-8").read()
colors = re.findall(r"#[0-9A-F]{6}", re.search(r"^COLORS = \[(.*?)\]", source, re.M | re.S)[1])
assert len(colors) == 7, colors
ONE, TWO, THREE, FOUR, FIVE = colors[:5]
# file of docs/figures/: the colors of its series
FIGURES = {"text-dynamics.png": [ONE, TWO, THREE], "open-norms.png": [ONE, TWO, FOUR, FIVE],
           "interventions.png": [ONE, "#000000"], "text-map.png": [TWO], "open-heads.png": [],
           "text-film.png": [], "first-token.png": [],
           "first-token-norms.png": [ONE, TWO, THREE], "first-token-stays.png": [ONE, TWO, THREE, FOUR],
           "first-token-border.png": [ONE, TWO, THREE, FOUR],
           "first-token-positions.png": [ONE, TWO, THREE], "first-token-changes.png": colors,
           "first-token-ordinary.png": [ONE, TWO, THREE]}


def chunks(data):
    at = 8
    while at < len(data):
        size, = struct.unpack(">I", data[at:at + 4])
        yield data[at + 4:at + 8], data[at + 8:at + 8 + size]
        at += 12 + size


def paeth(a, b, c):
    p, q, r = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    return a if p <= q and p <= r else b if q <= r else c


def unfilter(kind, row, above, n):
    """A row of bytes as it was before the filter of the format's section 9.2; n bytes a pixel."""
    if kind == 2:
        return bytearray((x + b) & 255 for x, b in zip(row, above))
    for i in range(len(row)) if kind else ():
        a, c = (row[i - n], above[i - n]) if i >= n else (0, 0)
        b = above[i]
        row[i] = (row[i] + (a if kind == 1 else (a + b) // 2 if kind == 3 else paeth(a, b, c))) & 255
    return row


def pixels(path):
    """How often each color occurs in a PNG; dies if its colors are a palette's."""
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", path
    parts = list(chunks(data))
    width, height, bits, kind, _, _, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    assert kind in (2, 6) and bits == 8, f"{path}: got color type {kind} of {bits} bits, wanted true color"
    assert not interlaced and not [t for t, _ in parts if t == b"PLTE"], path
    n = 3 if kind == 2 else 4
    raw = zlib.decompress(b"".join(body for name, body in parts if name == b"IDAT"))
    assert len(raw) == height * (1 + n * width), path
    counts, above = {}, bytearray(n * width)
    for y in range(height):
        at = y * (1 + n * width)
        above = unfilter(raw[at], bytearray(raw[at + 1:at + 1 + n * width]), above, n)
        for x in range(0, n * width, n):
            rgb = bytes(above[x:x + 3])
            counts[rgb] = counts.get(rgb, 0) + 1
    return counts


def check(path, wanted):
    counts = pixels(path)
    assert len(counts) > 256, f"{path}: got {len(counts)} colors, wanted those of smooth lines"
    for color in wanted:
        found = counts.get(bytes.fromhex(color[1:]), 0)
        assert found > 200, f"{path}: got {found} pixels of {color}, wanted a series of that color"


if len(sys.argv) > 1:
    check(sys.argv[1], sys.argv[2:])
else:
    there = {f for f in os.listdir("docs/figures") if f.endswith(".png")}
    assert there == set(FIGURES), there ^ set(FIGURES)
    pages = "".join(open(os.path.join(d, f), encoding="utf-8").read()
                    for d in (".", "docs", "docs/findings") for f in os.listdir(d) if f.endswith(".md"))
    for name, wanted in FIGURES.items():
        assert re.search(r"!\[[^]]+\]\((docs/|\.\./)?figures/" + re.escape(name) + r"\)", pages), f"{name} is on no page"
        check("docs/figures/" + name, wanted)
END
python3 "$dir/figures.py" > "$dir/out" 2>&1; ok $? "$(tail -n 1 "$dir/out")"
# and the check itself: a palette, and a color that is not there
python3 - "$dir/palette.png" << 'END'
import struct, sys, zlib
chunk = lambda name, body: struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
open(sys.argv[1], "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 8, 3, 0, 0, 0))
    + chunk(b"PLTE", bytes(6)) + chunk(b"IDAT", zlib.compress(bytes(3))) + chunk(b"IEND", b""))
END
python3 "$dir/figures.py" "$dir/palette.png" > "$dir/out" 2>&1; grep -q 'got color type 3' "$dir/out"; ok $? "a palette passed: $(tail -n 1 "$dir/out")"
python3 "$dir/figures.py" docs/figures/open-heads.png '#FEDCBA' > "$dir/out" 2>&1; grep -q 'got 0 pixels of #FEDCBA' "$dir/out"
ok $? "a color that is not there passed: $(tail -n 1 "$dir/out")"
# one command draws them all from docs/results, as they are here, and as vectors
PYTHON=${PYTHON:-python3}
if "$PYTHON" -c 'import numpy, matplotlib' 2> /dev/null; then
    PYTHON=$PYTHON scripts/figures.sh -o "$dir/drawn" > "$dir/out" 2>&1; ok $? "figures.sh: $(tail -n 2 "$dir/out")"
    for png in docs/figures/*.png; do
        name=$(basename "$png" .png)
        [ "$(head -c 24 "$png" | tail -c 8 | od -An -tx1)" = "$(head -c 24 "$dir/drawn/$name.png" | tail -c 8 | od -An -tx1)" ]
        ok $? "scripts/figures.sh draws $name.png in another size than docs/figures/ has it"
        grep -q '</svg>' "$dir/drawn/$name.svg"; ok $? "no $name.svg"
        [ -s "docs/figures/$name.svg" ]; ok $? "docs/figures/ has no $name.svg"
    done
    [ -s "$dir/drawn/text-film.gif" ]; ok $? "no film"
    scripts/figures.sh nothing > "$dir/out" 2>&1; [ $? -eq 2 ] && grep -q HINT "$dir/out"; ok $? "figures.sh nothing: $(cat "$dir/out")"
else echo "skipped: 21 (no numpy or matplotlib)"; fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
