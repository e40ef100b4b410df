# scripts/report.py and scripts/plot.py on a stored run (test/report/tiny: 10 steps of a sigmoid model with K biases on README.md)
# PYTHON=/path/python3 chooses another python, such as one with matplotlib. What is not installed is skipped and counted
. test/ok.sh
skipped=0; why=
skip() { skipped=$((skipped + $1)); shift; why="$why${why:+, }$*"; }
end() {
    [ $skipped -eq 0 ] || echo "skipped: $skipped checks of test_report ($why)"
    finish; exit
}
PYTHON=${PYTHON:-python3}
command -v "$PYTHON" > /dev/null 2>&1 || { skip 206 "no python3"; end; }
export PYTHONDONTWRITEBYTECODE=1
out=build/test/report; tiny=test/report/tiny
rm -rf $out; mkdir -p $out
said=$out/stderr
report() { $PYTHON scripts/report.py "$@" > $out/stdout 2> $said; }
page() { # its name, what is on it
    name=$1; shift
    report "$@" -o $out/$name.html; ok $? "$name.html: $(cat $said)"
}
run() { # its name, the command that makes its log of the stored one
    name=$1; shift
    mkdir -p $out/$name; "$@" $tiny/log.jsonl > $out/$name/log.jsonl
}

# ---- the page holds the numbers, nothing from outside, and no text of a run can become a tag ---------------------------
page report $tiny test/report/table.json
[ -s $out/report.html ] && ! grep -nE 'https?:|src=|href=|@import|url\(' $out/report.html \
    > $out/grep
ok $? "the page refers to something outside: $(head -c 200 $out/grep)"
works python - $out/report.html $tiny/log.jsonl <<'END'
import json, sys
html = open(sys.argv[1], encoding="utf-8").read()
data = json.loads(html.split('<script type="application/json" id="data">')[1].split("</script>")[0])
log = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
evals = [o for o in log if o["event"] == "eval"]
close = lambda a, b: abs(a - b) <= 1e-5 * abs(b)
run = data["runs"][0]
assert len(run["evals"]) == len(evals) == 3
for a, b in zip(run["evals"], evals):
    losses = (a["val_loss"], b["val_loss"])
    assert a["step"] == b["step"] and close(*losses), losses
    maps = zip(a["alpha1_proxy"], b["alpha1_proxy"])
    assert all(close(x, y) for p, q in maps for x, y in zip(p, q))
losses = [o["loss"] for o in log if o["event"] == "train"]
assert all(close(a, b) for a, b in zip(run["curves"]["loss"][1], losses)) and len(losses) == 10
assert run["status"] == "done" and run["proxy"] and run["title"] == "ATTN=sigmoid BIAS=k" and data["reload"] == 0
rows = data["results"][0]["rows"]
assert [r["sinks"] for r in rows[:3]] == [[[1, 18.18, [50.0, 44.0], [1.5, 1.5]]],
                                          [[1, 0.0, [0.0], [1.5]]],
                                          [[1, 0.0, [2.0], [1.5]], [2, 69.03, [61.0], [0.0]]]], rows
assert [r["why_not"] for r in rows] == [None, "failed", None, "not run"]
assert rows[2]["main"] == 2 and rows[1]["star"] == [73.34, [50.0]]
END
run evil sed 's/{"event":"sample","step":10,"text":".*/{"event":"sample","step":10,"text":"<\/script><script>document.title=1<\/script>"}/'
page evil $out/evil
[ "$(grep -c '</script>' $out/evil.html)" = 2 ]; ok $? "a sample ended the script"

# the page that README's first picture links is what the stored runs give today
sh dev/make/demo_page.sh $out/demo.html > /dev/null 2> $said && cmp docs/demo.html $out/demo.html > $out/grep 2>&1
ok $? "docs/demo.html: write it again, sh dev/make/demo_page.sh: $(cat $said $out/grep)"
[ $(wc -c < docs/demo.html) -lt 110000 ]; ok $? "docs/demo.html is larger than 0.1 MB"

# what is written can be read on what it stands on, and what is drawn can be seen: WCAG 2.1's 4.5 and 3 to 1
works python - scripts/report.html <<'END'
import re, sys
css = open(sys.argv[1], encoding="utf-8").read().split("</style>")[0]
def light(color):
    parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
def contrast(a, b):
    a, b = sorted((light(a), light(b)))
    return (b + 0.05) / (a + 0.05)
schemes = re.findall(r":root \{(.*?)\}", css, re.S)
assert len(schemes) == 2, len(schemes)
for scheme in schemes:
    color = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", scheme))
    for under in ("page", "card"):
        for name in ("ink", "soft", "accent", "good", "bad", "edge", *(f"run{i}" for i in range(7))):
            wanted = 3 if name == "edge" or name.startswith("run") else 4.5
            got = contrast(color[name], color[under])
            assert got >= wanted, f"{name} on {under}: {got:.2f}, wanted {wanted}"
# no ink is thinned out by opacity, but for the dot of a run that is hidden
assert set(re.findall(r"(?m)^(.*)\{[^}]*[^-]opacity: *\.", css)) <= {".chip[aria-pressed=false] .dot, tr.off .dot "}
END

# ---- what a browser makes of it ------------------------------------------------------------------------------------------
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
# page#state [flag] -> the document after its script ran, without it, and the errors of the script
dom() {
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr \
        --user-data-dir=$PWD/$out/browser --window-size=1200,900 $2 \
        --dump-dom "file://$PWD/$out/$1" 2> $out/browser.log | sed 's/<\/script>/&\n/g' | sed '/<script/,/<\/script>/d' > $out/dom   # what it drew, not how
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log
    ok $? "$1: errors of the script"
}
has() { for words in "$@"; do grep -qF -- "$words" $out/dom; ok $? "the page in a browser lacks '$words'"; done; }
# what is said of a step of hands.html, an expression that it fits
hands() { grep -o ">$1: [^<]*" $out/dom | grep -q "$2"; ok $? "hands.html: $1: wanted $2: $(grep -o ">$1: [^<]*" $out/dom)"; }
if [ -n "$browser" ] && [ $failed -eq 0 ]; then
    dom 'report.html#hover=loss:5'
    # tables; what the pointer reads; the proxy, not raw weights: 100%
    has '4.278' '>✓ done<' 'ATTN=sigmoid BIAS=k' '44.00 – 50.00' '✗ does not hold' '&lt;not a tag&gt;' \
        '<b>step 5</b>' '>4.902<' '>5.003<' 'token 1 gets more than ε; at the end: tiny 0.0%.' \
        'α₁ by layer and head of tiny, step 10: mean 0.09323, largest 0.09469 in layer 0, head 1'
    dom 'report.html#step=5&map=mass&off='
    has '>emb</text>' 'The sink is the curve of Sink₁ that leaves 0.'
    has 'row mass by layer and head of tiny, step 5: mean 8.749' '>5</output>'
    dom 'evil.html#off=0'
    has 'data-group="0" aria-pressed="false"' '&lt;/script&gt;&lt;script&gt;document.title=1' \
        '<title>train_sink report</title>' 'no finite numbers to draw'
    # a probed model: its maps, norms, Sink_k, and Sink_1 by threshold and length; a run that went on, with a gate, and every flag that differs
    mkdir -p $out/went
    $PYTHON - $tiny/log.jsonl $out <<'END'
