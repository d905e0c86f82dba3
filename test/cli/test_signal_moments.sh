#!/bin/bash
# ctest: timeout=600 plain waits
# Signals to weft train at random moments of random runs: the state after the last step is in a whole checkpoint and
# the status is 0, or the status is that of the signal and a sentence says what is lost.
#   MOMENTS=200 SLOWEST=20 SEED=7 test_signal_moments.sh    so many, with steps of 0.01 s to SLOWEST seconds
# The seed draws the runs and the moments; how far a run has come by then is up to the machine.
set -u
# shellcheck source=test/cli/slow_steps.sh
. "$(dirname "$0")/slow_steps.sh"

moments=${MOMENTS:-12} slowest=${SLOWEST:-1}
seed=${SEED:-$$}
RANDOM=$((seed % 32768))

# Into $picked, not to stdout: a subshell has random numbers of its own, which no seed decides.
pick() { # pick WORD...: one of them
    shift "$((RANDOM % $#))"
    picked=$1
}
between() { # between LEAST MOST: a number, as likely small as large (logarithmically)
    picked=$(awk -v r="$((RANDOM * 32768 + RANDOM))" -v least="$1" -v most="$2" \
        'BEGIN { print least * exp(r / 1073741824 * log(most / least)) }')
}

# draw: $model, $n, $plan, $signal, $keeps, $target, $seconds of a step, $since when it runs, and $after which time
draw() {
    pick config config large && model=$picked
    pick 1 2 3 4 && n=$picked
    case $n in
    1) pick "" "--zero 2" "--recompute full" ;;
    2) pick "" "--tp 2" "--pp 2" "--zero 1" "--zero 3" "--compress int8" ;;
    3) pick "" "--zero 1" "--zero 3" "--compress bf16" ;;
    4) pick "" "--tp 2 --pp 2" "--pp 2 --zero 1" "--tp 2 --zero 3" ;;
    esac
    plan=$picked
    pick TERM TERM TERM HUP INT && signal=$picked
    pick "--out moment" "--out moment" "--out moment --save 2" "" && keeps=$picked
    pick launcher launcher group everybody stopped && target=$picked
    between 0.01 "$slowest" && seconds=$picked
    pick "the start" "the first step" "the first step" && since=$picked
    after=$(awk -v r="$((RANDOM * 32768 + RANDOM))" -v s="$seconds" 'BEGIN { print r / 1073741824 * (1 + 2.5 * s) }')
}

# hit: the signal. Terminals signal groups; timeout, batch systems and service managers each process, some of them twice.
hit() {
    local child
    case $target in
    launcher) kill -s "$signal" "$pid" ;;
    group) kill -s "$signal" -- "-$pid" ;;
    everybody) kill -s "$signal" "$pid" $(ranks_of "$pid") && { kill -s "$signal" "$pid" $(ranks_of "$pid") || true; } ;;
    stopped)
        if [ "$n" = 1 ]; then # nobody else could wake it up
            kill -STOP "$pid" && kill -s "$signal" "$pid" && sleep 0.3 && kill -CONT "$pid"
        else
            for child in $(ranks_of "$pid" | tail -1); do kill -STOP "$child"; done
            kill -s "$signal" "$pid"
        fi
        ;;
    esac 2>/dev/null
}

# check_saved: status 0, so the state after the last step is in a whole checkpoint
check_saved() {
    local step
    expect_in "$err" "go on with --resume moment"
    step=$(sed -nE 's/.*stopped after step ([0-9]+).*/\1/p' err)
    [ "$(readlink moment/latest)" = "$(printf 'step-%06d' "$step")" ] || fail "stopped after step $step, but saved is $(readlink moment/latest)"
    [ -z "$(find moment -maxdepth 1 -name '.*')" ] || fail "left: $(find moment -maxdepth 1 -name '.*')"
    check_checkpoint moment
}

# check_refused: it says what is lost, and what it had saved before is whole
check_refused() {
    expect_status $((128 + $(kill -l "$signal")))
    expect_in "$err" "SIG$signal"
    grep -q '^weft train: ' err || fail "no sentence: $err"
    [ ! -e moment/latest ] || check_checkpoint moment
}

declare -A rates
for model in large config; do
    measure $model
    rates[$model]=$rate
done
saved=0 refused=0 bad=0
for moment in $(seq 1 "$moments"); do
    draw
    rate=${rates[$model]}
    accumulate=$(slow "$(awk -v s="$seconds" -v n="$n" -v c="$(nproc)" 'BEGIN { print (n > c ? s * c / n : s) }')")
    case $plan in *pp*) accumulate=$((accumulate < 2 ? 2 : accumulate)) ;; esac
    name="moment $moment of seed $seed: $model -n $n $plan $keeps, steps of $seconds s, $signal to $target $after s after $since"
    before=$failures
    rm -rf moment
    start -n "$n" $plan $keeps --accumulate "$accumulate"
    wait_for 60 hears $pid || fail "it never hears: $(cat err)"
    [ "$since" = "the start" ] || wait_for 200 grep -q 'parameters in' out || fail "it does not begin: $(cat err)"
    sleep "$after"
    hit || fail "it has ended by itself: $(cat out err)"
    finish 900
    if [ $status = 0 ] && [ -n "$keeps" ]; then
        check_saved
        saved=$((saved + 1))
    else
        check_refused
        refused=$((refused + 1))
    fi
    [ $failures = $before ] || bad=$((bad + 1))
    took=$(sed -nE 's/.*"seconds": *([0-9.e+-]+).*/\1/p' moment/metrics.jsonl 2>/dev/null | tail -1)
    [ "$moments" -le 20 ] || echo "$name: status $status, a step took ${took:-?} s, $(tail -1 err)"
done
echo "$moments random moments, seed $seed: $saved with a checkpoint of the last state, $refused with a status and a sentence, $bad wrong"

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))
