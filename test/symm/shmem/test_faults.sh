#!/bin/bash
# ctest: timeout=120
# What goes wrong ends the whole job, with one sentence that names the call and the PE, and leaves nothing.
set -eu
program=$WEFT_BUILD/test/symm/shmem/pe_fault
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

complain() {
    echo "$1"
    cat "$work/err"
    failed=1
}

# run PES CASE [COMMAND]: status in $status, output in $work/out and $work/err.
run() {
    status=0
    "$WEFT_BIN" run --no-prefix --timeout 60 --grace "${grace:-3}" -n "$1" -- "${@:3}" "$program" "$2" \
        >"$work/out" 2>"$work/err" || status=$?
}

# expect PES CASE STATUS WORDS...: the case ends with STATUS, and one line of Weft's has all of WORDS.
expect() {
    local pes=$1 case=$2 wanted=$3 word lines
    shift 3
    run "$pes" "$case"
    if [ "$wanted" != any ] && [ "$status" -ne "$wanted" ]; then
        complain "$case on $pes PEs: status $status, not $wanted"
    fi
    case $status in
    0 | 124) complain "$case on $pes PEs: status $status" ;;
    esac
    lines=$(grep '^\[weft[ 0-9]*\]' "$work/err" || true)
    for word; do
        lines=$(echo "$lines" | grep -F -- "$word" || true)
    done
    [ -n "$lines" ] || complain "$case on $pes PEs: no sentence with: $*"
    [ "$(grep -c '^\[weft[ 0-9]*\]' "$work/err")" -eq 1 ] || complain "$case on $pes PEs: not one sentence"
}

# mistakes
expect 3 wrong_pe 1 shmem_int_p "there is no PE 3" "PEs are 0 to 2"
expect 2 wrong_pe_of_team 1 shmem_ctx_int_p "on PE 0" "there is no PE 1"
expect 2 not_symmetric 1 shmem_int_put "4 bytes at" "not symmetric"
expect 2 too_long 1 shmem_putmem "beyond the end of symmetric memory"
expect 1 wait_not_symmetric 1 shmem_long_wait_until "not symmetric"
expect 2 wrong_ctx 1 shmem_ctx_int_p SHMEM_CTX_INVALID
expect 2 wrong_team 1 shmem_team_sync SHMEM_TEAM_INVALID
expect 2 wrong_cmp 1 shmem_long_wait_until "cmp 99"
expect 2 wrong_free 1 shmem_free "not what shmem_malloc returned"
expect 2 unlike_malloc 1 shmem_malloc "100 bytes" "200 bytes"
expect 2 malloc_or_barrier 1 "PEs disagree: the call is shmem_malloc for 8 bytes on PE 1, but another collective on PE 0"
expect 3 leaves_early 1 "PE 2 (process" "has called shmem_finalize or exited" shmem_barrier_all
expect 4 wrong_set 1 shmem_barrier "PE_size 4" "no active set"
expect 5 outside_set 1 "shmem_barrier on PE 2" "not in the active set PE_start 0, logPE_stride 2, PE_size 2"
expect 2 lock_twice 1 shmem_set_lock "has the lock already"
expect 2 clear_of_others 1 "shmem_clear_lock on PE 1" "does not have the lock"
expect 2 destroyed_team 1 shmem_team_sync "no team, or one that was destroyed"
expect 1 no_team 1 shmem_int_sum_reduce "no team"
expect 2 too_many 1 shmem_double_put "beyond the end of symmetric memory"
expect 2 too_far_apart 1 shmem_double_iput "beyond the end of symmetric memory"
expect 2 blocks_too_long 1 shmem_long_alltoalls "beyond the end of symmetric memory"
expect 1 not_started any shmem_int_p "before shmem_init"