import json, sys
log = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
e = [o for o in log if o["event"] == "eval"][-1]
probe = dict(e, data="my <b>text", sinks=[e["sink"], dict(e["sink"], eps=0.1, proxy_k=[0.5] * 10)])
lone = lambda x: x[:1] if isinstance(x, list) else x
# a model whose layer 0 has no attention
of_attention = ("alpha", "k_", "v_", "mass", "entropy")
json.dump(dict({k: lone(v) if k.startswith(of_attention) else v for k, v in e.items()},
               layers=[1]), open(sys.argv[2] + "/mamba.json", "w"))
json.dump(dict(probe, all=[probe, dict(probe, sink=dict(e["sink"], T=16), sinks=None)]),
          open(sys.argv[2] + "/model.json", "w"))
for o in log:
    o["time"] = "2026-11-22T00:00:00Z"
    if o["event"] == "eval":
        o.update(gate_mean=[0.25, 0.75], gate_low=[0.1, 0.2], gate_first=[[0.1, 0.2], [0.3, 0.4]])
        del o["h_median"], o["mass"]
log[0]["flags"].update(beta1=0.8, beta2=0.5, adam_eps=1, weight_decay=0.7, grad_clip=9, warmup=7,
                       lr=0.25, min_lr=0.125)
log.insert(9, {"event": "resume", "step": 7, "changed": {"lr": [0.01, 0.25]}})
log.insert(9, {"event": "of another version", "step": "x"})
open(sys.argv[2] + "/went/log.jsonl", "w").write("\n".join(map(json.dumps, log)))
END
    page model $out/model.json
    dom model.html
    has '2 probes' 'model T 32' '>probed<' 'Sink₁ by threshold ε' 'Sink₁ by length T' \
        'α₁ by layer and head of model T 16' '&lt;b&gt;text' \
        'aria-label="|h|, first token; thin: the others' 'aria-label="|k|, first token; thin: the others'
    page mamba $out/mamba.json
    dom mamba.html
    has 'in layer 1, head' 'data-cell="0,1,0,'
    page went $tiny $out/went $out/model.json
    dom 'went.html#map=gatefirst'
    has 'went went on at step 7: lr [0.01,0.25]' 'lr 0.25' 'min_lr 0.125' 'beta2 0.5' \
        'gate of token 1 by layer and head of went, step 10: mean 0.2500'
    # hands on it: slider, pointer on a cell, a point of a curve clicked, arrow keys, maps over training, legend
    { sed '/<\/body>/,$d' $out/report.html; cat <<'END'; } > $out/hands.html
