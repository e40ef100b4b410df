# scripts/report.py and scripts/plot.py on a stored run (test/report/tiny: 10 steps of a sigmoid model with K biases on README.md)
# PYTHON=/path/python3 chooses another python, such as one with matplotlib. What is not installed is skipped and counted
passed=0; failed=0; skipped=0; why=
ok() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); shift; echo "FAIL test_report: $*"; fi; }
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
[ -s $out/report.html ] && ! grep -nE 'https?:|src=|href=|@import|url\(' $out/report.html > $out/grep; ok $? "the page refers to something outside: $(head -c 200 $out/grep)"
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
    assert a["step"] == b["step"] and close(a["val_loss"], b["val_loss"]), (a["val_loss"], b["val_loss"])
    assert all(close(x, y) for p, q in zip(a["alpha1_proxy"], b["alpha1_proxy"]) for x, y in zip(p, q))
losses = [o["loss"] for o in log if o["event"] == "train"]
assert all(close(a, b) for a, b in zip(run["curves"]["loss"][1], losses)) and len(losses) == 10
assert run["status"] == "done" and run["proxy"] and run["title"] == "ATTN=sigmoid BIAS=k" and data["reload"] == 0
rows = data["results"][0]["rows"]
assert [r["sinks"] for r in rows[:3]] == [[[1, 18.18, [50.0, 44.0], [1.5, 1.5]]], [[1, 0.0, [0.0], [1.5]]], [[1, 0.0, [2.0], [1.5]], [2, 69.03, [61.0], [0.0]]]], rows
assert [r["why_not"] for r in rows] == [None, "failed", None, "not run"] and rows[2]["main"] == 2 and rows[1]["star"] == [73.34, [50.0]]
END
mkdir -p $out/evil; sed 's/{"event":"sample","step":10,"text":".*/{"event":"sample","step":10,"text":"<\/script><script>document.title=1<\/script>"}/' $tiny/log.jsonl > $out/evil/log.jsonl
report $out/evil -o $out/evil.html; ok $? "a sample with a tag: $(cat $out/stderr)"
[ "$(grep -c '</script>' $out/evil.html)" = 2 ]; ok $? "a sample ended the script"

# ---- what a browser makes of it ------------------------------------------------------------------------------------------
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
dom() { # page#state [flag] -> the document after its script ran, without it, and the errors of the script
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir=$PWD/$out/browser --window-size=1200,900 $2 \
        --dump-dom "file://$PWD/$out/$1" 2> $out/browser.log | sed 's/<\/script>/&\n/g' | sed '/<script type/,/<\/script>/d' > $out/dom   # what it drew, not how
}
has() { grep -qF -- "$1" $out/dom; ok $? "the page in a browser lacks '$1'"; }
if [ -n "$browser" ] && [ $failed -eq 0 ]; then
    dom 'report.html#hover=loss:5'
    [ -s $out/dom ] && ! grep -E 'Uncaught|Refused|CONSOLE.*rror' $out/browser.log; ok $? "errors of the script"
    has '4.278'; has '>✓ done<'; has 'ATTN=sigmoid BIAS=k'; has '44.00 – 50.00'; has '✗ does not hold'; has '&lt;not a tag&gt;'    # tables
    has '<b>step 5</b>'; has '>4.902<'; has '>5.003<'                                                   # what the pointer reads
    has 'token 1 gets more than ε; at the end: tiny 0.0%.'                                              # the proxy, not raw weights: 100%
    has 'α₁ by block and head of tiny, step 10: mean 0.09323, largest 0.09469 in block 0, head 1'
    dom 'report.html#step=5&map=mass&off='
    has 'row mass by block and head of tiny, step 5: mean 8.749'; has '>5</output>'
    dom 'evil.html#off=0'
    has 'data-group="0" aria-pressed="false"'; has '&lt;/script&gt;&lt;script&gt;document.title=1'; has '<title>train_sink report</title>'
    has 'no finite numbers to draw'
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
document.querySelector("[data-over]").click(); document.querySelector("[data-map=mass]").click();
const canvas = document.querySelector("canvas");
canvas.dispatchEvent(new PointerEvent("pointermove", { ...part(canvas, 0.99), clientY: canvas.getBoundingClientRect().bottom - 1 })); say("strip");
document.querySelector("[data-log=loss]").click(); document.querySelector("[data-group]").click(); say("legend");
document.body.innerHTML = said.map(s => `<p>${esc(s)}</p>`).join("");
</script></body></html>
END
    dom hands.html
    has '>slider:  ##step=5&amp;'; has '>cell: tiny, step 5block 0, head 0: α₁ = 0.09'; has '>pointer: step 10 validation, trainingtiny4.2784.065 #'
    has '>home: step 1tiny1.7'; has '>right: step 2tiny2.'; has '>strip: tiny, step 10block 1, head 1: row mass = '
    grep '>click: ' $out/dom | grep -q 'step=0&amp;'; ok $? "a click on a curve does not choose its step: $(grep click: $out/dom)"
    grep '>legend: ' $out/dom | grep 'off=0' | grep -q 'log=[^&]*loss'; ok $? "legend or log button: $(grep legend: $out/dom)"
    # a page that is being watched loads itself again, and keeps what was chosen
    mkdir -p $out/watched; head -n 10 $tiny/log.jsonl > $out/watched/log.jsonl
    $PYTHON -c 'import sys; sys.path.insert(0, "scripts"); import report; report.write(sys.argv[2], report.page([sys.argv[1]], live=True)[0])' \
        $out/watched $out/watched.html
    (sleep 2; cp $out/report.html $out/next.html; mv $out/next.html $out/watched.html) &
    dom 'watched.html#step=5&map=mass' --virtual-time-budget=2000000
    has '>✓ done<'; has 'row mass by block and head of tiny, step 5: mean 8.749'
