# what the attention kernels cost in machine code, against dev/gpu/budgets.tsv. quick:
# every ATTN at HS 96 on sm_90; SASS=all: all
out=$(sh dev/gpu/sass.sh "${SASS:-quick}" 2>&1); status=$?
echo "$out"
exit $status
