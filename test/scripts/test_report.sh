# scripts/report.py and scripts/plot.py on a stored run (test/report/tiny: 10 steps of a sigmoid model with K biases on README.md)
# PYTHON=/path/python3 chooses another python, such as one with matplotlib. What is not installed is skipped and counted
. test/ok.sh
skipped=0; why=
skip() { skipped=$((skipped + $1)); shift; why="$why${why:+, }$*"; }
end() {
    [ $skipped -eq 0 ] || echo "skipped: $skipped checks of test_report ($why)"
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]; exit
}
PYTHON=${PYTHON:-python3}
command -v "$PYTHON" > /dev/null 2>&1 || { skip 60 "no python3"; end; }
export PYTHONDONTWRITEBYTECODE=1
out=build/test/report; tiny=test/report/tiny
rm -rf $out; mkdir -p $out
report() { $PYTHON scripts/report.py "$@" > $out/stdout 2> $out/stderr; }

# ---- the page holds the numbers, nothing from outside, and no text of a run can become a tag ---------------------------
report $tiny -o $out/report.html test/report/table.json; ok $? "report: $(cat $out/stderr)"
[ -s $out/report.html ] && ! grep -nE 'https?:|src=|href=|@import|url\(' $out/report.html \
    > $out/grep
ok $? "the page refers to something outside: $(head -c 200 $out/grep)"
$PYTHON - $out/report.html $tiny/log.jsonl > $out/stdout 2>&1 <<'END'; ok $? "numbers: $(tail -n 1 $out/stdout)"
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
mkdir -p $out/evil
sed 's/{"event":"sample","step":10,"text":".*/{"event":"sample","step":10,"text":"<\/script><script>document.title=1<\/script>"}/' $tiny/log.jsonl > $out/evil/log.jsonl
report $out/evil -o $out/evil.html; ok $? "a sample with a tag: $(cat $out/stderr)"
[ "$(grep -c '</script>' $out/evil.html)" = 2 ]; ok $? "a sample ended the script"

# what is written can be read on what it stands on, and what is drawn can be seen: WCAG 2.1's 4.5 and 3 to 1
$PYTHON - scripts/report.html > $out/stdout 2>&1 <<'END'; ok $? "contrast: $(tail -n 1 $out/stdout)"
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
}
has() { grep -qF -- "$1" $out/dom; ok $? "the page in a browser lacks '$1'"; }
if [ -n "$browser" ] && [ $failed -eq 0 ]; then
    dom 'report.html#hover=loss:5'
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log
    ok $? "errors of the script"
    # tables
    has '4.278'
    has '>✓ done<'
    has 'ATTN=sigmoid BIAS=k'; has '44.00 – 50.00'; has '✗ does not hold'; has '&lt;not a tag&gt;'
    # what the pointer reads
    has '<b>step 5</b>'; has '>4.902<'; has '>5.003<'
    # the proxy, not raw weights: 100%
    has 'token 1 gets more than ε; at the end: tiny 0.0%.'
    has 'α₁ by layer and head of tiny, step 10: mean 0.09323, largest 0.09469 in layer 0, head 1'
    dom 'report.html#step=5&map=mass&off='
    has 'row mass by layer and head of tiny, step 5: mean 8.749'; has '>5</output>'
    dom 'evil.html#off=0'
    has 'data-group="0" aria-pressed="false"'
    has '&lt;/script&gt;&lt;script&gt;document.title=1'; has '<title>train_sink report</title>'
    has 'no finite numbers to draw'
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
    report $out/model.json -o $out/model.html; ok $? "a probe: $(cat $out/stderr)"
    dom model.html
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log
    ok $? "errors of the script on a probe"
    has '2 probes'
    has 'model T 32'
    has '>probed<'
    has 'Sink₁ by threshold ε'
    has 'Sink₁ by length T'; has 'α₁ by layer and head of model T 16'; has '&lt;b&gt;text'
    has 'aria-label="|h|, first token; thin: the others'
    has 'aria-label="|k|, first token; thin: the others'
    report $out/mamba.json -o $out/mamba.html
    ok $? "a probe of a model with Mamba: $(cat $out/stderr)"
    dom mamba.html
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log
    ok $? "errors of the script on layers without attention"
    has 'in layer 1, head'; has 'data-cell="0,1,0,'
    report $tiny $out/went $out/model.json -o $out/went.html
    ok $? "a run with new fields: $(cat $out/stderr)"
    dom 'went.html#map=gatefirst'
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log
    ok $? "errors of the script on new fields"
    has 'went went on at step 7: lr [0.01,0.25]'
    has 'lr 0.25'
    has 'min_lr 0.125'
    has 'beta2 0.5'; has 'gate of token 1 by layer and head of went, step 10: mean 0.2500'
    # hands on it: slider, pointer on a cell, a point of a curve clicked, arrow keys, maps over training, legend
    { sed '/<\/body>/,$d' $out/report.html; cat <<'END'; } > $out/hands.html