# deaths: within seconds, by name, whatever the others wait for
for where in barrier:shmem_barrier_all wait:shmem_long_wait_until \
    wait_any:shmem_long_wait_until_any reduce:shmem_double_sum_reduce \
    active_set:shmem_fcollect64 test:shmem_long_test; do
    expect 4 "killed_in_${where%:*}" any "PE 3 (process" "died" "in ${where#*:}"
done
expect 3 killed_with_lock any "PE 2 (process" "died" "in shmem_set_lock"
expect 3 exits_early any "PE 2 (process" "exited with status 9 before shmem_finalize" shmem_barrier_all

# one that is stopped: the others say so, and wait for as long as they may
for where in barrier:"in shmem_barrier_all for PE 2 (process" wait:"shmem_long_wait_until; PE 2 (process"; do
    export WEFT_TIMEOUT=3s WEFT_WARN_AFTER=500ms grace=0.1
    run 3 "stopped_in_${where%%:*}"
    unset WEFT_TIMEOUT WEFT_WARN_AFTER grace
    for sentence in 'has waited [0-2] s' 'timed out after 3.0 s on PE'; do
        grep "$sentence" "$work/err" | grep -F "${where#*:}" | grep -q stopped ||
            complain "stopped in ${where%%:*}: no sentence with: $sentence"
    done
    [ "$status" -eq 1 ] || complain "stopped in ${where%%:*}: status $status"
done

# shmem_global_exit: its status, without a sentence; what was printed is there
run 4 global_exit
[ "$status" -eq 23 ] || complain "global_exit: status $status"
[ "$(grep -o 'says this' "$work/out" | wc -l)" -eq 4 ] || complain "global_exit: output is missing"

# a heap that is too small: NULL and a sentence, which names a size that is enough
export SHMEM_SYMMETRIC_SIZE=1m
expect 2 heap_too_small 42 shmem_malloc "3145728 bytes" "heap of 1 MiB" SHMEM_SYMMETRIC_SIZE
SHMEM_SYMMETRIC_SIZE=$(sed -n 's/^.weft.*SHMEM_SYMMETRIC_SIZE to at least \([0-9]*\).*/\1/p' "$work/err")
run 2 heap_too_small
[ "$status" -eq 0 ] || complain "the size that was advised, $SHMEM_SYMMETRIC_SIZE, is not enough"
SHMEM_SYMMETRIC_SIZE=21t
# the first PE that has none tells, and only it
expect 2 no_memory 42 "shmem_malloc on PE 0: the machine has no memory for 20 TiB"
# a size that is none, or not the same everywhere
SHMEM_SYMMETRIC_SIZE=much
run 2 nothing
{ [ "$status" -eq 1 ] && grep -q 'SHMEM_SYMMETRIC_SIZE=much is no size' "$work/err"; } ||
    complain "a size that is none: status $status"
unset SHMEM_SYMMETRIC_SIZE
# shellcheck disable=SC2016 # for the shell of each PE
run 2 nothing sh -c 'SHMEM_SYMMETRIC_SIZE=$((WEFT_RANK + 1))m exec "$@"' sh
{ [ "$status" -eq 1 ] && grep -q 'SHMEM_SYMMETRIC_SIZE is 1 MiB on PE 0, but 2 MiB on PE 1; give all PEs the same' \
    "$work/err"; } || complain "heaps that differ: status $status"

# the heap is symmetric between programs, variables are not
# shellcheck disable=SC2016
run 2 other_program sh -c '[ "$WEFT_RANK" = 0 ] && exec "$@"; exec "$(dirname "$1")/pe_other"' sh
{ [ "$status" -eq 1 ] && grep -q 'shmem_int_p on PE 0: PE 1 runs another program' "$work/err"; } ||
    complain "another program: status $status"

# nothing is left
if pgrep -f "$program" >/dev/null; then
    complain "a PE still runs"
fi
[ -z "$(find /dev/shm /tmp -maxdepth 1 -name '*weft-shmem*' 2>/dev/null)" ] || complain "a file is left"
exit $failed
