# base/version.h against everything that names a version
#     sh test/program/test_version.sh
. test/ok.sh
scratch
version=$(sed -n 's/^#define VERSION "\(.*\)"$/\1/p' base/version.h)
same() { # what it is, what it says
    [ "$2" = "$version" ]; ok $? "$1: got '$2', wanted base/version.h's '$version'"
}
[ -n "$version" ]; ok $? "base/version.h: found no version"
same CITATION.cff "$(sed -n 's/^version: "\(.*\)"$/\1/p' CITATION.cff)"
same "the newest version in CHANGELOG.md" "$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)"
for command in "" train probe; do # shellcheck disable=SC2086
    said=$("$program" $command --version) ; ok $? "$command --version: exit status"
    same "$command --version" "$(echo "$said" | sed -n 's/^train_sink \([^,]*\), commit [^ ]*: ATTN=.*/\1/p')"
    case "$said" in *" ATTN=softmax "*" PRECISION=fp32 BACKEND=cpu") ok 0 ;;
        *) bad "$command --version names no build: $said" ;;
    esac
done
"$program" --help | grep -q -e --version; ok $? "--help does not tell of --version"
said=$dir/out works "$program" train --seq 16 -b 2 --layers 1 --width 16 --heads 1 --ffn-width 16 -n 1 --eval-every 0 \
    --sample 0 -o "$dir/run"
same "the log" "$(sed -n '1s/.*"version":"\([^"]*\)".*/\1/p' "$dir/run/log.jsonl")"
same "the checkpoint" "$(sed -n 's/.*"version": "\([^"]*\)".*/\1/p' "$dir/run/step_1/state.json")"
finish