<script>
const said = [], say = what => said.push(what + ": " + tip.textContent.replace(/\s+/g, " ") + " #" + location.hash);
const find = what => document.querySelector(what), chart = id => find(`[data-chart=${id}]`);
// a pointer at a part of an element's width and height; a key
const pointer = (kind, el, x, y) => {
  const b = el.getBoundingClientRect();
  el.dispatchEvent(new PointerEvent(kind, { clientX: b.left + x * b.width, clientY: b.top + y * b.height, bubbles: true }));
};
const press = (el, key) => el.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
$("step").value = 1; $("step").dispatchEvent(new Event("input", { bubbles: true })); say("slider");
pointer("pointermove", find("[data-cell]"), 0.5, 0.5); say("cell");
pointer("pointermove", chart("loss"), 0.99, 0.5); say("pointer");
pointer("click", chart("loss"), 0.13, 0.5); say("click");
press(chart("grad"), "Home"); say("home"); press(chart("grad"), "ArrowRight"); say("right"); press(chart("grad"), "Enter"); say("enter");
const cells = find("[data-cells]");
press(cells, "ArrowDown"); say("largest"); press(cells, "ArrowLeft"); say("left"); press(cells, "ArrowDown"); say("down");
press(cells, "Escape"); say("escape");
find("[data-over]").click(); find("[data-map=mass]").click();
const kept = find("[data-strip]");
kept.focus(); press(kept, "ArrowUp"); say("last step"); press(kept, "ArrowLeft"); say("before it"); press(kept, "Enter"); say("kept");
said.push("focus: " + document.activeElement.outerHTML.slice(0, 60));
const lights = ([a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const inks = [...Array(1001).keys()].map(i => viridis(i / 1000)).map(c => lights([light(c), bright(c) ? 0 : 1]));
said.push("numbers on colors: " + (Math.min(...inks) >= 4.5 ? "can be read" : Math.min(...inks)));
pointer("pointermove", find("canvas"), 0.99, 0.99); say("strip");
find("[data-log=loss]").click(); find("[data-group]").click(); say("legend");
document.body.innerHTML = said.map(s => `<p>${esc(s)}</p>`).join("");
</script></body></html>
END
    dom hands.html
    has '>slider:  ##step=5&amp;' '>cell: tiny, step 5layer 0, head 0: α₁ = 0.09' \
        '>pointer: step 10 validation, trainingtiny4.2784.065 #' '>home: step 1tiny1.7' '>right: step 2tiny2.' \
        '>enter: step 2tiny2.' '>largest: tiny, step 0layer ' '>down: tiny, step 0layer 1, head 0: α₁ = ' \
        '>escape: tiny, step 0layer' '>last step: tiny, step 10layer 0, head 0: row mass = ' \
        '>before it: tiny, step 5layer 0, head 0: ' '>strip: tiny, step 10layer 1, head 1: row mass = ' \
        '>focus: &lt;canvas' '>numbers on colors: can be read<'
    hands enter 'step=2&amp;'; hands kept 'step=5&amp;'; hands click 'step=0&amp;'
    hands legend 'off=0'; hands legend 'log=[^&]*loss'
    # a page that is being watched loads itself again, and keeps what was chosen
    run watched head -n 10
    python -c 'import report, sys; report.write(sys.argv[2], report.page([sys.argv[1]], live=True)[0])' \
        $out/watched $out/watched.html
    (sleep 2; cp $out/report.html $out/next.html; mv $out/next.html $out/watched.html) &
    dom 'watched.html#step=5&map=mass' --virtual-time-budget=2000000
    has '>✓ done<' 'row mass by layer and head of tiny, step 5: mean 8.749'
    # a last number below the axis is not cut; flags are behind a click; all and none are no runs
    for name in died held; do run $name head -n 6; : > $out/$name/lock; done
    works python -c 'import fcntl, subprocess, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); sys.exit(subprocess.call(sys.argv[2:]))' \
        $out/held/lock $PYTHON scripts/report.py $out/died $out/held test/demo/text-softmax test/demo/text-k -o $out/four.html
    dom four.html
    has 'text-anchor="end">4000</text>' '✗ died</span><div class="was run">last line' \
        '… running</span><div class="was run">last line' '<details class="flags"><summary>' 'data-all="0">no run</button>'
    # a run that has only begun says so, in place of empty frames
    run begun head -n 1; page begun $out/begun
    dom begun.html
    has 'No step is in the log yet.'; ! grep -q 'no finite numbers' $out/dom; ok $? "a run without a step has empty frames"
    # maps of heads: of two sequences, one with an extra key; a head by pointer, click and arrow keys
    $PYTHON - $out <<'END'
import array, os, sys
def npy(path, T, get):
    about = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({T}, {T + 1}), }}".encode()
    about += b" " * (-(11 + len(about)) % 64) + b"\n"
    numbers = array.array("f", [get(t, j) if j < t + 2 else 0 for t in range(T) for j in range(T + 1)])
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + bytes([len(about) % 256, len(about) // 256]) + about + numbers.tobytes())
for name, T, extra, heads in (("first", 8, 0, ((0, 0), (0, 2), (3, 0), (3, 1))), ("second", 200, 0.5, ((0, 0), (3, 1)))):
    os.makedirs(f"{sys.argv[1]}/{name}", exist_ok=True)
    for l, h in heads:
        share = 0.1 + 0.2 * l + 0.1 * h
        npy(f"{sys.argv[1]}/{name}/{l}_{h}_map.npy", T, lambda t, j: extra if j == 0 else share if j == 1 else 0)
        npy(f"{sys.argv[1]}/{name}/{l}_{h}_cosine.npy", T, lambda t, j: -1 if j else 0)
END
    echo '["The", " fog", " was", "<b>", " in", " the", " street", "."]' > $out/first/tokens.json
    page maps $out/first $out/second
    dom 'maps.html#seq=1&head=3:1'
    has 'maps of 2 sequences' 'layer 3, head 1: α₁ = 0.8000' 'the left edge is the extra key' \
        '<canvas width="67" height="67"'             # 200 tokens, three to a cell
    grep -q 'street' $out/dom; [ $? -eq 1 ]; ok $? "a map has the tokens of another"
    dom 'maps.html#seq=0'
    has '<span>fog</span><span>was</span><span>&lt;b&gt;</span>'
    [ "$(grep -o '<span>street</span>' $out/dom | wc -l)" = 2 ]; ok $? "the tokens are not on both axes"
    { sed '/<\/body>/,$d' $out/maps.html; cat <<'END'; } > $out/hands.html
<script>
const said = [], heads = () => document.querySelector("[data-heads]");
const pixel = (x, y) => [...$("head-map").querySelector("canvas").getContext("2d").getImageData(x, y, 1, 1).data].join(" ");
const say = what => said.push(what + ": " + $("head-map").textContent.split(" = ")[0] + " #" + location.hash);
const press = key => heads().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const move = el => el.dispatchEvent(new PointerEvent("pointermove", { clientX: 5, clientY: 5, bubbles: true }));
say("strongest");
move(document.querySelector('[data-head="0:2"]')); say("pointer");
move(document.body); say("away");
document.querySelector('[data-head="0:0"]').dispatchEvent(new MouseEvent("click", { bubbles: true })); say("click");
press("ArrowRight"); say("over the gap"); press("ArrowLeft"); press("ArrowDown"); say("down"); press("ArrowDown"); say("at the end");
press("Enter"); say("enter");
said.push("pixel: " + pixel(0, 5) + " / " + pixel(7, 0));
document.querySelector("[data-kind=cosine]").click(); said.push("cosine: " + pixel(0, 5));
$("seq").value = 1; $("seq").dispatchEvent(new Event("input", { bubbles: true })); say("sequence");
document.body.innerHTML = said.map(s => `<p>${esc(s)}</p>`).join("");
</script></body></html>
END
    dom hands.html
    has '>strongest: layer 3, head 1: α₁ #' '>pointer: layer 0, head 2: α₁ #' '>away: layer 3, head 1: α₁ #' \
        '>click: layer 0, head 0: α₁ ##' '>over the gap: layer 0, head 2: ' '>down: layer 3, head 0: ' \
        '>at the end: layer 3, head 0: ' '>pixel: 71 190 111 255 / 0 0 0 0<' '>cosine: 68 1 84 255<' \
        '>sequence: layer 3, head 1: α₁ #'
    hands enter 'head=3%3A0'
    # from a telephone to a wide screen nothing is wider than the page
    $PYTHON - $out/report.html $out/maps.html $out/four.html > $out/widths.html <<'END'
import html, sys
for path in sys.argv[1:]:
    page = html.escape(open(path, encoding="utf-8").read(), quote=True)
    for width in (400, 700, 2000):
        print(f'<iframe width="{width}" height="900" style="border:0" srcdoc="{page}"></iframe>')
print("""<script>onload = () => { document.body.innerHTML = [...document.querySelectorAll("iframe")].map(f => {
  const page = f.contentDocument.documentElement, cards = f.contentDocument.querySelectorAll(".card").length;
  const box = x => x.getBoundingClientRect();
  const cut = [...f.contentDocument.querySelectorAll("svg text")].filter(t =>
    box(t).left < box(t.closest("svg")).left - 1 || box(t).right > box(t.closest("svg")).right + 1);
  const fits = page.scrollWidth <= +f.width && cards > 1 && !cut.length;
  return `<p>${f.width}: ${fits ? "fits" : page.scrollWidth + ", cut: " + cut.map(t => t.textContent)}</p>`;
}).join(""); };</script>""")
END
    dom widths.html
    [ "$(grep -o '<p>[0-9]*: fits</p>' $out/dom | wc -l)" = 9 ]; ok $? "a page is wider than its window: $(grep -o '<p>[0-9]*: [^<]*' $out/dom | tr '\n' ' ')"
else skip 104 "no chromium"; fi

# ---- half a line, nulls, spikes, a growing log -----------------------------------------------------------------------------
run half cat; printf '{"event":"train","st' >> $out/half/log.jsonl
page half $out/half
grep -q '^note: .*line 19 is half written and was ignored' $said
ok $? "half a line is not said: $(cat $said)"
run null sed '5s/"loss":[0-9.]*,"grad_norm":[0-9.]*/"loss":null,"grad_norm":NaN/; 5q'
page null $out/null
grep -q 'loss is null (not finite, or no target) at 1 steps, the first is 2' $said && grep -q 'grad_norm is null' $said
ok $? "a null is not said: $(cat $said)"
grep -q '"status":"diverged"' $out/null.html && ! grep -q 'NaN[,}]\|:NaN' $out/null.html
ok $? "a null loss is no divergence, or NaN in the page"
works python - <<'END'
import report
n = 30001
values = [1.0 + 1e-6 * i for i in range(n)]
values[777], values[20000], values[12345] = 9.0, -9.0, None
steps, kept = report.thin(list(range(1, n + 1)), values)
ends = (len(kept), steps[0], steps[-1])
assert len(kept) <= report.POINTS + 2 and steps[0] == 1 and steps[-1] == n, ends
assert {9.0, -9.0, None} <= set(kept) and all(values[s - 1] == v for s, v in zip(steps, kept))
END
run live head -n 4
timeout 100 $PYTHON scripts/report.py $out/live --watch -o $out/live.html \
    > $out/watch 2>&1 & watcher=$!
wait_for() {
    for i in $(seq 200); do grep -qF "$1" $out/live.html 2> /dev/null && return; sleep 0.3; done
    return 1
}
wait_for '"reload":5'; ok $? "--watch wrote no page: $(cat $out/watch)"
sed -n '5,$p' $tiny/log.jsonl >> $out/live/log.jsonl
wait_for '"reload":0'; ok $? "--watch did not see the log grow"
wait $watcher; ok $? "--watch did not end with the run: $(cat $out/watch)"

# ---- one run that cannot be read does not stop the others: the page has a note, and so has the terminal -------------
run some/good cat; run some/empty true; run some/cut sed '3s/.*/{"event":"train",/'
for inputs in $out/some "$out/some/empty $out/some/good $out/some/cut"; do
    page some $inputs
    [ "$(grep -c '^note: .*this run was left out$' $said)" = 2 ] && ! grep -q Traceback $said
    ok $? "what was left out is not said: $(cat $said)"
    grep -q '"notes":\["[^]]*empty/log.jsonl: got an empty file' $out/some.html ||
        grep -q '"notes":\["[^]]*cut/log.jsonl, line 3.*empty/log.jsonl: got an empty file' $out/some.html
    ok $? "the page does not name the run that was left out"
done
report $out/some --csv; [ $? -eq 0 ] && [ "$(wc -l < $out/stdout)" = 4 ]; ok $? "--csv of one run of three: $(cat $said)"
works timeout 60 $PYTHON scripts/report.py $out/some --watch -o $out/some.html
# a run without an end: is a process writing to it?
run without-end head -n 5
works python - $out/without-end $tiny <<'END'
import fcntl, os, shutil, sys
import runlog
path, tiny = sys.argv[1:]
of = lambda: runlog.read_run(path)["held"]
assert of() is None, of()                       # no lock: not to be known
lock = open(path + "/lock", "w")
assert of() is False, of()
fcntl.flock(lock, fcntl.LOCK_EX)
assert of() is True, of()
lock.close()
assert of() is False, of()
shutil.copy(tiny + "/log.jsonl", path)
assert of() is False                            # it has ended
os.utime(path + "/log.jsonl", (0, 0))
assert runlog.read_run(path)["silent"] > 1e9
END
# runs below a table stand in its order
for name in a b c d; do run order/$name cat; done
works python - $out <<'END'
import json, sys
import report
out = sys.argv[1]
paths = [f"{out}/order/{name}" for name in "abcd"]
rows = [{"id": f"t-{p[-1]}", "ours": [{"seed": 1, "run": p, "status": "done"}]} for p in reversed(paths[:3])]
json.dump({"table": "t", "rows": rows}, open(out + "/order.json", "w"))
html = report.page(paths + [out + "/order.json"], live=False)[0]
data = json.loads(html.split('id="data">')[1].split("</script>")[0])
assert [r["name"] for r in data["runs"]] == ["t-c-seed1", "t-b-seed1", "t-a-seed1", "d"], data["runs"]
END
# a name that a spreadsheet would compute is a text in CSV; a negative number stays one
for name in "=HYPERLINK(1)" @x +1; do run "$name" sed '1s/"data":"[^"]*"/"data":"-1"/'; done
works python - $out <<'END'
import csv, io, sys
import export, runlog
paths = [f"{sys.argv[1]}/{name}" for name in ("=HYPERLINK(1)", "@x", "+1")]
rows = list(csv.DictReader(io.StringIO(export.csv_text(runlog.read_runs(paths)))))
assert {r["run"] for r in rows} == {"'=HYPERLINK(1)", "'@x", "+1"}, rows[0]
assert not [(k, v) for r in rows for k, v in r.items() if v[:1] in tuple("=@\t\r")]
assert export.plain("\r=2") == "?=2" and export.plain("a\nb\x1b[31m") == "a?b?[31m"
assert export.plain("-2.5") == "-2.5" and export.plain("-x") == "'-x" and export.plain(-2.5) == -2.5
END

# nothing that a terminal would obey, in what is printed and in errors
run "$(printf 'a\033[31mb')" cat; odd=$out/$name
for way in "" --csv; do
    report "$odd" $way -o "$odd/made" && grep -q 'a?\[31mb/made: ' $out/stdout; ok $? "odd name $way: $(cat $said)"
    ! grep -q "$(printf '\033')" $out/stdout $said; ok $? "an escape was printed raw: $way"
done
refused 'a?\[31mb/none' $PYTHON scripts/report.py "$odd/none"

# ---- bad input: exit status 2, what was wrong, what to type -----------------------------------------------------------------
mkdir -p $out/none
run headless sed 1d
echo '{"table":"x"}' > $out/rows.json; echo '{"table":' > $out/bad.json
R="$PYTHON scripts/report.py"
refused "missing: no such directory, wanted a run (where a log.jsonl is)"   $R runs/missing
hinted() { # what to type next, then the command
    hint=$1; shift
    refused "no such directory, wanted a run" "$@"
    grep -qxF -- "---> HINT: $hint" $said; ok $? "$*: wanted the hint '$hint': $(cat $said)"
}
hinted "make demo trains it"                          $R runs/demo-text-nowhere
hinted "train one: ./train_sink train -o runs/mine"   $R nowhere/at/all
hinted "ls $out"                                      $R $out/nowhere
refused 'none: got no log.jsonl in it, wanted a run'                       $R $out/none
mkdir -p $out/damaged; echo none > $out/damaged/0_0_map.npy
refused 'damaged/0_0_map.npy: got no .npy of version 1, wanted an array'   $R $out/damaged
refused 'empty/log.jsonl: got an empty file, wanted a line of config'      $R $out/some/empty
refused 'cut/log.jsonl, line 3: got .* wanted an object'                   $R $out/some/cut
refused 'headless/log.jsonl: got .eval. in the first line, wanted config'  $R $out/headless
refused 'rows.json: got an object without rows, wanted table, rows'        $R $out/rows.json
refused 'bad.json: got no JSON'                                            $R $out/bad.json
refused 'options: .*--wach'                                                $R $tiny --wach
refused 'report: got nothing to show'                                      $R
refused 'got .*, wanted a file to write' \
    $R $tiny -o $out/report.html/x.html
run own cat; mkfifo $out/pipe
refused "own/log.jsonl: got a run's own file" $R $tiny -o $out/own/log.jsonl
refused 'pipe: got .* none that can be replaced' $R $tiny -o $out/pipe
cmp -s $tiny/log.jsonl $out/own/log.jsonl && [ -p $out/pipe ]; ok $? "-o replaced what it refused"
# one line that names file, line and field, of whatever is damaged; before, these were tracebacks
damaged() { # name, words of the error, the words of sed that do the damage
    run damaged/$1 sed "$3"
    refused "damaged/$1/log.jsonl, $2" $R $out/damaged/$1 -o $out/x.html
}
damaged alpha  'line 2: alpha1: got nothing, wanted rows of numbers' '2s/"alpha1":/"alfa":/'
damaged step   'line 4: step: got nothing, wanted a whole number'           '4s/"step":1,//'
damaged sink   'line 2: sink.k: got .7., wanted a list of numbers'          '2s/"k":\[[0-9,]*\]/"k":7/'
damaged flags  'line 1: flags: got .\[1\]., wanted an object'             '1s/"flags":{[^}]*}/"flags":[1]/'
damaged deep   "line 3: got .*, wanted an object with an event"             "3s/.*/$(printf '%050000d' 0 | tr 0 '[')/"
damaged number 'line 4: got .5., wanted an object with an event'            '4s/.*/5/'
damaged config 'line 1: flags: got nothing, wanted an object'               '1s/.*/{"event":"config","switches":{}}/'
damaged shape  'line 2: mass: got another shape'                            '2s/"mass":\[\[[^]]*\]/"mass":[[1]/; 2s/"mass":\[\[1\],\[[^]]*\]/"mass":[[1],[1]/'
damaged layers 'line 2: layers: got another shape'                          '2s/"alpha1":/"layers":[1],"alpha1":/'
damaged layer 'line 2: layers: got .\[null, 1\]., wanted a list of whole numbers'  '2s/"alpha1":/"layers":[null,1],"alpha1":/'
damaged loss   'line 4: loss: got .{}., wanted a number or null'            '4s/"loss":[0-9.]*/"loss":{}/'
run garbage head -c 5000 /dev/urandom
refused 'garbage/log.jsonl'                                                $R $out/garbage
LC_ALL=C grep -q '[[:cntrl:]]' $said; [ $? -eq 1 ]; ok $? "garbage of a file in an error"
echo '{"table":"x","rows":[1]}' > $out/rows1.json; echo '{"sink":[],"alpha1":[]}' > $out/probe1.json
refused 'rows1.json: rows\[0\]: got .1., wanted an object with id'         $R $out/rows1.json
refused 'probe1.json: sink: got .\[\]., wanted an object with eps'         $R $out/probe1.json
run huge sed '3s/"loss":[0-9.]*/"loss":1e999/; 5s/"loss":[0-9.]*/"loss":'"$(printf '%0400d' 0 | tr 0 9)"'/'
page huge $out/huge
$PYTHON dev/fuzz/fuzz_logs.py 300 $$ > $out/fuzz; ok $? "fuzz_logs.py 300 $$: $(head -n 20 $out/fuzz)"

# ---- CSV and TensorBoard -----------------------------------------------------------------------------------------------
report $tiny --csv; ok $? "--csv: $(cat $said)"
works python - $out/stdout $tiny/log.jsonl <<'END'
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[1], encoding="utf-8")))
log = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
evals = [o for o in log if o["event"] == "eval"]
assert len(rows) == 3 and [r["step"] for r in rows] == ["0", "5", "10"]
for r, e in zip(rows, evals):
    assert r["run"] == "tiny" and r["ATTN"] == "sigmoid" and r["lr"] == "0.01" and r["status"] == "done"
    assert float(r["val_loss"]) == e["val_loss"]
    assert [float(r[f"proxy_{k}"]) for k in range(1, 11)] == e["sink"]["proxy_k"]
    assert abs(float(r["alpha1_mean"]) - sum(sum(e["alpha1"], [])) / 4) < 1e-12
    assert float(r["mass_max"]) == max(sum(e["mass"], []))
