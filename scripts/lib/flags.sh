# without "FLAGS" WORD..: FLAGS but for those that the words give, too, as each flag may be given once.
# No value in FLAGS has a blank
without() {
    flags=$1; shift
    printf '%s\n' "$@" -- $flags | awk '
        BEGIN { split("data model batch steps out seq", long) }
        { name = $0; sub(/=.*/, "", name) }
        name ~ /^-[dmbnot]$/ { name = "--" long[index("dmbnot", substr(name, 2))] }
        /^--?[a-z]/ { keep = after && !(name in given); if (!after) { given[name] } }
        after && keep
        $0 == "--" { after = 1 }'
}
