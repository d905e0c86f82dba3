#!/bin/bash
# ctest: timeout=60 waits
# A rank that keeps others waiting is named long before the timeout, once, by one of those that wait.
set -eu
program=$WEFT_BUILD/test/comm/watch/late_rank
out=$(WEFT_WARN_AFTER=1s "$WEFT_BIN" run -n 3 -- "$program" 3000 2>&1)
echo "$out"
[ "$(grep -c 'of waiting in call 1, allreduce of 1 f32, sum: not arrived: rank 1 (made no call yet); arrived: 0 2' <<<"$out")" = 1 ]
[ "$(grep -c 'of waiting on rank 0 in recv of 1 f32 from 1: rank 1 has not made the matching call' <<<"$out")" = 1 ]
grep -q 'waits until 300 s have passed (WEFT_TIMEOUT)' <<<"$out"
grep -q 'waits for ever (WEFT_TIMEOUT is 0)' <<<"$(WEFT_TIMEOUT=0 WEFT_WARN_AFTER=500ms "$WEFT_BIN" run -n 2 -- "$program" 1500 2>&1)"
# Silence is possible, and usual.
[ -z "$(WEFT_WARN_AFTER=0 "$WEFT_BIN" run -n 3 -- "$program" 400 2>&1)" ]
[ -z "$("$WEFT_BIN" run -n 3 -- "$program" 400 2>&1)" ]
