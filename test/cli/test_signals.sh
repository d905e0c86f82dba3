#!/bin/bash
# ctest: timeout=600 plain waits
# Signals to weft train: whatever comes when, there is a checkpoint of the last state, or a status that is not 0
# and a sentence. Steps are slow, so that a signal comes in the middle of one.
#   MOMENTS=200 SLOWEST=20 SEED=7 test_signals.sh    signals at random moments of random runs, and the slowest step in seconds
set -u
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
common="--device cpu --model ./config.json --data $work/text --length 32 --lr 3e-3 --eval-share 0 --steps 1000000"
micro=1024 # tokens of a micro-batch

# start ARGUMENT...: weft train in the background, as $pid
start() {
    : >out
    : >err # now, not when the background gets to it
    # bash starts what runs in the background with SIGINT ignored
    env --default-signal=INT "$weft" train $common --micro-batch 32 "$@" >out 2>err </dev/null &
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
ranks_of() { # LAUNCHER: its children but the guard, which has no pipe as its output
    local child
    for child in $(pgrep -P "$1"); do
        [ -e "/proc/$child/fd/1" ] && echo "$child"
    done
}

# How fast is this machine now? A step of about so many seconds: --accumulate $(slow SECONDS)
start --accumulate 20 --out speed
wait_for 100 has_steps speed 3 || { name=speed; fail "no steps: $(cat err)"; }
kill -9 $pid
wait $pid 2>/dev/null
rate=$(sed -nE 's/.*"tokens_per_s": *([0-9.e+-]+).*/\1/p' speed/metrics.jsonl | sort -g | tail -1)
slow() { awk -v s="$1" -v rate="$rate" -v micro=$micro 'BEGIN { n = int(s * rate / micro); print n < 1 ? 1 : n }'; }

# check_checkpoint DIR: the last one is whole, and training goes on from it; its step
check_checkpoint() {
    local last
    last=$(readlink "$1/latest") || { fail "$1 has no checkpoint"; return; }
    last=$((10#${last#step-}))
    "$weft" train --resume "$1" --out '' --device cpu -n 1 --dp 1 --tp 1 --pp 1 --zero 0 --schedule 1f1b --compress none --save 0 \
        --micro-batch 1 --accumulate 1 --batch 1 --steps $((last + 1)) >later 2>&1 || fail "$1 cannot be gone on from: $(cat later)"
}

name="a slow step is finished and saved"
for n in 1 2; do
    for signal in TERM INT; do
        rm -rf run
        start -n $n --accumulate "$(slow 1.5)" --out run
        wait_for 200 has_steps run 1 || fail "no step: $(cat err)"
        kill -s $signal $pid
        finish
        expect_status 0
        expect_in "$err" "weft train: SIG$signal: finishing step "
        [ "$(grep -c finishing err)" = 1 ] || fail "said more than once: $err"
        # the step under way is the last one
        under_way=$(sed -nE 's/.*finishing step ([0-9]+), then saving.*/\1/p' err)
        expect_in "$err" "stopped after step $under_way; go on with --resume run"
        [ "$(readlink run/latest)" = "$(printf 'step-%06d' "$under_way")" ] || fail "saved is $(readlink run/latest)"
        [ "$(cat run/metrics.jsonl | wc -l)" = "$under_way" ] || fail "$(cat run/metrics.jsonl | wc -l) lines, not $under_way"
        check_checkpoint run
    done
done

name="with a rank that is stopped"
rm -rf run
start -n 4 --accumulate "$(slow 0.5)" --out run
wait_for 200 has_steps run 1 || fail "no step: $(cat err)"
kill -STOP "$(ranks_of $pid | sed -n 3p)"
kill -TERM $pid
finish
expect_status 0
check_checkpoint run

name="launcher and ranks have it from others, and from each other"
for n in 1 2; do
    for signal in TERM INT HUP; do
        rm -rf run
        start -n $n --accumulate "$(slow 0.5)" --out run
        wait_for 200 has_steps run 1 || fail "no step: $(cat err)"
        for _ in 1 2; do # as timeout, a batch system or a service manager does
            kill -s $signal $pid $(ranks_of $pid)
        done
        finish
        expect_status 0
        check_checkpoint run
    done
done

name="residuals of compressed gradients are saved: whatever ends a run, it goes on to the same weights"
for plan in "-n 2" "-n 4 --tp 2 --zero 1"; do
    rm -rf run calm
    plan="$plan --accumulate $(slow 0.1) --compress int8 --steps 8 --save 3"
    start $plan --out calm
    finish
    expect_status 0
    start $plan --out run
    wait_for 200 has_steps run 1 || fail "no step: $(cat err)"
    kill -TERM $pid
    finish
    expect_status 0
    [ -s run/latest/residuals.safetensors ] || fail "$(readlink run/latest) has no residuals"
    has_steps run 8 && fail "the run was over before the signal came"
    start $plan --out run --resume auto
    wait_for 200 [ -e run/step-000003 ] || fail "no checkpoint: $(cat err)"
    for rank in $(ranks_of $pid | tail -1); do kill -9 "$rank"; done
    finish
    start $plan --out run --resume auto
    finish
    expect_status 0
    for file in calm/step-000008/*.safetensors; do
        expect_same "$file" "run/step-000008/${file##*/}"
    done
done

name="without a run folder nothing is saved"
for n in 1 2; do
    for option in "" "--out none --save -1"; do
        start -n $n --accumulate 3 $option
        wait_for 200 grep -q '^step 2' out || fail "no steps: $(cat out err)"
        kill -HUP $pid
        finish
        expect_status 129
        expect_in "$err" "weft train: SIGHUP: stopped after step "
        expect_in "$err" "which is not saved"
        rm -rf none
    done
done

name="a state that cannot be saved is told, with the last one that was"
mkdir small
small() { unshare -rm sh -c 'mount -t tmpfs -o size=8m none small && exec "$@"' sh "$@"; }
if small true 2>/dev/null; then
    cat >fill.sh <<'SH'
"$1" train $2 --micro-batch 32 --accumulate 1 --save 2 --keep 1 --out small/run -n 2 >out 2>err </dev/null &
pid=$!
tries=0
until [ -e small/run/latest ] || [ $((tries += 1)) -gt 3000 ]; do sleep 0.05; done
head -c 16M /dev/zero >small/fill 2>/dev/null
# one that is being written may have had its room already
until grep -q 'training goes on' out || [ $((tries += 1)) -gt 6000 ]; do sleep 0.05; done
kill -TERM $pid
wait $pid
echo "$? $(readlink small/run/latest)" >status
SH
    small sh fill.sh "$weft" "$common"
    read -r status last <status
    err=$(cat err)
    expect_status 1
    expect_in "$err" "no room in small/run"
    expect_in "$err" "weft train: SIGTERM: stopped after step "
    expect_in "$err" "which is not saved; the last checkpoint is small/run/$last"
else
    echo "not tried: $name: no small file system can be mounted here"
fi

name="ranks that take longer than their grace are killed, named, and not started again"
rm -rf run
start -n 2 --accumulate 1 --save 2 --out run
wait_for 100 test -e run/latest || fail "nothing is saved"
kill -TERM $pid
finish
expect_status 0
last=$(readlink run/latest)
slowly=$(slow 100)
start -n 2 --accumulate "$slowly" --batch $((2 * 32 * slowly)) --resume run --max-restarts 3 --grace 0.2
wait_for 100 eval '[ "$(grep -c "parameters in" out)" = 1 ]' || fail "no start: $(cat err)"
sleep 0.5
ranks=$(ranks_of $pid)
kill -TERM $pid
finish 60
expect_status 143
expect_in "$err" "ended by SIGTERM"
expect_in "$err" "the last checkpoint is run/$last"
expect_not_in "$err" "restarting"
if grep -q finishing err; then # it may have been too early for that
    expect_in "$err" "(up to 0.2 s; again"
    expect_in "$err" "had to be killed after 0.2 s of grace"
    for rank in $ranks; do expect_in "$err" "(pid $rank)"; done
fi
check_checkpoint run

name="a second signal ends at once"
for signal in INT TERM; do
    rm -rf run
    start -n 2 --accumulate "$(slow 100)" --out run
    wait_for 100 grep -q "parameters in" out || fail "no start: $(cat err)"
    kill -s $signal $pid
    sleep 1.2
    kill -s $signal $pid 2>/dev/null || true # the first may have come before steps began, and been enough
    finish 60
    expect_status $((128 + $(kill -l $signal)))
    expect_in "$err" "weft train: ended by SIG$signal"
    expect_in "$err" "nothing was saved"
done

# foreign RANK ARGUMENT...: a rank of two that another launcher started, as $pid
foreign() {
    local rank=$1
    shift
    env --default-signal=INT RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$$ \
        "$weft" train $common --micro-batch 32 "$@" >out$rank 2>err$rank </dev/null &
    pid=$!
}
# Is there somebody who will hear SIGTERM? By a handler, or through a descriptor.
hears() { awk '/^Sig(Cgt|Blk)/ { if (index("4567cdef", substr($2, 13, 1))) found = 1 } END { exit !found }' "/proc/$1/status" 2>/dev/null; }

name="before the first step"
foreign 0 --accumulate 1 --out run2 # waits for rank 1, for ever
cp err0 err
wait_for 60 hears $pid || fail "it never hears"
sleep 0.2
kill -TERM $pid
finish 60
err=$(cat err0)
expect_status 143
expect_in "$err" "weft train: SIGTERM: nothing is trained yet, and nothing is saved"

name="ranks of another launcher"
rm -rf run
foreign 0 --accumulate "$(slow 0.3)" --out run
first=$pid
foreign 1 --accumulate "$(slow 0.3)" --out run
wait_for 200 has_steps run 1 || fail "no step: $(cat err0 err1)"
kill -TERM $first $pid
wait $first
[ $? = 0 ] || fail "rank 0: $(cat err0)"
finish
expect_status 0
expect_in "$(cat err0)" "go on with --resume run"
[ ! -s err1 ] || fail "rank 1 says: $(cat err1)"
check_checkpoint run

# ---- random moments ------------------------------------------------------------------------------------

moments=${MOMENTS:-12} slowest=${SLOWEST:-1}
RANDOM=${SEED:-$((SECONDS + $$))}
seed=${SEED:-$RANDOM}
RANDOM=$seed
one_of() { local list=("$@"); echo "${list[$((RANDOM % $#))]}"; }
# fraction: 0 to 1
fraction() { echo "$((RANDOM * 32768 + RANDOM))" | awk '{ print $1 / 1073741824 }'; }
saved=0 refused=0
for moment in $(seq 1 "$moments"); do
    # bash: not in $(...), which would draw the same number again and again
    RANDOM=$((seed + moment))
    n=$(RANDOM=$((seed + 10 * moment + 1)); one_of 1 2 4)
    case $n in
    1) plan="" ;;
    2) plan=$(RANDOM=$((seed + 10 * moment + 2)); one_of "" "--tp 2" "--pp 2" "--zero 1" "--zero 3" "--compress int8") ;;
    4) plan=$(RANDOM=$((seed + 10 * moment + 2)); one_of "" "--tp 2 --pp 2" "--pp 2 --zero 1" "--tp 2 --zero 3") ;;
    esac
    signal=$(RANDOM=$((seed + 10 * moment + 3)); one_of TERM TERM TERM HUP INT)
    keeps=$(RANDOM=$((seed + 10 * moment + 4)); one_of "--out moment" "--out moment" "--out moment --save 2" "")
    stops=$(RANDOM=$((seed + 10 * moment + 5)); one_of no no no yes)
    seconds=$(RANDOM=$((seed + 10 * moment + 6)); fraction | awk -v most="$slowest" '{ print 0.01 * exp($1 * log(most / 0.01)) }')
    since=$(RANDOM=$((seed + 10 * moment + 8)); one_of "the start" "the first step" "the first step")
    after=$(RANDOM=$((seed + 10 * moment + 7)); fraction | awk -v s="$seconds" '{ print $1 * (1 + 2.5 * s) }')
    accumulate=$(slow "$seconds")
    case $plan in *pp*) accumulate=$((accumulate < 2 ? 2 : accumulate)) ;; esac
    name="moment $moment of seed $seed: -n $n $plan $keeps, steps of $seconds s, $signal $after s after $since, a rank stopped: $stops"
    rm -rf moment
    start -n "$n" $plan $keeps --accumulate "$accumulate"
    wait_for 60 hears $pid || fail "it never hears: $(cat err)"
    [ "$since" = "the start" ] || wait_for 200 grep -q 'parameters in' out || fail "it does not begin: $(cat err)"
    sleep "$after"
    [ $stops = yes ] && for child in $(ranks_of $pid | tail -1); do kill -STOP "$child"; done
    kill -s "$signal" $pid 2>/dev/null || fail "it has ended by itself: $(cat out err)"
    finish 900
    number=$(kill -l "$signal")
    if [ $status = 0 ] && [ -n "$keeps" ]; then
        expect_in "$err" "go on with --resume moment"
        step=$(sed -nE 's/.*stopped after step ([0-9]+).*/\1/p' err)
        [ "$(readlink moment/latest)" = "$(printf 'step-%06d' "$step")" ] || fail "stopped after step $step, but saved is $(readlink moment/latest)"
        [ -z "$(find moment -maxdepth 1 -name '.*')" ] || fail "left: $(find moment -maxdepth 1 -name '.*')"
        check_checkpoint moment
        saved=$((saved + 1))
    else
        expect_status $((128 + number))
        expect_in "$err" "SIG$signal"
        grep -q '^weft train: ' err || fail "no sentence: $err"
        [ ! -e moment/latest ] || check_checkpoint moment
        refused=$((refused + 1))
    fi
    [ "$moments" -le 20 ] || echo "$name: status $status, $(tail -1 err)"
done
echo "$moments random moments, seed $seed: $saved with a checkpoint of the last state, $refused with a status and a sentence"

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
