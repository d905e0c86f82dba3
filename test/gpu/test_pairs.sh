#!/bin/bash
# ctest: timeout=600
# weft pairs on a GPU: every pair that runs there, processes and threads, with nothing wrong.
set -u
weft=$WEFT_BIN
failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WEFT_EXPECTATIONS=$work/none

if ! why=$("$weft" bench copy --device cuda --threads -n 1 -e 8 --iters 1 --repeat 1 2>&1); then
    echo "skipped: $(tail -1 <<<"$why")"
    exit 77
fi
for how in "" --threads; do
    # shellcheck disable=SC2086 # no word, or one
    out=$("$weft" pairs run -p quick --device cuda -n 2 $how 2>&1)
    status=$?
    if [ $status -ne 0 ] || ! grep -q 'wrong results: 0 (all verified)' <<<"$out" ||
        ! grep -qE '^ +graph +[0-9]' <<<"$out" || ! grep -qE '^ +registered +[0-9]' <<<"$out" ||
        ! grep -q 'halo runs on virtual GPUs only' <<<"$out"; then
        echo "FAILED: weft pairs run $how: status $status"
        echo "$out"
        failures=$((failures + 1))
    fi
done
[ $failures -eq 0 ]