train = {o["step"]: o for o in log if o["event"] == "train"}
assert rows[0]["train_loss"] == "" and float(rows[2]["train_loss"]) == train[10]["loss"]
assert int(rows[2]["tokens"]) == train[10]["tokens"]
END
# README's example writes runs.csv beside the sources
if [ -e .git ]; then git check-ignore -q runs.csv && ! git check-ignore -q scripts/runs.csv; ok $? "git sees runs.csv"; fi
# three thresholds behind a gate, as the log of a run with GATE=head --eps 0.2,0.3,0.05 has them:
# it gives the gated Sink of the first; 0 is a number, and another threshold's is nobody's
mkdir -p $out/gated
works python - $tiny/log.jsonl $out/gated <<'END'
import csv, io, json, sys
import export, runlog
log = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
def written(effective, own=()):
    for e in log:
        if e["event"] == "eval":
            e["sinks"] = [dict(e["sink"], eps=x) for x in (0.2, 0.3, 0.05)]
            e["sink"] = dict(e["sinks"][0])
            for sink, x in zip(e["sinks"], own): sink["sink_effective"] = x
            e.update(sink_effective=effective, alpha1_gated=[[0.25, 0.5], [0.75, 1.0]])
    with open(sys.argv[2] + "/log.jsonl", "w", encoding="utf-8") as f:
        f.write("".join(json.dumps(o) + "\n" for o in log))
    rows = list(csv.DictReader(io.StringIO(export.csv_text(runlog.read_runs([sys.argv[2]])))))
    assert [r["probe_eps"] for r in rows] == ["0.2", "0.3", "0.05"] * 3
    said = {(r.get("alpha1_gated_mean"), r.get("alpha1_gated_max")) for r in rows}
    assert said == {("0.625", "1.0")}, said
    return [r["sink_effective"] for r in rows[:3]]
