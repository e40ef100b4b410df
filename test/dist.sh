# test/dist.sh -- what test_dist.sh and test_nccl.sh share: it is read by them.
# A run OUT has its output in OUT.txt
. test/ok.sh
check() { local what=$1; shift; if "$@"; then ok; else bad "$what"; fi; }
# -D of every switch's default
default_switches() {
    make -s values | sed -n '/^PRECISION\|^BACKEND/d; s/^\([A-Z]*\) \([a-z0-9_]*\).*/-D\1=\2/p'
}
hash()   { sed -n 's/.*"params_hash":"\([0-9a-f]*\)".*/\1/p' "$1/log.jsonl" | tail -n 1; }
errors() { grep -c '^error: ' "$1.txt"; }
# the numbers of all train and eval lines but the times
numbers() { grep -E '"event":"(train|eval)"' "$1/log.jsonl" |
    sed -E 's/"ms":[0-9.e+-]+//; s/"time":"[^"]*"//' |
            grep -oE '"[a-z_0-9]+"|-?[0-9][0-9.e+-]*|null' > "$1.numbers"; }
same_log() { # A B TOLERANCE, relative; absolute below 1
    numbers "$1"; numbers "$2"
    paste "$1.numbers" "$2.numbers" | awk -v tol="$3" '
        $1 ~ /^-?[0-9]/ && $2 ~ /^-?[0-9]/ { d = $1 - $2; if (d < 0) { d = -d } a = $1 < 0 ? -$1 : $1; n++
            r = d / (a > 1 ? a : 1); if (r > most) { most = r; at = key } if (r > tol) { bad++ } next }
        $1 != $2 { bad++ }
        { key = $1 }
        END { if (bad || n < 100) { print "  " n " numbers, the farthest apart " most " in " at; exit 1 } }'
}
# the weights of a checkpoint, one per line
floats() { tail -c +$((9 + $(od -A n -t u8 -N 8 "$1"))) "$1" | od -A n -v -t f4 -w4; }
same_weights() { # A B TOLERANCE: the length of the difference over that of the weights
    floats "$1/step_50/model.safetensors" > "$dir/weights.a"
    floats "$2/step_50/model.safetensors" > "$dir/weights.b"
    paste "$dir/weights.a" "$dir/weights.b" | awk -v tol="$3" '{ d += ($1 - $2)^2; a += $1^2; n++ }
        END { r = sqrt(d / a); if (!(r <= tol) || n < 20000) { print "  " n " weights, " r " apart"; exit 1 } }'
}
# a zombie does not
lives() { sed "s/.*) //" /proc/$1/stat 2> /dev/null | grep -q "^[^ZX]"; }
# RUN PROCESS: waits until it has logged a step; one without a step after a minute is ended
await_step() {
    local tries=0
    until grep -qs '"event":"train"' "$1/log.jsonl"; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || { bad "$1: no step after a minute: $(cat "$1.txt")"; kill "$2"; return; }
        sleep 0.05
    done
}
# NAME, what the error says, seconds at most: of the run in $dir/NAME.txt that has just ended
ends() {
    local status=$?
    [ $status -ne 0 ] && [ "$(errors "$dir/$1")" = 1 ] && grep -q "$2" "$dir/$1.txt" &&
        [ $(($(date +%s) - began)) -le "$3" ] && ok ||
        bad "$1: status $status after $(($(date +%s) - began)) s: $(cat "$dir/$1.txt")"
}
