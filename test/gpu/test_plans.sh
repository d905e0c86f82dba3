#!/bin/bash
# ctest: timeout=600
# Plans on one GPU: 100 steps in bf16 under dp, tp, pp and ZeRO, with 2, 4 and 8 ranks on the GPU, end
# within 1% of the loss of one rank; some in fp16, of that of fp32 on the CPU. Processes that share a GPU need MPS (tools/test-gpu starts it).
set -u
weft=$WEFT_BIN
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
device=cuda

# The same letters in a random order of words, so that there is something to learn.
awk 'BEGIN { srand(7); split("warp weft loom thread shuttle pattern the a of and", w, " ");
     for (i = 0; i < 60000; i++) printf "%s%s", w[int(rand() * 10) + 1], i % 12 == 11 ? "\n" : " " }' >"$work/text"

# train OPTION...: prints the last loss
train() {
    rm -rf "$work/run"
    timeout 60 "$weft" train --device "$device" --data "$work/text" --length 128 --batch 32 --steps 100 --seed 3 \
        --eval-share 0 --save -1 --out "$work/run" "$@" >"$work/log" 2>&1 || return 1
    tail -n 1 "$work/run/metrics.jsonl" | grep -oE '"loss": ?[0-9.e+-]+' | grep -oE '[0-9.e+-]+$'
}

check() { # check OPTION...: beside $alone, the loss of one rank
    local loss
    if ! loss=$(train --model "$model" "$@"); then
        echo "FAILED: weft train --model $model $*"
        tail -n 5 "$work/log"
        failures=$((failures + 1))
    elif awk -v a="$loss" -v b="$alone" 'BEGIN { d = a / b - 1; exit !(d > -0.01 && d < 0.01) }'; then
        printf '%-11s %-60s %s\n' "$model" "$*" "$loss"
    else
        echo "FAILED: weft train --model $model $*: loss $loss, of one rank $alone"
        failures=$((failures + 1))
    fi
}

model=tiny
if ! alone=$(train --model tiny); then
    echo "skipped: $(tail -n 1 "$work/log")"
    exit 77
fi
printf '%-11s %-60s %s\n' tiny "-n 1" "$alone"
check -n 2
if [ $failures -ne 0 ] && grep -q 'MPS is off' "$work/log"; then
    echo "skipped: MPS is off, so ranks that are processes cannot share a GPU"
    exit 77
fi
check -n 2 --tp 2 --sequence-parallel yes
check -n 2 --pp 2 --accumulate 4 --recompute full
check -n 4 --tp 2 --zero 1
check -n 4 --zero 3 --recompute selective
check -n 4 --pp 4 --accumulate 4
check -n 8 --tp 2 --pp 2 --accumulate 4 --zero 2
check -n 8 --zero 3
model=llama-tiny
alone=$(train --model llama-tiny) || failures=$((failures + 1))
printf '%-11s %-60s %s\n' llama-tiny "-n 1" "$alone"
check -n 2 --tp 2
check -n 4 --pp 2 --accumulate 4 --zero 1
check -n 8 --tp 2 --zero 3
check -n 8 --dp 2 --tp 2 --pp 2 --accumulate 2

model=tiny device=cpu
alone=$(train --model tiny --precision fp32) || failures=$((failures + 1))
printf '%-11s %-60s %s\n' tiny "-n 1 --device cpu --precision fp32" "$alone"
device=cuda
check --precision fp16
check -n 2 --precision fp16
check -n 4 --tp 2 --zero 2 --precision fp16

# A loss scale that is far too large is halved in every step that overflows. Those are counted and change
# nothing; then the loss falls.
if ! loss=$(train --model tiny -n 2 --precision fp16 --loss-scale 1e12 --save 0); then
    echo "FAILED: weft train with a loss scale of 1e12"
    tail -n 5 "$work/log"
    failures=$((failures + 1))
else
    skipped=$(grep -oE '"skipped": ?[0-9]+' "$work/run/latest/trainer.json" | grep -oE '[0-9]+$')
    scales=$(grep -oE '"loss_scale": ?[0-9.e+]+' "$work/run/metrics.jsonl" | grep -oE '[0-9.e+]+$')
    first=$(head -n 1 "$work/run/metrics.jsonl" | grep -oE '"loss": ?[0-9.e+-]+' | grep -oE '[0-9.e+-]+$')
    if printf '%s\n' "$scales" | awk -v skipped="$skipped" -v first="$first" -v loss="$loss" '
        NR == 1 { top = $1 } { last = $1 }
        END { exit !(NR == 100 && skipped > 5 && top == last * 2 ^ skipped && last >= 2 && loss < first - 1) }'; then
        printf '%-11s %-60s %s\n' tiny "-n 2 --precision fp16 --loss-scale 1e12, $skipped steps skipped" "$loss"
    else
        echo "FAILED: from a loss scale of 1e12: $skipped steps skipped, loss $first to $loss, scales $(tr '\n' ' ' <<<"$scales")"
        failures=$((failures + 1))
    fi
fi
exit $((failures > 0))
