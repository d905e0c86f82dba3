#!/bin/bash
# ctest: timeout=120 cores=2
# weft links, from the outside: tables, file, statuses, a link that is made slow, and what it refuses.
# A full disk is tried by test_outputs.sh.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
unset WEFT_RANK WEFT_SIZE RANK WORLD_SIZE # of a launcher above us

# links ARGUMENT...: weft links with stdout, stderr and status in $out, $err, $status
links() {
    "$weft" links --device cpu "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out)
    err=$(cat err)
}
count() { # NUMBER PATTERN FILE
    local found
    found=$(grep -c -- "$2" "$3")
    [ "$found" = "$1" ] || fail "$found lines with $2 in $3, not $1"
}
refused() { # SENTENCE ARGUMENT...
    local sentence=$1
    shift
    links "$@"
    expect_status 2
    expect_in "$err" "weft links: $sentence"
    [ -z "$out" ] || fail "it printed a table: $out"
}

name="wrong use"
refused 'there is no profile "fast"; there are quick, standard, thorough' --profile fast
refused 'there is no device "tpu"' --device tpu
refused '--bind is "socket"' --bind socket
refused '--min must be 0 or more' --min -1
refused 'takes no arguments, but was given "8"' 8
refused '--size is 4 KiB or more' --size 1
refused '--size is 4 KiB or more' --size 4095
links -n 0
expect_status 2
links --help
expect_status 0
expect_in "$out" "--profile P"

name="a link that takes four times as long is named, and no other"
for try in 1 2 3; do # another process may hold up a rank for the whole of a measurement
    WEFT_TEST_SLOW_LINK=2:5:300 links -n 7 --profile quick --json slow.json
    sentences=$(grep -c 'is slow' out)
    [ "$sentences" != 1 ] || break
done
expect_status 3
expect_in "$out" "The link from rank 2 to rank 5 "
[ "$sentences" = 1 ] || fail "$sentences links are named: $out"
[ -z "$err" ] || fail "it says: $err"
[ "$(nproc)" -ge 7 ] || expect_in "$out" "more ranks than cores (oversubscribed): 7 ranks take turns"
expect_in "$out" "2  " # a row of the matrix
count 42 '"one_way_gbs":' slow.json
count 42 '"both_ways_gbs":' slow.json
count 42 '"latency_us":' slow.json
count 1 '"slow": true' slow.json
count 1 '"kind": "links"' slow.json
count 6 '"shift":' slow.json
count 1 '"sum_gbs":' slow.json
count 3 '"algorithm": "ring"' slow.json
count 3 '"algorithm": "tree"' slow.json
count 7 '"where":' slow.json
count 1 '"text": "The link from rank 2 to rank 5 ' slow.json
grep -A12 '"from": 2,' slow.json | grep -A10 '"to": 5' | grep -m1 '"slow":' | grep -q true || fail "another pair is slow"
widest=$(awk '!/^# weft / { if (length > most) most = length } END { print most }' out)
[ "$widest" -le 80 ] || fail "$widest columns"

name="clean runs"
clean=0
for try in 1 2 3; do
    links -n 5 --profile quick --output clean.json
    [ "$status" = 0 ] || [ "$status" = 3 ] || fail "status $status: $err"
    [ "$status" = 0 ] && clean=$((clean + 1)) && break
done
[ $clean = 1 ] || fail "a slow link in three clean runs: $out"
expect_in "$out" "no slow link, no wrong byte"
expect_narrow
count 0 '"slow": true' clean.json
count 20 '"slow": false' clean.json
count 20 '"wrong_bytes": 0' clean.json
expect_not_in "$out" $'\033'

name="a link below --min"
links -n 2 --profile quick --min 1000000
expect_status 3
expect_in "$out" "The link from rank 0 to rank 1 "
expect_in "$out" "The link from rank 1 to rank 0 "
expect_in "$out" "below the 1e+06 of --min"
links -n 2 --profile quick --min 0.000001 --size 4K
expect_status 0

name="what is verified is 1 MiB at most"
links -n 2 --profile quick --size 4M --json large.json
[ "$status" = 0 ] || [ "$status" = 3 ] || fail "status $status: $err"
count 1 '"bytes": 4194304,' large.json
count 1 '"verified_bytes": 1048576,' large.json
count 1 '"transfers": "copies"' large.json
count 1 '"verified_bytes": 262144,' clean.json

name="one rank has memory, and no links"
links -n 1 --profile quick --json one.json
expect_status 0
expect_in "$out" "links need 2 ranks or more: give -n 2"
expect_not_in "$out" "oversubscribed"
count 4 '"where":' one.json
count 0 '"from":' one.json

name="threads, which are not bound"
links -n 4 --threads --profile quick --size 64K --json - >/dev/null
[ "$status" = 0 ] || [ "$status" = 3 ] || fail "status $status: $err"
count 12 '"latency_us":' out
expect_in "$err" "one way, GB/s"
[ "$(nproc)" = 1 ] || count 12 '"link": "unbound"' out

name="the setting that plants a slow link"
WEFT_TEST_SLOW_LINK=nonsense links -n 2 --profile quick
expect_status 1
expect_in "$err" 'WEFT_TEST_SLOW_LINK is "nonsense", not FROM:TO:PERCENT'
for planted in 0:1:99999999999 0:1: 0:1:30:5 '0:1: 30' 0:-1:30; do
    WEFT_TEST_SLOW_LINK=$planted links -n 2 --profile quick
    expect_status 1
    expect_in "$err" "WEFT_TEST_SLOW_LINK is \"$planted\", not FROM:TO:PERCENT"
done
for planted in 0:2:30 1:1:30; do
    WEFT_TEST_SLOW_LINK=$planted links -n 2 --profile quick
    expect_status 1
    expect_in "$err" "WEFT_TEST_SLOW_LINK is \"$planted\", and there is no such link"
done

name="a terminal has colours, unless it does not want them"
if command -v script >/dev/null; then
    script -qec "$weft links -n 4 --profile quick --device cpu" /dev/null </dev/null >colours 2>&1
    grep -q $'\033\\[3[123]m' colours || fail "no colours: $(cat colours)"
    NO_COLOR=1 script -qec "$weft links -n 2 --profile quick --device cpu" /dev/null </dev/null >plain 2>&1
    grep -q $'\033' plain && fail "colours in spite of NO_COLOR"
else
    echo "not tried: $name: there is no script(1)"
fi

name="a file that cannot be written"
links -n 2 --profile quick --json nowhere/links.json
expect_status 1
expect_in "$err" "nowhere"
[ -z "$out" ] || fail "it measured first: $out"

name="a rank that is killed"
"$weft" links --device cpu -n 4 --profile thorough --size 16M --json killed.json >out 2>err </dev/null &
pid=$!
ranks_are_there() { [ "$(ranks_of $pid | wc -l)" -ge 4 ]; }
wait_for 60 ranks_are_there || fail "it does not start"
sleep 0.5
kill -9 "$(ranks_of $pid | tail -1)"
wait $pid
status=$?
err=$(cat err)
expect_status 137
expect_in "$err" "killed by SIGKILL"
[ ! -e killed.json ] || fail "a file of a measurement that failed"

[ $failures = 0 ] || exit 1
echo "links: all as expected"
