# once FLAGS..: the flags, each once: of one that a test gives twice the last counts
#     . test/once.sh
once() {
    printf "%s\n" "$*" | awk '{
        for (i = 1; i <= NF; i++) {
            if ($i ~ /^-[a-z-]/) { at++; name[at] = $i; last[$i] = at }
            text[at] = text[at] " " $i
        }
        for (k = 0; k <= at; k++) { if (!k || last[name[k]] == k) { printf "%s", text[k] } }
    }'
}
