#!/bin/bash
# ctest: timeout=180
# weft bench on a GPU: one-sided calls on streams, patterns inside kernels, compressed gradients, tuning.
set -u
weft=$WEFT_BIN
failures=0

if ! why=$("$weft" bench copy --device cuda --threads -n 1 -e 8 --iters 1 --repeat 1 2>&1); then
    echo "skipped: $(tail -1 <<<"$why")"
    exit 77
fi

# expect ROWS ARGUMENT...: so many rows, none of them with wrong results
expect() {
    local rows=$1 out status good
    shift
    out=$("$weft" bench "$@" --device cuda 2>&1)
    status=$?
    good=$(grep -cE '^ +([0-9]+|-) .* 0$' <<<"$out")
    if [ $status -ne 0 ] || [ "$good" != "$rows" ]; then
        echo "FAILED: weft bench $*: status $status, $good good rows of $rows"
        echo "$out"
        failures=$((failures + 1))
    fi
}

for how in "" --threads; do # processes (under MPS), and threads
    for what in put get handoff lookup swap; do
        # shellcheck disable=SC2086 # no word, or one
        expect 3 "$what" $how -n 2 -b 1K -e 64K -f 8 --iters 20 --repeat 1
    done
    # shellcheck disable=SC2086
    expect 4 atomic $how -n 2 --iters 20 --repeat 1
    # shellcheck disable=SC2086
    expect 1 symm-barrier $how -n 2 --iters 20 --repeat 1
done
expect 1 handoff --threads -n 3 -b 1003 -e 1003 --iters 20 --repeat 1

for what in compress:6 compress-allreduce:18 quantized:6; do
    expect "${what#*:}" "${what%:*}" --threads -n 2 -b 64K -e 1M -f 16 --iters 5 --repeat 1
done

file=$(mktemp)
rm "$file"
out=$(WEFT_TUNE_FILE=$file "$weft" bench allreduce --device cuda --threads -n 2 --tune --repeat 1 2>&1)
if ! grep -q "saved in $file" <<<"$out" || ! grep -qE ' 2 shared allreduce ll [0-9]+ nccl ' "$file"; then
    echo "FAILED: what was measured is not kept: $out $(cat "$file")"
    failures=$((failures + 1))
fi
rm -f "$file"
json=$("$weft" bench put-signal --device cuda --threads -n 2 -e 64 --repeat 1 --json - 2>/dev/null)
if ! grep -q '"inside a kernel"' <<<"$json" || [ "${json:0:1}${json: -1}" != "{}" ]; then
    echo "FAILED: put-signal as JSON: $json"
    failures=$((failures + 1))
fi

out=$("$weft" bench halo --device cuda --threads -n 2 2>&1)
if ! grep -q 'halo runs on virtual GPUs only' <<<"$out"; then
    echo "FAILED: halo was not refused on a GPU: $out"
    failures=$((failures + 1))
fi
[ $failures -eq 0 ]