for wanted, got in ((["0.75", "", ""], written(0.75)), (["0", "", ""], written(0)),
                    (["0.5", "0", "1"], written(0.5, [0.5, 0, 1]))):
    assert got == wanted, f"sink_effective: got {got}, wanted {wanted}"
END
if $PYTHON -c 'import tensorboard' 2> /dev/null; then
    report $tiny --tensorboard -o $out/events; ok $? "--tensorboard: $(cat $said)"
    works python - $out/events/tiny $tiny/log.jsonl <<'END'
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
log = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
losses = [(o["step"], o["loss"]) for o in log if o["event"] == "train"]
found = [(s.step, s.value) for s in events.Scalars("train/loss")]
near = lambda a, b: a[0] == b[0] and abs(a[1] - b[1]) < 1e-5
assert len(found) == 10 and all(near(a, b) for a, b in zip(found, losses)), found
assert [s.step for s in events.Scalars("eval/sink_1")] == [0, 5, 10]
assert "eval/alpha1_mean" in events.Tags()["scalars"]
END
    refused 'events/tiny: got an earlier export' \
        $R $tiny --tensorboard -o $out/events
else
    skip 3 "no tensorboard"
    refused 'tensorboard: not installed' \
        $R $tiny --tensorboard -o $out/events
fi
mkdir -p $out/stub; echo 'raise ModuleNotFoundError("no", name="numpy")' > $out/stub/numpy.py
refused 'numpy: not installed, wanted numpy and matplotlib' \
    env PYTHONPATH=$out/stub $PYTHON scripts/plot.py heads $tiny
