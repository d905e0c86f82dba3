# shellcheck shell=bash disable=SC2034,SC2086 # what is set here is for who sources it; options are words
# To be sourced by tests that signal weft train: a model and a text, slow steps, and what must be left of a run.
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cleanup() {
    pkill -9 -f "$work/text" 2>/dev/null # the work folder is in the command of all that was started here
    rm -rf "$work"
}
trap cleanup EXIT

seq 1 3000 | awk '{ print "line " $1 " of " $1 % 7 ": the quick brown fox counts " $1 * 13 % 101 }' >text
cat >config.json <<'JSON'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 32,
 "n_head": 2, "n_positions": 32, "vocab_size": 257, "activation_function": "gelu_new"}
JSON
sed 's/"n_layer": 2, "n_embd": 32/"n_layer": 4, "n_embd": 128/' config.json >large.json
common="--device cpu --data $work/text --length 32 --lr 3e-3 --eval-share 0 --steps 1000000"
micro=1024 # tokens of a micro-batch

# start ARGUMENT...: weft train in the background, as $pid, which is a process group too
start() {
    : >out
    : >err # now, not when the background gets to it
    # bash starts what runs in the background with SIGINT ignored
    env --default-signal=INT setsid "$weft" train --model "./$model.json" $common --micro-batch 32 "$@" >out 2>err </dev/null &
    pid=$!
}
# finish [SECONDS]: wait for it; its status and words
finish() {
    local limit=${1:-200}
    wait_for "$limit" eval '! kill -0 '"$pid"' 2>/dev/null' || { fail "it has not ended after $limit s: $(cat err)"; kill -9 "$pid"; }
    wait "$pid" 2>/dev/null
    status=$?
    err=$(cat err)
    pgrep -f "$work/text" >/dev/null && fail "processes are left: $(pgrep -af "$work/text")"
}
has_steps() { [ "$(cat "$1/metrics.jsonl" 2>/dev/null | wc -l)" -ge "$2" ]; }

# measure MODEL: how fast is this machine now? Afterwards a step of about so many seconds is --accumulate $(slow SECONDS).
# Steps have to be long for that: a short one says more about its start, and about who else runs here.
measure() {
    local accumulate=4
    model=$1
    name="speed of $model"
    while :; do
        rm -rf speed
        start --accumulate $accumulate --out speed
        wait_for 100 has_steps speed 3 || { fail "no steps: $(cat err)"; exit 1; }
        kill -9 $pid
        wait $pid 2>/dev/null
        rate=$(sed -nE 's/.*"tokens_per_s": *([0-9.e+-]+).*/\1/p' speed/metrics.jsonl | sort -g | tail -1)
        awk -v rate="$rate" -v tokens=$((accumulate * micro)) 'BEGIN { exit !(tokens / rate > 0.3) }' && break
        accumulate=$((accumulate * 4))
    done
}
slow() { awk -v s="$1" -v rate="$rate" -v micro=$micro 'BEGIN { n = int(s * rate / micro); print n < 1 ? 1 : n }'; }

# check_checkpoint DIR: the last one is whole, and training goes on from it; its step
check_checkpoint() {
    local last
    last=$(readlink "$1/latest") || { fail "$1 has no checkpoint"; return; }
    last=$((10#${last#step-}))
    "$weft" train --resume "$1" --out '' --device cpu -n 1 --dp 1 --tp 1 --pp 1 --zero 0 --schedule 1f1b --compress none --save 0 \
        --micro-batch 1 --accumulate 1 --batch 1 --steps $((last + 1)) >later 2>&1 || fail "$1 cannot be gone on from: $(cat later)"
}

# Is there somebody who will hear SIGTERM? By a handler, or through a descriptor. Before it becomes weft it is a shell,
# whose handlers do not count.
hears() {
    [ "/proc/$1/exe" -ef "$weft" ] &&
        awk '/^Sig(Cgt|Blk)/ { if (index("4567cdef", substr($2, 13, 1))) found = 1 } END { exit !found }' "/proc/$1/status" 2>/dev/null
}
