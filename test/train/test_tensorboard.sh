#!/bin/bash
# ctest: timeout=120
# weft train --tensorboard: TensorBoard's own reader finds what metrics.jsonl has, after a kill and a resume too. Needs a
# python3 ($WEFT_TEST_PYTHON) with tensorboard; test_tensorboard.c reads the files without.
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=${WEFT_TEST_PYTHON:-python3}
unset WEFT_TEST_PYTHON # no setting of Weft's
# shellcheck source=test/cli/lib.sh
. "$here/../cli/lib.sh"

seq 1 3000 | awk '{ print "line " $1 " of " $1 % 7 ": the quick brown fox counts " $1 * 13 % 101 }' >text
common="--model tiny --data text --length 32 --batch 4 -n 2 --log 1000 --eval 5"

name="event files are written where they are asked for"
train $common --steps 6 --out run --save 3 --tensorboard
expect_status 0
[ "$(ls run/tensorboard | grep -c '^events\.out\.tfevents\.')" = 1 ] || fail "$(ls run/tensorboard)"
grep -q '^tensorboard = auto$' run/config || fail "$(grep tensorboard run/config)"
name="a run that goes on writes a file of its own, and so does one that is killed"
"$weft" train --device cpu --resume run --steps 100000 --save 1000000 >out 2>&1 </dev/null &
pid=$!
wait_for 60 sh -c '[ "$(wc -l <run/metrics.jsonl)" -ge 12 ]' || fail "no steps: $(cat out)"
kill -KILL $pid
wait $pid 2>/dev/null
# Its ranks have the folder's lock until they are gone.
resume() { train --resume run --steps 9 && [ "$status" = 0 ]; }
wait_for 30 resume || fail "$err"
[ "$(ls run/tensorboard | wc -l)" = 3 ] || fail "$(ls run/tensorboard)"
name="a folder without a run"
train $common --steps 2 --tensorboard board
expect_status 0
[ "$(ls board | wc -l)" = 1 ] || fail "$(ls board)"
train $common --steps 2 --tensorboard
expect_status 2
expect_in "$err" "add --out DIR, or say where with --tensorboard DIR"
name="a folder that cannot be"
train $common --steps 2 --tensorboard text/board
expect_status 1
expect_in "$err" "cannot create the folder text: Not a directory"
[ $failures = 0 ] || exit 1

if ! "$python" -c 'from tensorboard.backend.event_processing import event_accumulator' 2>err; then
    echo "left out: $python has no tensorboard: $(tail -n 1 err)"
    exit 77
fi
"$python" "$here/read_events.py" run/tensorboard run/metrics.jsonl