grep -q 'pip install numpy matplotlib' $said; ok $? "plot.py does not say what to install"

# ---- two groups of seeds: what sets them apart, and each difference with its sd -----------------------------------------
python scripts/lib/stored.py docs/results/demo.jsonl $out/demo
report --compare $out/demo/softmax $out/demo/extra-key; ok $? "--compare: $(cat $said)"
works python - $out <<'END'
import json, re, statistics, sys
text = open(f"{sys.argv[1]}/stdout", encoding="utf-8").read()
flags, measured = text.split("\n\n")[1:]
assert [line.split() for line in flags.split("\n")] == [["flag", "A", "B"], ["BIAS", "none", "k"]], flags
last = lambda run: [o for o in map(json.loads, open(f"{sys.argv[1]}/demo/{run}/log.jsonl")) if o["event"] == "eval"][-1]
def row(name, get):
    a, b = ([get(last(f"{kind}-seed{seed}")) for seed in (2, 3, 4)] for kind in ("softmax", "extra-key"))
    apart = [y - x for x, y in zip(a, b)]
    line = f"{statistics.mean(a):.4g} {statistics.mean(b):.4g} {statistics.mean(apart):+.4g} (sd {statistics.stdev(apart):.2g})"
    assert f"{name} {line}" in re.sub(" +", " ", measured).split("\n"), (name, line, measured)
row("val_loss", lambda e: e["val_loss"])
row("sink_1", lambda e: e["sink"]["sink_k"][0])
row("v_first_over_rest_mean", lambda e: statistics.mean(x / y for x, y in zip(e["v_norm_first"], e["v_norm_rest"])))
assert "sink_star" not in measured, measured               # which only one of them has
END
report --compare $out/demo/softmax-seed3 $out/demo/softmax-seed2; ok $? "--compare of two runs: $(cat $said)"
grep -q '^val_loss .* [+-]0[.0-9]*$' $out/stdout && ! grep -q '^seed ' $out/stdout; ok $? "two runs: $(cat $out/stdout)"
refused 'compare: got 1 names, wanted two'              $PYTHON scripts/report.py --compare $out/demo/softmax
refused 'demo: got two runs of seed 2, wanted one'      $PYTHON scripts/report.py --compare $out/demo $out/demo/softmax
refused 'demo/soft: no such directory'                  $PYTHON scripts/report.py --compare $out/demo/soft $out/demo/softmax
refused 'not allowed with argument'                     $PYTHON scripts/report.py --compare --csv $out/demo/softmax

# ---- figures ------------------------------------------------------------------------------------------------------------
if ! $PYTHON -c 'import numpy, matplotlib' 2> /dev/null; then skip 25 "no matplotlib"; end; fi
# the example draws the seeds, and a band of their mean and standard deviation
works python - $out <<'END'
import json, runpy, statistics, sys
runs = [f"{sys.argv[1]}/demo/softmax-seed{seed}" for seed in (2, 3, 4)] + [f"{sys.argv[1]}/demo/sigmoid-seed2"]
sys.argv = ["example.py", *runs, f"{sys.argv[1]}/example.png"]
plt = runpy.run_path("scripts/example.py")["plt"]
sinks = [[100 * o["sink"]["proxy_k"][0] for o in map(json.loads, open(run + "/log.jsonl")) if o["event"] == "eval"] for run in runs]
lines, bands = plt.gca().lines, plt.gca().collections
assert [list(line.get_ydata()) for line in lines] == sinks and len(bands) == 2
edges = {(x, round(y, 6)) for x, y in bands[0].get_paths()[0].vertices}
for i, step in enumerate(lines[0].get_xdata()):
    x = [sink[i] for sink in sinks[:3]]
    for edge in (-1, 1): assert (step, round(statistics.mean(x) + edge * statistics.stdev(x), 6)) in edges, (step, x)
END
[ -s $out/example.png ]; ok $? "example.py wrote no figure"
works python - $out <<'END'
# every figure writes both files, the same bytes twice, and its lines and images
# are the numbers of the log
import contextlib, json, os, shlex, shutil, sys, time
import matplotlib.pyplot as plt
import numpy as np
import drawing, plot, runlog
from xml.dom import minidom
out, tiny = sys.argv[1], "test/report/tiny"
log = [json.loads(line) for line in open(tiny + "/log.jsonl", encoding="utf-8")]
evals = [o for o in log if o["event"] == "eval"]
e = evals[-1]
probe = dict(e, data="bb", sinks=[dict(e["sink"], eps=x, proxy_k=[1 - x] * 10) for x in (0.1, 0.3)])
longer = [dict(s, T=64, proxy_k=[0] * 10 if s["eps"] == 0.1 else s["proxy_k"])
          for s in probe["sinks"]]
probe["all"] = [dict(probe), dict(probe, sink=dict(e["sink"], T=64), sinks=longer,
                                  alpha=np.full((3, 2, 2, 10), 0.25).tolist())]
json.dump(probe, open(out + "/probe.json", "w"))
os.makedirs(out + "/maps")
T = 5
for kind in ("map", "cosine", "product"):
    x = np.arange(T * (T + 1), dtype=np.float32).reshape(T, T + 1) / 30
    x = np.tril(x, 1) + (kind == "product")
    x[2, 3] = 0                                             # seen, and given nothing
    np.save(f"{out}/maps/0_1_{kind}.npy", x)

for name, loss in (("plain-s1", 3.0), ("plain-s2", 3.2), ("k-s1", 2.9)):   # what eval --json writes
    os.makedirs(out + "/losses/" + name)
    json.dump({"T": 16, "runs": [{"kind": "edit", "by_position": [9] * 8},
                                 {"kind": "plain", "by_position": [loss + i for i in range(8)]}]},
              open(f"{out}/losses/{name}/loss.json", "w"))

# what probe --anatomy writes; a layer without an FFN has no form
fields = ("state", "wrote", "form", "ratio", "ratio_others", "aligned_first", "aligned_rest", "attn_same",
          "attn_same_later", "attn_spread")
anatomy = {name: [i + 1.5, None if name == "form" else i + 2, i + 4] for i, name in enumerate(fields)}
json.dump(dict(e, anatomy=dict(anatomy, channel=7, step_up=1, step_down=None)), open(out + "/deep.json", "w"))

drawn = {}
def keep(figure, where, name):
    drawn.setdefault(name, []).append(figure)
    save(figure, where, name)
save, plot.save = plot.save, keep
def draw(*lines):
    for line in lines: plot.main([*shlex.split(line), "-o", out + "/figures"])