else skip 28 "no chromium"; fi

# ---- half a line, nulls, spikes, a growing log -----------------------------------------------------------------------------
mkdir -p $out/half $out/null $out/live
{ cat $tiny/log.jsonl; printf '{"event":"train","st'; } > $out/half/log.jsonl
report $out/half -o $out/half.html; ok $? "half a line: $(cat $out/stderr)"
grep -q '^note: .*line 19 is half written and was ignored' $out/stderr; ok $? "half a line is not said: $(cat $out/stderr)"
head -n 5 $tiny/log.jsonl | sed '5s/"loss":[0-9.]*,"grad_norm":[0-9.]*/"loss":null,"grad_norm":NaN/' > $out/null/log.jsonl
report $out/null -o $out/null.html; ok $? "a null: $(cat $out/stderr)"
grep -q 'loss is null (not finite) at 1 steps, the first is 2' $out/stderr && grep -q 'grad_norm is null' $out/stderr; ok $? "a null is not said: $(cat $out/stderr)"
grep -q '"status":"diverged"' $out/null.html && ! grep -q 'NaN[,}]\|:NaN' $out/null.html; ok $? "a null loss is no divergence, or NaN in the page"
$PYTHON - > $out/stdout 2>&1 <<'END'; ok $? "thin: $(tail -n 1 $out/stdout)"
import sys
sys.path.insert(0, "scripts")
import report
n = 30001
values = [1.0 + 1e-6 * i for i in range(n)]
values[777], values[20000], values[12345] = 9.0, -9.0, None
steps, kept = report.thin(list(range(1, n + 1)), values)
assert len(kept) <= report.POINTS + 2 and steps[0] == 1 and steps[-1] == n, (len(kept), steps[0], steps[-1])
assert {9.0, -9.0, None} <= set(kept) and all(values[s - 1] == v for s, v in zip(steps, kept))
END
head -n 4 $tiny/log.jsonl > $out/live/log.jsonl
timeout 100 $PYTHON scripts/report.py $out/live --watch -o $out/live.html > $out/watch 2>&1 & watcher=$!
wait_for() { tries=0; until grep -qF "$1" $out/live.html 2> /dev/null; do tries=$((tries + 1)); [ $tries -lt 200 ] || return 1; sleep 0.3; done; }
wait_for '"reload":5'; ok $? "--watch wrote no page: $(cat $out/watch)"
sed -n '5,$p' $tiny/log.jsonl >> $out/live/log.jsonl
wait_for '"reload":0'; ok $? "--watch did not see the log grow"
wait $watcher; ok $? "--watch did not end with the run: $(cat $out/watch)"

