#!/bin/bash
# ctest: timeout=120 labels=plans
# weft train under plans, from the outside: the losses of one rank, checkpoints that go on under another
# plan, what --dry-run and the end of a run say.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# train ARGUMENT...: must succeed; what it says is in out
train() {
    "$weft" train --device cpu "$@" >out 2>&1 </dev/null || fail "status $?: $(tail -3 out)"
}

# expect_near DIR DIR COUNT: the same last losses, relatively
expect_near() {
    paste <(losses "$1" | tail -"$3") <(losses "$2" | tail -"$3") | awk -v count="$3" '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d }
        END { if (NR != count || !(worst <= 1e-4)) { print NR " steps, worst " worst; exit 1 } }' ||
        fail "the losses of $1 and $2"
}
expect() { grep -qF -- "$1" out || fail "'$1' is not in: $(cat out)"; }

seq 1 3000 | awk '{ print "line " $1 " of " $1 % 7 ": the quick brown fox counts " $1 * 13 % 101 }' >text
cat >config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 4, "n_embd": 32,
 "n_head": 4, "n_positions": 32, "vocab_size": 257, "activation_function": "gelu_new"}
END
common="--model ./config.json --data text --length 32 --batch 16 --lr 3e-3 --lr-schedule constant --log 100"
common="$common --steps 8 --dropout 0.1 --eval-batches 1"

name="plans follow the losses of one rank"
train $common --out one
expect "saved step 8 in one"
train $common --out grid -n 8 --tp 2 --pp 2 --zero 1 --micro-batches 2 --sequence-parallel \
    --save 4 --keep 0 --sample 8 --sample-tokens 8
expect_near grid one 8
expect "waiting for other stages"
expect "predicted  measured"
[ "$(grep -c '^ *[0-7] .*\.' out)" -ge 8 ] || fail "no memory of 8 ranks"
expect "8 ranks: dp 2 x pp 2 x tp 2"
train $common --out spread -n 4 --zero 3 --recompute selective --offload optimizer
expect_near spread one 8

name="plans scale the loss of fp16 alike, and skip the same steps"
if grep -q '^WEFT_SANITIZE:STRING=.' "$WEFT_BUILD/CMakeCache.txt"; then
    echo "$name: not under a sanitizer, where it takes a minute"
else
    train $common --out half --precision fp16 --loss-scale 3e8 --steps 12
    train $common --out halves -n 4 --tp 2 --zero 2 --precision fp16 --loss-scale 3e8 --steps 12
    expect_near halves half 12
    cmp -s <(grep -o '"loss_scale": [0-9]*' half/metrics.jsonl) <(grep -o '"loss_scale": [0-9]*' halves/metrics.jsonl) ||
        fail "the loss scales of one rank and of 4 differ"
    paste <(norms half) <(norms halves) | awk 'END { exit !($1 > 0 && $2 / $1 > 0.99 && $2 / $1 < 1.01) }' ||
        fail "the norms of gradients: $(norms half | tail -1) of one rank, $(norms halves | tail -1) of 4"
    grep -o '"loss_scale": [0-9]*' half/metrics.jsonl | sort -u | wc -l | awk '{ exit !($1 > 2) }' || fail "no step was skipped"
fi

name="bf16 under a plan goes on from a checkpoint to the same bits"
halves="$common --precision bf16 -n 2 --zero 1 --steps 6 --save 3 --keep 0"
train $halves --out bits
train $halves --resume bits/step-000003 --out bits-again
for file in model optimizer; do
    cmp bits/step-000006/$file.safetensors bits-again/step-000006/$file.safetensors || fail "$file.safetensors is another"
done

name="a dry run has one row for ranks that are alike"
train $common -n 8 --zero 3 --dry-run
[ "$(grep -cE '^ +0-7 +[0-9.]+ ' out)" = 1 ] || fail "no row of ranks 0 to 7 in $(cat out)"

name="a checkpoint goes on under another plan"
folder=$(find grid -maxdepth 2 -type d -name '*4' | head -1)
train $common --resume "$folder" --out on -n 2 --dp 0 --tp 1 --pp 2 --zero 0 --accumulate 4 --micro-batch 4 \
    --sequence-parallel no --schedule interleaved --recompute full
expect_near on one 4

name="a rank that is killed is named, and the job goes on from the last checkpoint to the same weights"
# Under a sanitizer ranks take seconds to start; what is tested here is the launcher and the files.
if ! grep -q '^WEFT_SANITIZE:STRING=.' "$WEFT_BUILD/CMakeCache.txt"; then
    plan="-n 4 --tp 2 --zero 1 --steps 40 --save 8 --keep 0"
    train $common $plan --out calm
    "$weft" train --device cpu $common $plan --max-restarts 2 --out killed >out 2>&1 </dev/null &
    pid=$!
    until [ -e killed/step-000008 ] || ! kill -0 $pid; do sleep 0.01; done
    victim=$(ranks_of $pid | tail -1)
    kill -9 "$victim" || fail "the run was over before a rank could be killed"
    wait $pid || fail "status $?: $(tail -3 out)"
    expect "(pid $victim) was killed by SIGKILL"
    expect "restarting the job, 1 of 2 times, from killed/step-0000"
    for file in model.safetensors optimizer.safetensors; do
        cmp calm/step-000040/$file killed/step-000040/$file || fail "$file is another"
    done
    [ "$(losses calm | md5sum)" = "$(losses killed | md5sum)" ] || fail "losses are others"
fi

name="--dry-run shows the mesh and the memory of every rank"
train $common --dry-run -n 8 --tp 2 --pp 2
expect "8 ranks: dp 2 x pp 2 x tp 2"
expect "stage 1  [4 5] [6 7]"
expect "predicted"

name="offloaded matrices of several segments get the same update"
sed 's/"n_layer": 4, "n_embd": 32/"n_layer": 1, "n_embd": 768/' config.json >wide.json
for where in none optimizer; do
    train --model ./wide.json --data text --length 16 --batch 4 --steps 3 --eval-share 0 -n 2 --zero 1 \
        --offload $where --out offload-$where
done
for file in model optimizer; do
    cmp offload-none/step-000003/$file.safetensors offload-optimizer/step-000003/$file.safetensors ||
        fail "$file.safetensors is another"
done

[ $failures = 0 ] || exit 1
echo "plans: as one rank"