with contextlib.redirect_stdout(sys.stderr):
    draw(f"all {tiny}")
    first = {n: open(f"{out}/figures/{n}", "rb").read()
             for n in os.listdir(out + "/figures") if n.startswith("profiles")}
    draw(f"dynamics --logx {tiny}", f"maps {out}/maps", f"threshold {out}/probe.json", f"profiles {out}/probe.json",
         "table test/report/table.json", f"heads {tiny} --step 5", f"film {tiny}",
         "film test/demo/text-k --title 'The key takes $5'",
         "dynamics test/demo/text-softmax test/demo/text-sigmoid test/demo/text-k",
         "table docs/results/interventions-text.json", f"onset {tiny}", f"onset {tiny} --labels 'the only one'",
         f"onset {tiny} --title ''", f"anatomy {out}/deep.json",
         f"positions {out}/losses/plain-s1/loss.json {out}/losses/plain-s2/loss.json {out}/losses/k-s1/loss.json",
         f"profiles {tiny}")
    # without -o they stand beside what was drawn, wherever one is
    shutil.copytree(tiny, out + "/beside/tiny")
    plot.main(["profiles", out + "/beside/tiny/"])
    assert os.listdir(out + "/beside/figures")
    # a probe in place of a run; one layer and one head; the heads of a large model, in one picture
    one = dict(e, alpha1=[[0.25]], alpha1_proxy=[[0.25]], data="a long path/to some text.txt",
               **{k: [[0.5]] for k in ("alpha_star", "alpha_star_proxy", "mass", "entropy")})
    json.dump(one, open(out + "/one.json", "w"))
    os.makedirs(out + "/big")
    for l in range(30):
        for h in range(9):
            np.save(f"{out}/big/{l}_{h}_map.npy",
                    np.tril(np.full((64, 65), 0.5 if (l, h) == (29, 8) else 0.01, np.float32), 1))
    started = time.time()
    draw(f"maps {out}/big")
    assert time.time() - started < 60, "270 heads took %.0f s" % (time.time() - started)
    draw(f"all {out}/one.json", f"heads {out}/probe.json {tiny}", f"norms {out}/probe.json", f"maps {out}/maps --head 0:1")
assert all(open(f"{out}/figures/{n}", "rb").read() == data
           for n, data in first.items()) and len(first) == 2, "not the same bytes"
wanted = {"film-tiny", "film-text-k", "dynamics-tiny", "heads-tiny", "norms-tiny", "ratios-tiny", "profiles-tiny",
          "maps-maps-0_1", "threshold-probe", "profiles-probe", "table-table",
          "maps-big", "heads-one", "norms-one", "ratios-one", "profiles-one", "heads-probe-tiny",
          "norms-probe-T-32", "norms-probe-T-64", "ratios-probe",
          "dynamics-text-softmax-text-sigmoid-text-k", "table-interventions-text",
          "positions", "onset-tiny", "anatomy-deep"}
assert set(drawn) == wanted, set(drawn) ^ wanted
for name in wanted:
    assert open(f"{out}/figures/{name}.png", "rb").read(8) == b"\x89PNG\r\n\x1a\n"
    minidom.parse(f"{out}/figures/{name}.svg")

def lines(name, axis):
    return [list(l.get_ydata()) for l in drawn[name][0].axes[axis].get_lines()]
def image(name, at=0): return drawn[name][at].axes[0].images[0].get_array()
def holds(name, axis, values):
    same = (len(y) == len(values) and np.allclose(y, values) for y in lines(name, axis))
    assert any(same), (name, axis, values, lines(name, axis))
holds("dynamics-tiny", 0, [x["val_loss"] for x in evals])
holds("dynamics-tiny", 0, [x["loss"] for x in log if x["event"] == "train"])
holds("dynamics-tiny", 1, [100 * x["sink"]["proxy_k"][0] for x in evals])
holds("dynamics-tiny", 1, [100 * x["sink"]["sink_star"] for x in evals])
assert np.allclose(image("heads-tiny"), e["alpha1_proxy"])
# --step 5
assert np.allclose(image("heads-tiny", 1), evals[1]["alpha1_proxy"])
for axis, key in enumerate("hkv"):
    holds("norms-tiny", axis, e[key + "_norm_first"])
    holds("norms-tiny", axis, e[key + "_norm_rest"])
    holds("ratios-tiny", axis, np.array(e[key + "_norm_first"]) / e[key + "_norm_rest"])
# a film: the strip has a row per head and a column per evaluation, the film a picture per evaluation
strip = drawn["film-tiny"][0].axes[0].collections[0].get_array().reshape(4, 3)
assert np.allclose(strip, np.array([x["alpha1_proxy"] for x in evals]).reshape(3, 4).T), strip
assert [t.get_text() for t in drawn["film-tiny"][0].axes[0].get_yticklabels()] == ["0:0", "0:1", "1:0", "1:1"]
from PIL import Image
assert Image.open(out + "/figures/film-tiny.gif").n_frames == 3    # and the last one, held
assert drawn["film-text-k"][0]._suptitle.get_text() == r"The key takes \$5"
for axis, name in ((0, "state"), (1, "wrote"), (2, "ratio"), (3, "aligned_rest"), (4, "attn_same_later"), (5, "attn_spread")):
    holds("anatomy-deep", axis, anatomy[name])
gap, = (y for y in lines("anatomy-deep", 1) if len(y) == 3 and np.isnan(y[1]))
assert gap[::2] == anatomy["form"][::2], gap
assert "channel 7" in drawn["anatomy-deep"][0].axes[0].get_title(loc="left")
holds("profiles-tiny", 0, [100 * x for x in e["sink"]["proxy_k"]])
holds("profiles-probe", 1, [0.25] * 10)
for share in (0, 70, 90):  # T 32 and 64 at both thresholds of the probe
    holds("profiles-probe", 0, [share] * 10)
figure = drawn["heads-one"][0]
ax = figure.axes[0]
assert list(ax.get_xticks()) == [0] and list(ax.get_yticks()) == [0], ax.get_xticks()
assert image("heads-one").tolist() == [[0.25]]
box = figure._suptitle.get_window_extent()
assert 0 <= box.x0 and box.x1 <= figure.bbox.x1, (box, figure.bbox)
assert "a long path" in figure._suptitle.get_text()
assert len(drawn["heads-probe-tiny"][0].axes) >= 3
holds("norms-probe-T-64", 0, e["h_norm_first"])
picture = image("maps-big")
assert np.isclose(picture[:, :8 * 66].max(), 0.01) and np.isclose(picture.max(), 0.5)
# the paper's 3.73 is of the Pile
ax = drawn["table-table"][0].axes[2]
losses, title = [float(x) for l in ax.get_lines() for x in l.get_xdata()], ax.get_title(loc="left")
assert "on bb" in title and losses and max(losses) < 3.71, (title, losses)
# no two series of a panel look alike, but seeds of one run and what a curve is drawn with twice;
# the colors are those of the list
for name, figures in drawn.items():
    for ax in figures[0].axes:
        named = [l for l in ax.get_lines() if not l.get_label().startswith("_")]
        looks = [(l.get_color(), l.get_linestyle(), l.get_marker()) for l in named]
        assert len(set(looks)) == len(looks), (name, looks)
        assert {l.get_color() for l in named} <= {*drawing.COLORS, drawing.PAPER}, (name, looks)