<script>
const said = [], say = what => said.push(what + ": " + tip.textContent.replace(/\s+/g, " ") + " #" + location.hash);
const at = (x, y) => ({ clientX: x, clientY: y, bubbles: true }), chart = id => document.querySelector(`[data-chart=${id}]`);
const part = (el, x) => { const b = el.getBoundingClientRect(); return at(b.left + x * b.width, b.top + b.height / 2); };
$("step").value = 1; $("step").dispatchEvent(new Event("input", { bubbles: true })); say("slider");
document.querySelector("[data-cell]").dispatchEvent(new PointerEvent("pointermove", at(300, 300))); say("cell");
chart("loss").dispatchEvent(new PointerEvent("pointermove", part(chart("loss"), 0.99))); say("pointer");
chart("loss").dispatchEvent(new MouseEvent("click", part(chart("loss"), 0.13))); say("click");
chart("grad").dispatchEvent(new KeyboardEvent("keydown", { key: "Home", bubbles: true })); say("home");
chart("grad").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true })); say("right");
const press = (el, key) => el.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
press(chart("grad"), "Enter"); say("enter");
const cells = document.querySelector("[data-cells]");
press(cells, "ArrowDown"); say("largest"); press(cells, "ArrowLeft"); say("left"); press(cells, "ArrowDown"); say("down");
press(cells, "Escape"); say("escape");
document.querySelector("[data-over]").click(); document.querySelector("[data-map=mass]").click();
const kept = document.querySelector("[data-strip]");
kept.focus(); press(kept, "ArrowUp"); say("last step"); press(kept, "ArrowLeft"); say("before it"); press(kept, "Enter"); say("kept");
said.push("focus: " + document.activeElement.outerHTML.slice(0, 60));
const lights = ([a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const inks = [...Array(1001).keys()].map(i => viridis(i / 1000)).map(c => lights([light(c), bright(c) ? 0 : 1]));
said.push("numbers on colors: " + (Math.min(...inks) >= 4.5 ? "can be read" : Math.min(...inks)));
const canvas = document.querySelector("canvas");
canvas.dispatchEvent(new PointerEvent("pointermove", { ...part(canvas, 0.99), clientY: canvas.getBoundingClientRect().bottom - 1 })); say("strip");
document.querySelector("[data-log=loss]").click(); document.querySelector("[data-group]").click(); say("legend");
document.body.innerHTML = said.map(s => `<p>${esc(s)}</p>`).join("");
</script></body></html>
END
    dom hands.html
    has '>slider:  ##step=5&amp;'
    has '>cell: tiny, step 5layer 0, head 0: α₁ = 0.09'
    has '>pointer: step 10 validation, trainingtiny4.2784.065 #'
    has '>home: step 1tiny1.7'
    has '>right: step 2tiny2.'; has '>strip: tiny, step 10layer 1, head 1: row mass = '
    has '>enter: step 2tiny2.'; grep '>enter: ' $out/dom | grep -q 'step=2&amp;'; ok $? "Enter on a curve does not choose its step"
    has '>largest: tiny, step 0layer '; has '>down: tiny, step 0layer 1, head 0: α₁ = '; has '>escape: tiny, step 0layer'
    has '>last step: tiny, step 10layer 0, head 0: row mass = '; has '>before it: tiny, step 5layer 0, head 0: '
    grep '>kept: ' $out/dom | grep -q 'step=5&amp;'; ok $? "Enter on a map over training does not choose its step"
    has '>focus: &lt;canvas'
    has '>numbers on colors: can be read<'
    grep '>click: ' $out/dom | grep -q 'step=0&amp;'
    ok $? "a click on a curve does not choose its step: $(grep click: $out/dom)"
    grep '>legend: ' $out/dom | grep 'off=0' | grep -q 'log=[^&]*loss'
    ok $? "legend or log button: $(grep legend: $out/dom)"
    # a page that is being watched loads itself again, and keeps what was chosen
    mkdir -p $out/watched; head -n 10 $tiny/log.jsonl > $out/watched/log.jsonl
    $PYTHON -c 'import sys; sys.path[:0] = ["scripts", "scripts/lib"]; import report; report.write(sys.argv[2], report.page([sys.argv[1]], live=True)[0])' \
        $out/watched $out/watched.html
    (sleep 2; cp $out/report.html $out/next.html; mv $out/next.html $out/watched.html) &
    dom 'watched.html#step=5&map=mass' --virtual-time-budget=2000000
    has '>✓ done<'; has 'row mass by layer and head of tiny, step 5: mean 8.749'
    # a last number below the axis is not cut; flags are behind a click; all and none are no runs
    mkdir -p $out/died $out/held; head -n 6 $tiny/log.jsonl | tee $out/died/log.jsonl > $out/held/log.jsonl
    : > $out/died/lock; : > $out/held/lock
    $PYTHON -c 'import fcntl, subprocess, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); sys.exit(subprocess.call(sys.argv[2:]))' \
        $out/held/lock $PYTHON scripts/report.py $out/died $out/held test/demo/text-softmax test/demo/text-k -o $out/four.html > $out/stdout 2>&1
    ok $? "four runs: $(cat $out/stdout)"
    dom four.html
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log
    ok $? "errors of the script on runs without an end"
    has 'text-anchor="end">4000</text>'
    has '✗ died</span><div class="was run">last line'; has '… running</span><div class="was run">last line'
    has '<details class="flags"><summary>'; has 'data-all="0">no run</button>'
    # a run that has only begun says so, in place of empty frames
    mkdir -p $out/begun; head -n 1 $tiny/log.jsonl > $out/begun/log.jsonl
    report $out/begun -o $out/begun.html; dom begun.html
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log
    ok $? "errors of the script on a run without a step"
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
    report $out/first $out/second -o $out/maps.html; ok $? "maps of heads: $(cat $out/stderr)"
    dom 'maps.html#seq=1&head=3:1'
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log
    ok $? "errors of the script on maps of heads"
    has 'maps of 2 sequences'; has 'layer 3, head 1: α₁ = 0.8000'; has 'the left edge is the extra key'
    has '<canvas width="67" height="67"'             # 200 tokens, three to a cell
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
    has '>strongest: layer 3, head 1: α₁ #'; has '>pointer: layer 0, head 2: α₁ #'; has '>away: layer 3, head 1: α₁ #'
    has '>click: layer 0, head 0: α₁ ##'; has '>over the gap: layer 0, head 2: '; has '>down: layer 3, head 0: '; has '>at the end: layer 3, head 0: '
    grep '>enter: ' $out/dom | grep -q 'head=3%3A0'; ok $? "Enter keeps no head: $(grep enter: $out/dom)"
    has '>pixel: 71 190 111 255 / 0 0 0 0<'; has '>cosine: 68 1 84 255<'
    has '>sequence: layer 3, head 1: α₁ #'
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
else skip 81 "no chromium"; fi

# ---- half a line, nulls, spikes, a growing log -----------------------------------------------------------------------------
mkdir -p $out/half $out/null $out/live
{ cat $tiny/log.jsonl; printf '{"event":"train","st'; } > $out/half/log.jsonl
report $out/half -o $out/half.html; ok $? "half a line: $(cat $out/stderr)"
grep -q '^note: .*line 19 is half written and was ignored' $out/stderr
ok $? "half a line is not said: $(cat $out/stderr)"
head -n 5 $tiny/log.jsonl |
    sed '5s/"loss":[0-9.]*,"grad_norm":[0-9.]*/"loss":null,"grad_norm":NaN/' > $out/null/log.jsonl
report $out/null -o $out/null.html; ok $? "a null: $(cat $out/stderr)"
grep -q 'loss is null (not finite, or no target) at 1 steps, the first is 2' $out/stderr &&
    grep -q 'grad_norm is null' $out/stderr
ok $? "a null is not said: $(cat $out/stderr)"
grep -q '"status":"diverged"' $out/null.html && ! grep -q 'NaN[,}]\|:NaN' $out/null.html
ok $? "a null loss is no divergence, or NaN in the page"
$PYTHON - > $out/stdout 2>&1 <<'END'; ok $? "thin: $(tail -n 1 $out/stdout)"
import sys
sys.path[:0] = ["scripts", "scripts/lib"]
import report
n = 30001
values = [1.0 + 1e-6 * i for i in range(n)]
values[777], values[20000], values[12345] = 9.0, -9.0, None
steps, kept = report.thin(list(range(1, n + 1)), values)
ends = (len(kept), steps[0], steps[-1])
assert len(kept) <= report.POINTS + 2 and steps[0] == 1 and steps[-1] == n, ends
assert {9.0, -9.0, None} <= set(kept) and all(values[s - 1] == v for s, v in zip(steps, kept))
END
head -n 4 $tiny/log.jsonl > $out/live/log.jsonl
timeout 100 $PYTHON scripts/report.py $out/live --watch -o $out/live.html \
    > $out/watch 2>&1 & watcher=$!
wait_for() {
    tries=0
    until grep -qF "$1" $out/live.html 2> /dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || return 1
        sleep 0.3
    done
}
wait_for '"reload":5'; ok $? "--watch wrote no page: $(cat $out/watch)"
sed -n '5,$p' $tiny/log.jsonl >> $out/live/log.jsonl
wait_for '"reload":0'; ok $? "--watch did not see the log grow"
wait $watcher; ok $? "--watch did not end with the run: $(cat $out/watch)"

# ---- one run that cannot be read does not stop the others: the page has a note, and so has the terminal -------------
mkdir -p $out/some/good $out/some/empty $out/some/cut
cp $tiny/log.jsonl $out/some/good; : > $out/some/empty/log.jsonl; sed '3s/.*/{"event":"train",/' $tiny/log.jsonl > $out/some/cut/log.jsonl
for inputs in $out/some "$out/some/empty $out/some/good $out/some/cut"; do
    report $inputs -o $out/some.html; ok $? "one run of three: $(cat $out/stderr)"
    [ "$(grep -c '^note: .*this run was left out$' $out/stderr)" = 2 ] && ! grep -q Traceback $out/stderr
    ok $? "what was left out is not said: $(cat $out/stderr)"
    grep -q '"notes":\["[^]]*empty/log.jsonl: got an empty file' $out/some.html ||
        grep -q '"notes":\["[^]]*cut/log.jsonl, line 3.*empty/log.jsonl: got an empty file' $out/some.html
    ok $? "the page does not name the run that was left out"
done
report $out/some --csv; [ $? -eq 0 ] && [ "$(wc -l < $out/stdout)" = 4 ]; ok $? "--csv of one run of three: $(cat $out/stderr)"
timeout 60 $PYTHON scripts/report.py $out/some --watch -o $out/some.html > $out/stdout 2>&1; ok $? "--watch beside an empty log: $(cat $out/stdout)"
# a run without an end: is a process writing to it?
$PYTHON - $out $tiny > $out/stdout 2>&1 <<'END'; ok $? "held: $(tail -n 1 $out/stdout)"
import fcntl, os, sys
sys.path[:0] = ["scripts", "scripts/lib"]
import runlog
path = sys.argv[1] + "/without-end"
os.makedirs(path)
lines = open(sys.argv[2] + "/log.jsonl", encoding="utf-8").readlines()
open(path + "/log.jsonl", "w").writelines(lines[:5])
of = lambda: runlog.read_run(path)["held"]
assert of() is None, of()                       # no lock: not to be known
lock = open(path + "/lock", "w")
assert of() is False, of()
fcntl.flock(lock, fcntl.LOCK_EX)
assert of() is True, of()
lock.close()
assert of() is False, of()
open(path + "/log.jsonl", "w").writelines(lines)
assert runlog.read_run(path)["held"] is False   # it has ended
os.utime(path + "/log.jsonl", (0, 0))
assert runlog.read_run(path)["silent"] > 1e9
END
# runs below a table stand in its order
$PYTHON - $out $tiny > $out/stdout 2>&1 <<'END'; ok $? "order: $(tail -n 1 $out/stdout)"
import json, shutil, sys
sys.path[:0] = ["scripts", "scripts/lib"]
import report
out, tiny = sys.argv[1:]
paths = [f"{out}/order/{name}" for name in "abcd"]
for path in paths: shutil.copytree(tiny, path)
rows = [{"id": f"t-{p[-1]}", "ours": [{"seed": 1, "run": p, "status": "done"}]} for p in reversed(paths[:3])]
json.dump({"table": "t", "rows": rows}, open(out + "/order.json", "w"))
html = report.page(paths + [out + "/order.json"], live=False)[0]
data = json.loads(html.split('id="data">')[1].split("</script>")[0])
assert [r["name"] for r in data["runs"]] == ["t-c-seed1", "t-b-seed1", "t-a-seed1", "d"], data["runs"]
END
# a name that a spreadsheet would compute is a text in CSV; a negative number stays one
mkdir -p "$out/=HYPERLINK(1)" "$out/@x" "$out/+1"
for name in "=HYPERLINK(1)" @x +1; do sed '1s/"data":"[^"]*"/"data":"-1"/' $tiny/log.jsonl > "$out/$name/log.jsonl"; done
$PYTHON - $out > $out/stdout 2>&1 <<'END'; ok $? "CSV of formulas: $(tail -n 1 $out/stdout)"
import csv, io, sys
sys.path[:0] = ["scripts", "scripts/lib"]
import export, runlog
paths = [f"{sys.argv[1]}/{name}" for name in ("=HYPERLINK(1)", "@x", "+1")]
rows = list(csv.DictReader(io.StringIO(export.csv_text(runlog.read_runs(paths)))))
assert {r["run"] for r in rows} == {"'=HYPERLINK(1)", "'@x", "+1"}, rows[0]
assert not [(k, v) for r in rows for k, v in r.items() if v[:1] in tuple("=@\t\r")]
assert export.plain("\r=2") == "?=2" and export.plain("a\nb\x1b[31m") == "a?b?[31m"
assert export.plain("-2.5") == "-2.5" and export.plain("-x") == "'-x" and export.plain(-2.5) == -2.5
END

# nothing that a terminal would obey, in what is printed and in errors
odd=$(printf '%s/a\033[31mb' "$out"); mkdir -p "$odd"; cp $tiny/log.jsonl "$odd/log.jsonl"
for way in "" --csv; do
    $PYTHON scripts/report.py "$odd" $way -o "$odd/made" > $out/stdout 2> $out/stderr && grep -q 'a?\[31mb/made: ' $out/stdout; ok $? "odd name $way: $(cat $out/stderr)"
    ! grep -q "$(printf '\033')" $out/stdout $out/stderr; ok $? "an escape was printed raw: $way"
done
$PYTHON scripts/report.py "$odd/none" > $out/stdout 2> $out/stderr; [ $? -eq 2 ] && grep -q 'a?\[31mb/none' $out/stderr; ok $? "an error about it: $(cat $out/stderr)"

# ---- bad input: exit status 2, what was wrong, what to type -----------------------------------------------------------------
refused() { # words that the message must hold, then the command
    words=$1; shift
    "$@" > $out/stdout 2> $out/stderr; status=$?
    [ $status -eq 2 ] && grep -q "^error: .*$words" $out/stderr &&
        grep -q '^---> HINT: ..' $out/stderr && ! grep -q Traceback $out/stderr
    ok $? "$*: status $status, wanted 2 and '$words': $(cat $out/stderr)"
}
mkdir -p $out/empty $out/broken $out/headless $out/none
: > $out/empty/log.jsonl
sed '3s/.*/{"event":"train",/' $tiny/log.jsonl > $out/broken/log.jsonl
sed 1d $tiny/log.jsonl > $out/headless/log.jsonl
echo '{"table":"x"}' > $out/rows.json; echo '{"table":' > $out/bad.json
R="$PYTHON scripts/report.py"
refused "missing: no such directory, wanted a run (where a log.jsonl is)"   $R runs/missing
hinted() { # what to type next, then the command
    hint=$1; shift
    refused "no such directory, wanted a run" "$@"
    grep -qxF -- "---> HINT: $hint" $out/stderr; ok $? "$*: wanted the hint '$hint': $(cat $out/stderr)"
}
hinted "make demo trains it"                          $R runs/demo-text-nowhere
hinted "train one: ./train_sink train -o runs/mine"   $R nowhere/at/all
hinted "ls $out"                                      $R $out/nowhere
refused 'none: got no log.jsonl in it, wanted a run'                       $R $out/none
mkdir -p $out/damaged; echo none > $out/damaged/0_0_map.npy
refused 'damaged/0_0_map.npy: got no .npy of version 1, wanted an array'   $R $out/damaged
refused 'empty/log.jsonl: got an empty file, wanted a line of config'      $R $out/empty
refused 'broken/log.jsonl, line 3: got .* wanted an object'                $R $out/broken
refused 'headless/log.jsonl: got .eval. in the first line, wanted config'  $R $out/headless
refused 'rows.json: got an object without rows, wanted table, rows'        $R $out/rows.json
refused 'bad.json: got no JSON'                                            $R $out/bad.json
refused 'options: .*--wach'                                                $R $tiny --wach
refused 'report: got nothing to show'                                      $R
refused 'got .*, wanted a file to write' \
    $R $tiny -o $out/report.html/x.html
mkdir -p $out/own; cp $tiny/log.jsonl $out/own/log.jsonl; mkfifo $out/pipe
refused "own/log.jsonl: got a run's own file" $R $tiny -o $out/own/log.jsonl
refused 'pipe: got .* none that can be replaced' $R $tiny -o $out/pipe
cmp -s $tiny/log.jsonl $out/own/log.jsonl && [ -p $out/pipe ]; ok $? "-o replaced what it refused"
# one line that names file, line and field, of whatever is damaged; before, these were tracebacks
damaged() { # name, words of the error, the words of sed that do the damage
    mkdir -p $out/damaged/$1; sed "$3" $tiny/log.jsonl > $out/damaged/$1/log.jsonl
    refused "damaged/$1/log.jsonl, $2" $R $out/damaged/$1 -o $out/x.html
    [ "$(wc -l < $out/stderr)" -eq 2 ]
    ok $? "damaged/$1: more than one line of error and one of hint"
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
damaged layer 'line 2: layers: got .\[null, 1\]., wanted a list of layers'  '2s/"alpha1":/"layers":[null,1],"alpha1":/'
damaged loss   'line 4: loss: got .{}., wanted a number or null'            '4s/"loss":[0-9.]*/"loss":{}/'
mkdir -p $out/garbage; head -c 5000 /dev/urandom > $out/garbage/log.jsonl
refused 'garbage/log.jsonl'                                                $R $out/garbage
LC_ALL=C grep -q '[[:cntrl:]]' $out/stderr; [ $? -eq 1 ]; ok $? "garbage of a file in an error"
echo '{"table":"x","rows":[1]}' > $out/rows1.json; echo '{"sink":[],"alpha1":[]}' > $out/probe1.json
refused 'rows1.json: rows\[0\]: got .1., wanted an object with id'         $R $out/rows1.json
refused 'probe1.json: sink: got .\[\]., wanted an object with eps'         $R $out/probe1.json
mkdir -p $out/huge
sed '3s/"loss":[0-9.]*/"loss":1e999/; 5s/"loss":[0-9.]*/"loss":'"$(printf '%0400d' 0 | tr 0 9)"'/' \
    $tiny/log.jsonl > $out/huge/log.jsonl
report $out/huge -o $out/huge.html; ok $? "numbers too large for floats: $(cat $out/stderr)"
$PYTHON dev/fuzz/fuzz_logs.py 300 $$ > $out/fuzz; ok $? "fuzz_logs.py 300 $$: $(head -n 20 $out/fuzz)"

# ---- CSV and TensorBoard -----------------------------------------------------------------------------------------------
$R $tiny --csv > $out/rows.csv 2> $out/stderr; ok $? "--csv: $(cat $out/stderr)"
$PYTHON - $out/rows.csv $tiny/log.jsonl > $out/stdout 2>&1 <<'END'; ok $? "CSV: $(tail -n 1 $out/stdout)"
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
$PYTHON - $tiny/log.jsonl $out/gated > $out/stdout 2>&1 <<'END'; ok $? "CSV of a gate: $(tail -n 1 $out/stdout)"
import csv, io, json, sys
sys.path[:0] = ["scripts", "scripts/lib"]
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
    report $tiny --tensorboard -o $out/events; ok $? "--tensorboard: $(cat $out/stderr)"
    $PYTHON - $out/events/tiny $tiny/log.jsonl > $out/stdout 2>&1 <<'END'; ok $? "TensorBoard: $(tail -n 1 $out/stdout)"
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
grep -q 'pip install numpy matplotlib' $out/stderr; ok $? "plot.py does not say what to install"

# ---- figures ------------------------------------------------------------------------------------------------------------
if ! $PYTHON -c 'import numpy, matplotlib' 2> /dev/null; then skip 6 "no matplotlib"; end; fi
$PYTHON - $out > $out/stdout 2>&1 <<'END'; ok $? "figures: $(tail -n 3 $out/stdout)"
# every figure writes both files, the same bytes twice, and its lines and images
# are the numbers of the log
import argparse, contextlib, json, os, shutil, sys, time
sys.path[:0] = ["scripts", "scripts/lib"]
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
with contextlib.redirect_stdout(sys.stderr):
    for words in (["all", tiny], ["dynamics", "--logx", tiny], ["maps", out + "/maps"],
                  ["threshold", out + "/probe.json"],
                  ["profiles", out + "/probe.json"], ["table", "test/report/table.json"],
                  ["heads", tiny, "--step", "5"], ["film", tiny],
                  ["film", "test/demo/text-k", "--title", "The key takes $5"],
                  ["dynamics"] + ["test/demo/text-" + x for x in ("softmax", "sigmoid", "k")],
                  ["table", "docs/results/interventions-text.json"],
                  ["onset", tiny], ["onset", tiny, "--labels", "the only one"],
                  ["onset", tiny, "--title", ""], ["anatomy", out + "/deep.json"],
                  ["positions"] + [f"{out}/losses/{x}/loss.json"
                                   for x in ("plain-s1", "plain-s2", "k-s1")]):
        plot.main(words + ["-o", out + "/figures"])
        if words == ["all", tiny]:
            first = {n: open(f"{out}/figures/{n}", "rb").read()
                     for n in os.listdir(out + "/figures") if n.startswith("profiles")}
    plot.main(["profiles", tiny, "-o", out + "/figures"])
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
    plot.main(["maps", out + "/big", "-o", out + "/figures"])
    assert time.time() - started < 60, "270 heads took %.0f s" % (time.time() - started)
    for words in (["all", out + "/one.json"], ["heads", out + "/probe.json", tiny],
                  ["norms", out + "/probe.json"], ["maps", out + "/maps", "--head", "0:1"]):
        plot.main(words + ["-o", out + "/figures"])
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

def lines(name, axis, at=0):
    return [list(l.get_ydata()) for l in drawn[name][at].axes[axis].get_lines()]
def holds(name, axis, values):
    same = (len(y) == len(values) and np.allclose(y, values) for y in lines(name, axis))
    assert any(same), (name, axis, values, lines(name, axis))
holds("dynamics-tiny", 0, [x["val_loss"] for x in evals])
holds("dynamics-tiny", 0, [x["loss"] for x in log if x["event"] == "train"])
holds("dynamics-tiny", 1, [100 * x["sink"]["proxy_k"][0] for x in evals])
holds("dynamics-tiny", 1, [100 * x["sink"]["sink_star"] for x in evals])
assert np.allclose(drawn["heads-tiny"][0].axes[0].images[0].get_array(), e["alpha1_proxy"])
# --step 5
assert np.allclose(drawn["heads-tiny"][1].axes[0].images[0].get_array(), evals[1]["alpha1_proxy"])
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
gap = [y for y in lines("anatomy-deep", 1) if len(y) == 3 and np.isnan(y[1])]
assert len(gap) == 1 and [gap[0][0], gap[0][2]] == anatomy["form"][::2], gap
assert "channel 7" in drawn["anatomy-deep"][0].axes[0].get_title()
holds("profiles-tiny", 0, [100 * x for x in e["sink"]["proxy_k"]])
holds("profiles-probe", 1, [0.25] * 10)
for share in (0, 70, 90):  # T 32 and 64 at both thresholds of the probe
    holds("profiles-probe", 0, [share] * 10)
ax = drawn["heads-one"][0].axes[0]
assert list(ax.get_xticks()) == [0] and list(ax.get_yticks()) == [0], ax.get_xticks()
assert ax.images[0].get_array().tolist() == [[0.25]]
figure = drawn["heads-one"][0]
box = figure._suptitle.get_window_extent()
assert 0 <= box.x0 and box.x1 <= figure.bbox.x1, (box, figure.bbox)
assert "a long path" in figure._suptitle.get_text()
assert len(drawn["heads-probe-tiny"][0].axes) >= 3
holds("norms-probe-T-64", 0, e["h_norm_first"])
picture = drawn["maps-big"][0].axes[0].images[0].get_array()
assert np.isclose(np.nanmax(picture.filled(np.nan)[:, :8 * 66]), 0.01)
assert np.isclose(np.nanmax(picture.filled(np.nan)), 0.5)
titles = [ax.get_title(loc="left") for ax in drawn["table-table"][0].axes]
# the paper's 3.73 is of the Pile
losses = [float(x) for l in drawn["table-table"][0].axes[2].get_lines() for x in l.get_xdata()]
assert "on bb" in titles[2] and losses and max(losses) < 3.71, (titles, losses)
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
flat = [[l for l in ax.get_lines() if len(l.get_ydata()) == 9 and l.get_linestyle() == "-"] for ax in three]
assert [len(lines) for lines in flat] == [1, 1, 1] and len({lines[0].get_color() for lines in flat}) == 3, flat
assert all(0 <= y <= 100 for ax in three for l in ax.get_lines() for y in l.get_ydata())
assert all(l.get_transform() == ax.transData for ax in three for l in ax.get_lines())
# seeds: the one in the middle, and a band from the least to the largest
import matplotlib.pyplot as plt
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
# the map's first column stands beside it once more
images = drawn["maps-maps-0_1"][0].axes[0].images
assert images[1].get_array().shape == (T, 1) and images[1].get_extent()[1] < images[0].get_extent()[0]
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
image = drawn["maps-maps-0_1"][0].axes[0].images[0].get_array()
assert image.shape == (T, T + 1) and np.isclose(image[4, 5], 29 / 30)
assert image.mask[0, 2] and not image.mask[0, 1] and not image.mask[2, 3]
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
