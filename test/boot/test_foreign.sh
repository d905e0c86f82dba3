#!/bin/bash
# ctest: timeout=180
# Ranks started by mpirun, of whichever kind is installed, find each other; two jobs at once do not
# meet; a shell between mpirun and the rank does not matter.
set -u
meet=$WEFT_BUILD/test/boot/meet
tried=0
# A folder for each mpirun: those of a user share one in $TMPDIR otherwise, and Open MPI's remove it under each other.
work=$(mktemp -d /tmp/weft-test-foreign-XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/one" "$work/first" "$work/second"
export TMPDIR=$work/one
fail() { echo "FAILED: $*"; exit 1; }

# check OUTPUT LAUNCHER SIZE: every rank said once that it met all
check() {
    for ((rank = 0; rank < $3; rank++)); do
        [ "$(grep -c "^$2 $rank/$3 $rank/$3 met$" <<<"$1")" = 1 ] || fail "$2 rank $rank: $1"
    done
}

try() { # LAUNCHER COMMAND...
    local launcher=$1 first second out
    shift
    tried=1
    out=$("$@" -n 4 "$meet" 2>&1) || fail "$* gave $?: $out"
    check "$out" "$launcher" 4
    out=$("$@" -n 2 sh -c "$meet; exit \$?" 2>&1) || fail "$* with a shell gave $?: $out"
    check "$out" "$launcher" 2
    TMPDIR=$work/first "$@" -n 2 "$meet" >"$work/first.out" 2>&1 &
    first=$!
    second=0
    TMPDIR=$work/second "$@" -n 2 "$meet" >"$work/second.out" 2>&1 || second=$?
    wait $first || fail "two at once: $(cat "$work/first.out")"
    [ $second = 0 ] || fail "two at once: $(cat "$work/second.out")"
    check "$(cat "$work/first.out")" "$launcher" 2
    check "$(cat "$work/second.out")" "$launcher" 2
}

root=()
[ "$(id -u)" = 0 ] && root=(--allow-run-as-root)
command -v mpirun.openmpi >/dev/null && try openmpi mpirun.openmpi "${root[@]}" --oversubscribe
command -v mpirun.mpich >/dev/null && try mpich mpirun.mpich
[ $tried = 1 ] || { echo "skipped: neither mpirun.openmpi nor mpirun.mpich is installed"; exit 77; }
echo "all ranks met"