# ---- bad input: exit status 2, what was wrong, what to type -----------------------------------------------------------------
refused() { # words that the message must hold, then the command
    words=$1; shift
    "$@" > $out/stdout 2> $out/stderr; status=$?
    [ $status -eq 2 ] && grep -q "^error: .*$words" $out/stderr && grep -q '^---> HINT: ..' $out/stderr && ! grep -q Traceback $out/stderr
    ok $? "$*: status $status, wanted 2 and '$words': $(cat $out/stderr)"
}
mkdir -p $out/empty $out/broken $out/headless $out/none
: > $out/empty/log.jsonl
sed '3s/.*/{"event":"train",/' $tiny/log.jsonl > $out/broken/log.jsonl
sed 1d $tiny/log.jsonl > $out/headless/log.jsonl
echo '{"table":"x"}' > $out/rows.json; echo '{"table":' > $out/bad.json
R="$PYTHON scripts/report.py"
refused "missing: got 'No such file or directory', wanted"                 $R runs/missing
refused 'none: got no log.jsonl in it, wanted a run'                       $R $out/none
refused 'empty/log.jsonl: got an empty file, wanted a line of config'      $R $out/empty
refused 'broken/log.jsonl, line 3: got .* wanted an object'                $R $out/broken
refused 'headless/log.jsonl: got .eval. in the first line, wanted config'  $R $out/headless
refused 'rows.json: got an object without rows, wanted table, rows'        $R $out/rows.json
refused 'bad.json: got no JSON'                                            $R $out/bad.json
refused 'options: .*--wach'                                                $R $tiny --wach
refused 'report: got nothing to show'                                      $R
refused 'got .*, wanted a file to write'                                   $R $tiny -o $out/report.html/x.html
mkdir -p $out/stub; echo 'raise ModuleNotFoundError("no", name="numpy")' > $out/stub/numpy.py
refused 'numpy: not installed, wanted numpy and matplotlib'                env PYTHONPATH=$out/stub $PYTHON scripts/plot.py heads $tiny
grep -q 'pip install numpy matplotlib' $out/stderr; ok $? "plot.py does not say what to install"

# ---- figures ------------------------------------------------------------------------------------------------------------
if ! $PYTHON -c 'import numpy, matplotlib' 2> /dev/null; then skip 6 "no matplotlib"; end; fi
$PYTHON - $out > $out/stdout 2>&1 <<'END'; ok $? "figures: $(tail -n 3 $out/stdout)"
# every figure writes both files, the same bytes twice, and its lines and images are the numbers of the log
import argparse, contextlib, json, os, sys, time
sys.path.insert(0, "scripts")
import numpy as np
import plot, runlog
from xml.dom import minidom
out, tiny = sys.argv[1], "test/report/tiny"
log = [json.loads(line) for line in open(tiny + "/log.jsonl", encoding="utf-8")]
evals = [o for o in log if o["event"] == "eval"]
e = evals[-1]
probe = dict(e, data="bb", sinks=[dict(e["sink"], eps=x, proxy_k=[1 - x] * 10) for x in (0.1, 0.3)])
probe["all"] = [dict(probe), dict(probe, sink=dict(e["sink"], T=64), sinks=[dict(s, T=64, proxy_k=[0] * 10 if s["eps"] == 0.1 else s["proxy_k"]) for s in probe["sinks"]], alpha=np.full((3, 2, 2, 10), 0.25).tolist())]
json.dump(probe, open(out + "/probe.json", "w"))
os.makedirs(out + "/maps")
T = 5
for kind in ("map", "cosine", "product"):
    x = np.tril(np.arange(T * (T + 1), dtype=np.float32).reshape(T, T + 1) / 30, 1) + (kind == "product")
    x[2, 3] = 0                                             # seen, and given nothing
    np.save(f"{out}/maps/0_1_{kind}.npy", x)

drawn = {}
def keep(figure, where, name):
    drawn.setdefault(name, []).append(figure)
    save(figure, where, name)
save, plot.save = plot.save, keep
with contextlib.redirect_stdout(sys.stderr):
    for words in (["all", tiny], ["dynamics", "--logx", tiny], ["maps", out + "/maps"], ["threshold", out + "/probe.json"],
                  ["profiles", out + "/probe.json"], ["table", "test/report/table.json"], ["heads", tiny, "--step", "5"]):
        plot.main(words + ["-o", out + "/figures"])
        if words == ["all", tiny]:
            first = {n: open(f"{out}/figures/{n}", "rb").read() for n in os.listdir(out + "/figures") if n.startswith("profiles")}
    plot.main(["profiles", tiny, "-o", out + "/figures"])
    # a probe in place of a run; one block and one head; the heads of a large model, in one picture
    one = dict(e, alpha1=[[0.25]], alpha1_proxy=[[0.25]], data="a long path/to some text.txt", **{k: [[0.5]] for k in ("alpha_star", "alpha_star_proxy", "mass", "entropy")})
    json.dump(one, open(out + "/one.json", "w"))
    os.makedirs(out + "/big")
    for l in range(30):
        for h in range(9):
            np.save(f"{out}/big/{l}_{h}_map.npy", np.tril(np.full((64, 65), 0.5 if (l, h) == (29, 8) else 0.01, np.float32), 1))
    started = time.time()
    plot.main(["maps", out + "/big", "-o", out + "/figures"])
    assert time.time() - started < 60, "270 heads took %.0f s" % (time.time() - started)
    for words in (["all", out + "/one.json"], ["heads", out + "/probe.json", tiny], ["norms", out + "/probe.json"], ["maps", out + "/maps", "--head", "0:1"]):
        plot.main(words + ["-o", out + "/figures"])
