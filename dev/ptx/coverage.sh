#!/bin/sh
# dev/ptx/coverage.sh -- holds the part of each kernel's instructions that ran, over all its
# instances and all reports, and that of all kernels together ("all"), against dev/ptx/coverage.tsv.
# An instance that never ran is a failure, but for device_probe_kernel, which is there to be asked
# for, and kernel_elu_norm without a position encoding, which test_cuda takes for one shape alone.
#   usage: dev/ptx/coverage.sh [update] REPORT..
CDPATH= cd "$(dirname "$0")/../.." || exit 1
held=dev/ptx/coverage.tsv
update=; [ "$1" = update ] && { update=1; shift; }
found=$(mktemp) && trap 'rm -f "$found"' EXIT
cat "$@" | awk -F'\t' '
    /^_Z/ {
        name = $1
        sub(/^_ZN4cuda[0-9]+/, "", name)
        sub(/_kernel.*/, "_kernel", name)
        if (name == "device_probe_kernel") { next }
        family[$1] = name
        if ($2 && $3 > most[$1]) { most[$1] = $3 }   # the better of two reports
        size[$1] = $4
    }
    END {
        for (i in family) {
            if (!most[i] && i !~ /kernel_elu_norm.*Pe_nope/) {
                print "an instance never ran: " substr(i, 1, 90) > "/dev/stderr"
            }
            ran[family[i]] += most[i]
            all[family[i]] += size[i]
            ran["all"] += most[i]
            all["all"] += size[i]
        }
        for (n in ran) { printf "%s\t%.1f\n", n, 100 * ran[n] / all[n] }
    }' 2> "$found.idle" |
    LC_ALL=C sort > "$found"
if [ "$update" ]; then
    { grep '^#' $held; cat "$found"; } > "$found.new" && mv "$found.new" $held
fi
cat "$found.idle"; idle=$(wc -l < "$found.idle"); rm -f "$found.idle"
awk -F'\t' -v idle="$idle" '
    /^#/ { next }
    FNR == NR { least[$1] = $2; next }
    { seen[$1] = 1 }
    $1 == "all" { share = $2 }
    $1 != "all" { sum += $2; n++ }
    $1 in least && $2 < least[$1] - 0.5 {
        printf "%s: %s %% of its instructions ran, wanted %s\n", $1, $2, least[$1]; bad = 1
    }
    !($1 in least) { print $1 ": not in dev/ptx/coverage.tsv"; bad = 1 }
    END {
        for (name in least) { if (!(name in seen)) { print name ": never ran"; bad = 1 } }
        printf "coverage: %.1f %% of the instructions of %d kernels; %.1f %% in the mean of the kernels\n",
            share, n, sum / n
        exit bad || idle > 0
    }' $held "$found"
