#!/bin/bash
# ctest: timeout=600 plain waits
# Signals to weft train: whatever comes when, there is a checkpoint of the last state, or a status that is not 0
# and a sentence. Steps are slow, so that a signal comes in the middle of one. test_signal_moments.sh draws moments.
set -u
# shellcheck source=test/cli/slow_steps.sh
. "$(dirname "$0")/slow_steps.sh"
measure config

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
    plan="$plan --accumulate $(slow 0.1) --compress int8 --steps 20 --save 3"
    start $plan --out calm
    finish
    expect_status 0
    start $plan --out run
    wait_for 200 has_steps run 1 || fail "no step: $(cat err)"
    kill -TERM $pid
    finish
    expect_status 0
    [ -s run/latest/residuals.safetensors ] || fail "$(readlink run/latest) has no residuals"
    has_steps run 20 && fail "the run was over before the signal came"
    start $plan --out run --resume auto
    wait_for 200 [ -e run/step-000003 ] || fail "no checkpoint: $(cat err)"
    for rank in $(ranks_of $pid | tail -1); do kill -9 "$rank"; done
    finish
    start $plan --out run --resume auto
    finish
    expect_status 0
    for file in calm/step-000020/*.safetensors; do
        expect_same "$file" "run/step-000020/${file##*/}"
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
    small sh fill.sh "$weft" "--model ./config.json $common"
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
        "$weft" train --model ./config.json $common --micro-batch 32 "$@" >out$rank 2>err$rank </dev/null &
    pid=$!
}
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

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