assert all(open(f"{out}/figures/{n}", "rb").read() == data for n, data in first.items()) and len(first) == 2, "not the same bytes"
wanted = {"dynamics-tiny", "heads-tiny", "norms-tiny", "ratios-tiny", "profiles-tiny", "maps-maps-0_1", "threshold-probe", "profiles-probe", "table-table",
          "maps-big", "heads-one", "norms-one", "ratios-one", "profiles-one", "heads-probe-tiny", "norms-probe-T-32", "norms-probe-T-64", "ratios-probe"}
assert set(drawn) == wanted, set(drawn) ^ wanted
for name in wanted:
    assert open(f"{out}/figures/{name}.png", "rb").read(8) == b"\x89PNG\r\n\x1a\n"
    minidom.parse(f"{out}/figures/{name}.svg")

def lines(name, axis, at=0):
    return [list(l.get_ydata()) for l in drawn[name][at].axes[axis].get_lines()]
def holds(name, axis, values):
    assert any(len(y) == len(values) and np.allclose(y, values) for y in lines(name, axis)), (name, axis, values, lines(name, axis))
holds("dynamics-tiny", 0, [x["val_loss"] for x in evals])
holds("dynamics-tiny", 0, [x["loss"] for x in log if x["event"] == "train"])
holds("dynamics-tiny", 1, [100 * x["sink"]["proxy_k"][0] for x in evals])
holds("dynamics-tiny", 1, [100 * x["sink"]["sink_star"] for x in evals])
assert np.allclose(drawn["heads-tiny"][0].axes[0].images[0].get_array(), e["alpha1_proxy"])
assert np.allclose(drawn["heads-tiny"][1].axes[0].images[0].get_array(), evals[1]["alpha1_proxy"])   # --step 5
for axis, key in enumerate("hkv"):
    holds("norms-tiny", axis, e[key + "_norm_first"])
    holds("norms-tiny", axis, e[key + "_norm_rest"])
    holds("ratios-tiny", axis, np.array(e[key + "_norm_first"]) / e[key + "_norm_rest"])
holds("profiles-tiny", 0, [100 * x for x in e["sink"]["proxy_k"]])
holds("profiles-probe", 1, [0.25] * 10)
for share in (0, 70, 90):                                   # T 32 and 64 at both thresholds of the probe
    holds("profiles-probe", 0, [share] * 10)
ax = drawn["heads-one"][0].axes[0]
assert list(ax.get_xticks()) == [0] and list(ax.get_yticks()) == [0] and ax.images[0].get_array().tolist() == [[0.25]], ax.get_xticks()
figure = drawn["heads-one"][0]
box = figure._suptitle.get_window_extent()
assert 0 <= box.x0 and box.x1 <= figure.bbox.x1 and "a long path" in figure._suptitle.get_text(), (box, figure.bbox)
assert len(drawn["heads-probe-tiny"][0].axes) >= 3
holds("norms-probe-T-64", 0, e["h_norm_first"])
picture = drawn["maps-big"][0].axes[0].images[0].get_array()
assert np.isclose(np.nanmax(picture.filled(np.nan)[:, :8 * 66]), 0.01) and np.isclose(np.nanmax(picture.filled(np.nan)), 0.5)
titles = [ax.get_title(loc="left") for ax in drawn["table-table"][0].axes]
assert "on bb" in titles[2] and sorted(round(float(p.get_width()), 2) for p in drawn["table-table"][0].axes[2].patches)[-1] < 3.71, titles   # the paper's 3.73 is of the Pile
holds("threshold-probe", 0, [90, 0])
holds("threshold-probe", 1, [90, 70])
image = drawn["maps-maps-0_1"][0].axes[0].images[0].get_array()
assert image.shape == (T, T + 1) and image.mask[0, 2] and not image.mask[0, 1] and not image.mask[2, 3] and np.isclose(image[4, 5], 29 / 30)
widths = sorted(round(float(p.get_width()), 2) for p in drawn["table-table"][0].axes[0].patches)
assert widths == [0, 0, 0, 0, 18.18, 47.0, 61.0, 69.03], widths
END
P="$PYTHON scripts/plot.py"
printf 'not an array' > $out/maps/0_1_map.npy
refused "figure: got 'haeds', wanted one of dynamics"                       $P haeds $tiny
refused 'heads: got nothing to draw, wanted RUN'                            $P heads
refused 'none: got no LAYER_HEAD_map.npy'                                   $P maps $out/none
refused 'maps/0_1_map.npy: got .* wanted an array'                          $P maps $out/maps
refused 'one.json: got a probe, wanted a run'                               $P dynamics $out/one.json
refused "head: got '1', wanted LAYER:HEAD"                                  $P maps $out/maps --head 1
refused 'step 7: .* was not measured there, wanted one of 0 5 10'           $P heads $tiny --step 7
end
