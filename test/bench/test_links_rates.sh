#!/bin/bash
# ctest: timeout=3600 serial slow plain long
# test_links_rates.sh [RUNS [PROFILE]]: how often weft links names a link that takes 30% longer, and how often it names
# one where there is none. RUNS runs of each (default 100), with 8 virtual GPUs on whatever cores there are. Every
# planted run has another pair. Fails above 5 missed or 2 false alarms in 100, or if a run takes 30 s.
set -u
runs=${1:-100}
profile=${2:-standard}
weft=$WEFT_BIN
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=0 besides=0 clean=0 longest=0

# once: weft links, with its status in $status and its seconds in $took
once() {
    local start=${EPOCHREALTIME/./}
    "$weft" links -n 8 --profile "$profile" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    took=$(((${EPOCHREALTIME/./} - start) / 1000))
    [ $took -le $longest ] || longest=$took
    if [ $status != 0 ] && [ $status != 3 ]; then
        echo "status $status: $(cat "$work/err")"
        exit 1
    fi
}

for ((i = 0; i < runs; i++)); do
    from=$((i % 8)) to=$(((i + 1 + i / 8 % 7) % 8))
    export WEFT_TEST_SLOW_LINK=$from:$to:30
    once
    sentences=$(grep -c 'is slow' "$work/out")
    if grep -q "from rank $from to rank $to .* is slow" "$work/out" && [ $status = 3 ]; then
        found=$((found + 1))
        [ "$sentences" = 1 ] || { besides=$((besides + 1)) && echo "planted $from>$to, others too: $(grep 'is slow' "$work/out")"; }
    else
        echo "missed $from>$to, status $status: $(grep 'is slow' "$work/out")"
    fi
    unset WEFT_TEST_SLOW_LINK
    once
    if [ $status = 0 ]; then
        clean=$((clean + 1))
    else
        echo "false alarm: $(grep 'is slow' "$work/out")"
    fi
    [ $(((i + 1) % 10)) != 0 ] || echo "$((i + 1)) of each: found $found, clean $clean"
done
echo "$profile: found $found of $runs planted; false alarms in $((runs - clean)) of $runs clean runs," \
    "beside a planted one in $besides; longest run $longest ms"
[ $((100 * found)) -ge $((95 * runs)) ] && [ $((100 * (runs - clean))) -le $((2 * runs)) ] && [ $longest -lt 30000 ]
