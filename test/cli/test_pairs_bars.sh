#!/bin/bash
# ctest: timeout=14400 long serial
# What weft pairs must reach: of a way against itself at most 1% of all verdicts are false, and 95% of planted
# slowdowns of 10% are found. PAIRS_RUNS sets how often each is run (200), PAIRS_NAMES what (all), PAIRS_PROFILE how
# (quick), PAIRS_LOG where counts of every run go.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
runs=${PAIRS_RUNS-200}
names=${PAIRS_NAMES-}
profile=${PAIRS_PROFILE-quick}
log=${PAIRS_LOG-/dev/null}
export WEFT_EXPECTATIONS=$work/none

# count PERCENT: the ways of $runs runs, by verdict, in $same, $faster, $slower, $noisy
count() {
    local i verdict
    same=0 faster=0 slower=0 noisy=0
    for ((i = 0; i < runs; i++)); do
        # shellcheck disable=SC2086 # no word, or several
        if ! WEFT_PAIRS_TEST=$1 "$weft" pairs run $names --profile "$profile" --json run.json >out 2>err </dev/null; then
            fail "run $i: $(cat err)"
            return
        fi
        while read -r verdict; do
            case $verdict in
            *'the same'*) same=$((same + 1)) ;;
            *faster*) faster=$((faster + 1)) && grep -B1 'faster$' out >>"$log" ;;
            *slower*) slower=$((slower + 1)) ;;
            *noisy*) noisy=$((noisy + 1)) ;;
            esac
        done < <(grep '"verdict"' run.json)
        [ "$1" = 0 ] && grep -B1 'slower$' out >>"$log"
        echo "$1% run $i: the same $same, faster $faster, slower $slower, noisy $noisy" >>"$log"
    done
}

name="a way against itself"
count 0
all=$((same + faster + slower + noisy))
false=$((faster + slower))
echo "$name, $runs runs: $false false of $all verdicts, $noisy too noisy to tell"
[ $all -gt 0 ] || fail "nothing was measured"
[ $((false * 100)) -le $all ] || fail "more than 1% are false: $false of $all"

name="10% slower"
count 10
all=$((same + faster + slower + noisy))
echo "$name, $runs runs: $slower of $all found, $noisy too noisy to tell, $faster called faster"
[ $((slower * 100)) -ge $((all * 95)) ] || fail "fewer than 95% are found: $slower of $all"

[ $failures = 0 ] || exit 1
echo "weft pairs: as it must be"
