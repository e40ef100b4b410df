# the pictures of docs/: in true color, each color of their series in them, and on a page
# (a PNG reduced to a palette once made two of three models one color)
#     sh test/scripts/test_figures.sh
. test/ok.sh
PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import matplotlib' 2> /dev/null || skip_all "48 (no matplotlib)"
scratch
cat > "$dir/figures.py" << 'END'
import os, re, sys
import numpy as np
import PIL.Image

source = open("scripts/lib/drawing.py", encoding="utf-8").read()
colors = re.findall(r"#[0-9A-F]{6}", re.search(r"^COLORS = \[(.*?)\]", source, re.M | re.S)[1])
assert len(colors) == 7, colors
ONE, TWO, THREE, FOUR, FIVE = colors[:5]
# file of docs/figures/: the colors of its series
FIGURES = {"text-dynamics.png": [ONE, TWO, THREE], "open-norms.png": [ONE, TWO, FOUR, FIVE],
           "interventions.png": [ONE, "#000000"], "text-map.png": [], "first-sight.png": [], "open-heads.png": [],
           "text-film.png": [], "first-token.png": [],
           "first-token-norms.png": [ONE, TWO, THREE], "first-token-stays.png": [ONE, TWO, THREE, FOUR],
           "first-token-border.png": [ONE, TWO, THREE, FOUR],
           "first-token-positions.png": [ONE, TWO, THREE], "first-token-changes.png": colors,
           "first-token-ordinary.png": [ONE, TWO, THREE]}


def pixels(path):
    """How often each color occurs in a PNG; dies if its colors are a palette's."""
    image = PIL.Image.open(path)
    assert image.mode in ("RGB", "RGBA"), f"{path}: got colors of kind {image.mode}, wanted true color"
    colors = np.asarray(image.convert("RGB")).astype(int) @ [65536, 256, 1]
    return dict(zip(*np.unique(colors, return_counts=True)))


def check(path, wanted):
    counts = pixels(path)
    assert len(counts) > 256, f"{path}: got {len(counts)} colors, wanted those of smooth lines"
    for color in wanted:
        found = counts.get(int(color[1:], 16), 0)
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
works "$PYTHON" "$dir/figures.py"
# and the check itself: a palette, and a color that is not there
"$PYTHON" -c 'import PIL.Image, sys; PIL.Image.new("P", (2, 1)).save(sys.argv[1])' "$dir/palette.png"
"$PYTHON" "$dir/figures.py" "$dir/palette.png" > "$dir/out" 2>&1; grep -q 'got colors of kind P' "$dir/out"; ok $? "a palette passed: $(tail -n 1 "$dir/out")"
"$PYTHON" "$dir/figures.py" docs/figures/open-heads.png '#FEDCBA' > "$dir/out" 2>&1; grep -q 'got 0 pixels of #FEDCBA' "$dir/out"
ok $? "a color that is not there passed: $(tail -n 1 "$dir/out")"
# one command draws them all from docs/results, as they are here, and as vectors
export PYTHON
works scripts/figures.sh -o "$dir/drawn"
for png in docs/figures/*.png; do
    name=$(basename "$png" .png)
    [ "$(head -c 24 "$png" | tail -c 8 | od -An -tx1)" = "$(head -c 24 "$dir/drawn/$name.png" | tail -c 8 | od -An -tx1)" ]
    ok $? "scripts/figures.sh draws $name.png in another size than docs/figures/ has it"
    grep -q '</svg>' "$dir/drawn/$name.svg"; ok $? "no $name.svg"
    [ -s "docs/figures/$name.svg" ]; ok $? "docs/figures/ has no $name.svg"
done
[ -s "$dir/drawn/text-film.gif" ]; ok $? "no film"
scripts/figures.sh nothing > "$dir/out" 2>&1; [ $? -eq 2 ] && grep -q HINT "$dir/out"; ok $? "figures.sh nothing: $(cat "$dir/out")"
finish