# three models, two of them at 0% and one at 100% of both: each has a panel, at its true values
three = drawn["dynamics-text-softmax-text-sigmoid-text-k"][0].axes[1:4]
assert [ax.get_title(loc="left") for ax in three] == ["text-softmax", "text-sigmoid (shares)", "text-k"]
flat = [[l for l in ax.get_lines() if len(l.get_ydata()) == 9 and l.get_linestyle() == "-"] for ax in three]
assert [len(lines) for lines in flat] == [1, 1, 1] and len({lines[0].get_color() for lines in flat}) == 3, flat
assert all(0 <= y <= 100 for ax in three for l in ax.get_lines() for y in l.get_ydata())
assert all(l.get_transform() == ax.transData for ax in three for l in ax.get_lines())
# seeds: the one in the middle, and a band from the least to the largest
figure, ax = plt.subplots()
drawing.middle_and_range(ax, range(2), [[1, 2], [3, 9], [2, 4]], {"color": drawing.COLORS[0]}, "three")
assert list(ax.get_lines()[0].get_ydata()) == [2, 4]
band = ax.collections[0].get_paths()[0].vertices[:, 1]
assert (band.min(), band.max()) == (1, 9), band
plt.close(figure)
# a table: rows without the table's name, no axis of losses from 0, every seed a dot that can be
# told from the next, numbers in one column, percent to a tenth
table = drawn["table-interventions-text"][0]
rows = json.load(open("docs/results/interventions-text.json"))["rows"]
assert [t.get_text() for t in table.axes[0].get_yticklabels()] == [
    r["id"].removeprefix("interventions-") for r in rows]
assert "e2bc41881d55102c" not in table._suptitle.get_text() and "novel" in table._suptitle.get_text()
losses = table.axes[2]
values = [o["last"]["val_loss"] for r in rows for o in r["ours"]]
assert min(values) - 0.2 < losses.get_xlim()[0] < min(values), losses.get_xlim()
for ax in table.axes:
    assert len({t.xy[0] for t in ax.texts}) == 1 and len(ax.texts) == len(rows)
dots = [l for l in table.axes[0].get_lines() if l.get_marker() == "o" and len(l.get_xdata()) == 3]
assert len(dots) == len(rows) and all(len(set(l.get_ydata())) == 3 for l in dots)
shown = [t.get_text() for t in table.axes[0].texts]
assert shown[0] == "99.7" and shown[1] == "0" and not [t for t in shown if "." in t and len(t.split(".")[1]) > 1]
# the map is drawn once, from its first column on
drawn_map, = drawn["maps-maps-0_1"][0].axes[0].images
assert drawn_map.get_array().shape[0] == T and drawn_map.get_extent()[0] < 1
holds("threshold-probe", 0, [90, 0])
holds("threshold-probe", 1, [90, 70])
holds("onset-tiny", 0, [np.max(x["alpha1_proxy"]) for x in evals])
holds("onset-tiny", 1, [max(np.array(x["h_norm_first"][1:]) / x["h_norm_rest"][1:]) for x in evals])
holds("onset-tiny", 2, [max(np.array(x["h_max"]) / x["h_median"]) for x in evals])
texts = [[t.get_text() for t in f.legends[0].get_texts()] for f in drawn["onset-tiny"]]
assert texts[0][0].startswith("tiny: ") and texts[1] == ["the only one"], texts
titles = [f._suptitle for f in drawn["onset-tiny"]]
assert titles[0] and titles[2] is None, titles
holds("positions", 0, np.repeat(np.arange(8) + 3.2, 2))        # a level for each eighth
holds("positions", 1, np.full(2, -0.2))                        # 2.9 less the mean of 3.0 and 3.2
holds("positions", 2, np.full(14, -0.2))
assert [t.get_text() for t in drawn["positions"][0].legends[0].get_texts()] == ["plain", "k"]
picture = image("maps-maps-0_1")
assert picture.shape == (T, T + 1) and np.isclose(picture[4, 5], 29 / 30)
assert picture.mask[0, 2] and not picture.mask[0, 1] and not picture.mask[2, 3]
widths = sorted(round(float(p.get_width()), 2) for p in drawn["table-table"][0].axes[0].patches)
assert widths == [0, 0, 0, 0, 18.18, 47.0, 61.0, 69.03], widths
END
P="$PYTHON scripts/plot.py"
printf 'not an array' > $out/maps/0_1_map.npy
refused "figure: got 'haeds', wanted one of dynamics"                       $P haeds $tiny
refused 'heads: got nothing to draw, wanted RUN'                            $P heads
refused 'none: got no LAYER_HEAD_map.npy'                                   $P maps $out/none
refused 'maps/0_1_map.npy: got .* wanted an array'                          $P maps $out/maps
refused 'one.json: got a probe, wanted a run' \
    $P dynamics $out/one.json
refused "head: got '1', wanted LAYER:HEAD" \
    $P maps $out/maps --head 1
refused '\--head 7:1: got no such map in .*maps, wanted one of 0:1' \
    $P maps $out/maps --head 0:1,7:1
refused 'one.json: got one length and one threshold, wanted several' $P threshold $out/one.json
refused '\--labels: got 2, wanted 1, for tiny'                               $P onset $tiny --labels A,B
refused '\--labels: got heads, wanted one of dynamics onset'                 $P heads $tiny --labels A
refused '\--step: got dynamics, wanted one of heads norms profiles all'      $P dynamics $tiny --step 5
refused '\--step: got onset, wanted one of heads norms profiles all'         $P onset $tiny --step 0
refused '\--head: got heads, wanted one of maps'                             $P heads $tiny --head 0:0
refused '\--logx: got norms, wanted one of dynamics onset all'               $P norms $tiny --logx
refused "\--labels: got 'A,', wanted a name in every part"                  $P onset $tiny --labels A,
refused "\--labels: got '', wanted a name in every part"                    $P onset $tiny --labels ''
mkdir -p $out/unmeasured && grep -v '"event": *"eval"' $tiny/log.jsonl > $out/unmeasured/log.jsonl
refused 'got no evaluation, wanted one'                                     $P onset $out/unmeasured
echo '{"T": 16, "runs": [{"kind": "plain", "by_position": [1, 1, 1, 1, 1, 1, 1, null]}]}' > $out/null.json
refused 'null.json: got no plain run with a by_position of 8 numbers'       $P positions $out/null.json
refused 'one.json: got an object without T, runs, wanted T, runs'           $P positions $out/one.json
echo '{"T": 16, "runs": [{"kind": "plain", "by_position": [1, 2]}]}' > $out/short.json
refused 'short.json: got no plain run with a by_position of 8 numbers'      $P positions $out/short.json
echo '{"T": 32, "runs": [{"kind": "plain", "by_position": [1, 1, 1, 1, 1, 1, 1, 1]}]}' > $out/long.json
refused 'positions: got sequences of \[16, 32\] tokens, wanted one length' \
    $P positions $out/losses/k-s1/loss.json $out/long.json
refused 'step 7: .* was not measured there, wanted one of 0 5 10'           $P heads $tiny --step 7
end
