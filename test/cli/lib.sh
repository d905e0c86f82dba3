# shellcheck shell=bash disable=SC2034 # what is set here is for who sources it
# To be sourced by tests of commands: a folder to work in, and what to expect. $name says what is being tried,
# $failures counts what went wrong.
weft=$WEFT_BIN
work=$(mktemp -d)
failures=0
export XDG_CACHE_HOME=$work/cache
export TMPDIR=$work/tmp # nobody else's, so that what is left there can be told
mkdir "$TMPDIR"
# Without the expectations that come with Weft: a busy machine does not meet them, and that fails no test.
export WEFT_EXPECTATIONS=$work/none
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# A word that is no command fails the test: nothing would be expected by it.
command_not_found_handle() {
    echo "FAILED: $1: there is no such command"
    kill $$
}

fail() {
    echo "FAILED: $name: $*"
    failures=$((failures + 1))
}

# train ARGUMENT...: weft train with stdout, stderr and status in $out, $err, $status
train() {
    "$weft" train --device cpu "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out)
    err=$(cat err)
}

expect_status() { [ "$status" = "$1" ] || fail "status $status, not $1; $err"; }
expect_in() { grep -qF -- "$2" <<<"$1" || fail "'$2' is not in: $1"; }
expect_not_in() { grep -qF -- "$2" <<<"$1" && fail "'$2' is in: $1"; }
expect_same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }

# expect_narrow: the lines of $out fit into 80 columns, but for names of files
expect_narrow() {
    local wide
    wide=$(grep -v '^# expectations: ' <<<"$out" | awk 'length > 80')
    [ -z "$wide" ] || fail "more than 80 columns: $wide"
}

norms() { sed -n 's/.*"grad_norm": *\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"; }
losses() { sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"; }

# ranks_of LAUNCHER: its children that are ranks, as their environment says; the guard has that of the launcher
ranks_of() {
    local child
    for child in $(pgrep -P "$1"); do
        tr '\0' '\n' <"/proc/$child/environ" 2>/dev/null | grep -q '^WEFT_RANK=' && echo "$child"
    done
}

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -gt $end ] && return 1
        sleep 0.02
    done
}
