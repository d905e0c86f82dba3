#!/bin/bash
# ctest: timeout=600
# Several ranks on one GPU train a model whose matrix products fill multiprocessors: kernels of ranks that
# wait for others must leave room for those of ranks that still compute. All ways to exchange gradients,
# and plans, end with the same loss. Processes that share a GPU need MPS (tools/test-gpu starts it).
set -u
weft=$WEFT_BIN
export WEFT_MATMUL_TUNE=0 # starts sooner
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

head -c 400000 /dev/urandom | base64 >"$work/text"
cat >"$work/model.json" <<EOF
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 12, "n_embd": 768, "n_head": 12,
 "n_positions": 1024, "vocab_size": 8192, "activation_function": "gelu_new"}
EOF

# train OPTION...: prints the last loss
train() {
    rm -rf "$work/run"
    timeout -k 5 40 "$weft" train --device cuda --model "$work/model.json" --data "$work/text" --length 512 --batch 8 \
        --steps 6 --seed 3 --eval-share 0 --save -1 --out "$work/run" "$@" >"$work/log" 2>&1 || return 1
    tail -n 1 "$work/run/metrics.jsonl" | grep -oE '"loss": ?[0-9.e+-]+' | grep -oE '[0-9.e+-]+$'
}

if ! alone=$(train -n 1); then
    tail -n 1 "$work/log"
    grep -q 'there is no GPU to use' "$work/log" && exit 77
    exit 1
fi
echo "-n 1: $alone"
for ranks in 2 4 8; do
    for way in "" "--overlap no" "--bucket 0 --overlap no" "--zero 3" "--tp 2 --sequence-parallel" "--pp 2 --micro-batches 2"; do
        # shellcheck disable=SC2086 # several words
        if ! loss=$(train -n $ranks $way); then
            if grep -q 'MPS is off' "$work/log"; then
                echo "skipped: MPS is off, so ranks that are processes cannot share a GPU"
                exit 77
            fi
            echo "FAILED: weft train -n $ranks $way: it failed, or took longer than 40 s"
            tail -n 5 "$work/log"
            failures=$((failures + 1))
        elif ! awk -v a="$loss" -v b="$alone" 'BEGIN { d = a / b - 1; exit !(d > -0.01 && d < 0.01) }'; then
            echo "FAILED: weft train -n $ranks $way: loss $loss, of one rank $alone"
            failures=$((failures + 1))
        else
            echo "-n $ranks $way: $loss"
        fi
    done
done
exit $((failures > 0))
