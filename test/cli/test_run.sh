#!/bin/bash
# ctest: timeout=300 waits
# weft run, from the outside.
set -u
# A /dev/shm of our own, where we may: all that is left there is ours then.
if [ -z "${OWN_SHM:-}" ] && unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
    OWN_SHM=yes exec unshare -m sh -c 'mount -t tmpfs none /dev/shm && exec bash "$1"' sh "$0"
fi
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
meet=$WEFT_BUILD/test/boot/meet
tag=98$$ # sleeps of this length are ours
left_in_shm() { ls -A /dev/shm 2>/dev/null | sort; }
before=$(left_in_shm)

cleanup() {
    pkill -9 -f "sleep $tag" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

# run ARGUMENT...: weft run with stdout, stderr and status in $out, $err, $status
run() {
    "$weft" run "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    out=$(cat "$work/out")
    err=$(cat "$work/err")
}

expect_equal() { [ "$1" = "$2" ] || fail "'$1' is not '$2'"; }

none_left() { ! pgrep -f "sleep $tag" >/dev/null; }
has_lines() { [ "$(wc -l <"$1" 2>/dev/null || echo 0)" -ge "$2" ]; }

name="output is prefixed and kept apart"
run -n 3 sh -c 'echo "out $WEFT_RANK"; echo "err $WEFT_RANK" >&2; printf "no newline"'
expect_status 0
for rank in 0 1 2; do
    expect_in "$out" "[$rank] out $rank"
    expect_in "$out" "[$rank] no newline"
    expect_in "$err" "[$rank] err $rank"
done
expect_equal "$(wc -l <"$work/out")" 6
expect_equal "$(wc -l <"$work/err")" 3

name="output without prefix is untouched"
run -n 1 --no-prefix printf 'a\nb'
expect_equal "$(od -An -c <"$work/out" | tr -d ' \n')" 'a\nb'

name="Weft's own lines have the rank once"
WEFT_LOG=debug run -n 2 "$weft" bench barrier -i 2 --repeat 1
expect_in "$err" "[1] [weft] job: rank 1 of 2"
WEFT_LOG=debug run -n 2 --no-prefix "$weft" bench barrier -i 2 --repeat 1
expect_in "$err" "[weft 1] job: rank 1 of 2"

name="long lines and many lines arrive whole"
run -n 4 sh -c 'head -c 2500000 /dev/zero | tr "\0" x; echo; seq 1 20000'
expect_status 0
expect_equal "$(grep -c 'x' "$work/out")" 4
for rank in 0 1 2 3; do
    expect_equal "$(sed -n "s/^\[$rank\] \([0-9]*\)$/\1/p" "$work/out" | md5sum)" "$(seq 1 20000 | md5sum)"
done
expect_equal "$(awk '/x/ && length($0) == 2500004' "$work/out" | wc -l)" 4

name="environment"
run -n 2 sh -c 'echo "$WEFT_RANK $WEFT_SIZE $WEFT_LOCAL_RANK $WEFT_LOCAL_SIZE $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $WEFT_RESTART ${#WEFT_SECRET} $WEFT_MASTER_ADDR $MASTER_ADDR"; [ "$WEFT_MASTER_PORT" -gt 0 ] && [ "$MASTER_PORT" -gt 0 ] && [ "$MASTER_PORT" != "$WEFT_MASTER_PORT" ]'
expect_status 0
expect_in "$out" "[1] 1 2 1 2 1 2 1 2 0 32 127.0.0.1 127.0.0.1"

name="standard input goes to rank 0"
out=$(echo hello | "$weft" run -n 2 cat)
expect_equal "$out" "[0] hello"

name="ranks meet at the store"
run -n 8 "$meet"
expect_status 0
expect_equal "$(grep -c ' met$' "$work/out")" 8

name="32 ranks"
run -n 32 "$meet"
expect_status 0
expect_equal "$(grep -c '^\[\([0-9]*\)\] weft \1/32 \1/32 met$' "$work/out")" 32

name="the store listens where WEFT_STORE_HOST says, and ranks are told an address that leads there"
for host in 127.0.0.1 127.0.0.2 0.0.0.0 :: ::1; do
    case $host in
    0.0.0.0 | ::) address=127.0.0.1 ;;
    ::1) [ -e /proc/net/if_inet6 ] && grep -q '^0\{31\}1 ' /proc/net/if_inet6 || continue; address=::1 ;;
    *) address=$host ;;
    esac
    [ $host != :: ] || [ -e /proc/net/if_inet6 ] || continue
    WEFT_STORE_HOST=$host run -n 2 sh -c "echo at \$WEFT_MASTER_ADDR \$MASTER_ADDR; exec $meet"
    expect_status 0
    expect_in "$out" "[1] at $address $address"
    expect_equal "$host $(grep -c ' met$' "$work/out")" "$host 2"
done
WEFT_STORE_HOST=no.such.host.invalid run -n 2 true
expect_status 1
expect_in "$err" "no.such.host.invalid"

name="a wrong secret is refused"
run -n 2 --grace 100ms env WEFT_SECRET=0123456789abcdef0123456789abcdef "$meet"
expect_status 1
expect_in "$err" "secret"

name="ranks are bound to cores"
cpus=$(nproc)
run -n "$cpus" sh -c 'grep Cpus_allowed_list /proc/self/status | cut -f2'
expect_status 0
expect_equal "$(sed 's/^\[[0-9]*\] //' "$work/out" | sort -u | wc -l)" \
    "$("$weft" topo -n "$cpus" | sed -n '/^ *rank/,$p' | tail -n +2 | awk '{print $2}' | sort -u | wc -l)"
run -n 2 --bind none sh -c 'grep Cpus_allowed_list /proc/self/status | cut -f2'
expect_equal "$(sed 's/^\[[0-9]*\] //' "$work/out" | sort -u)" \
    "$(grep Cpus_allowed_list /proc/self/status | cut -f2)"

name="exit status of the first rank to fail"
run -n 4 --grace 100ms sh -c "if [ \$WEFT_RANK = 2 ]; then seq -f 'line %g' 1 15; exit 7; fi; sleep $tag"
expect_status 7
expect_in "$err" "weft run: rank 2 (pid "
expect_in "$err" "exited with status 7"
expect_in "$err" "last lines of rank 2"
expect_equal "$(grep -c '^\[2\] line' "$work/err")" 10
expect_in "$err" "[2] line 15"
none_left || fail "a rank was left"

name="rank killed by a signal"
run -n 3 --grace 100ms sh -c "echo before; [ \$WEFT_RANK = 1 ] && kill -9 \$\$; sleep $tag"
expect_status 137
expect_in "$err" "rank 1 (pid "
expect_in "$err" "was killed by SIGKILL"
expect_in "$err" "2 of the other ranks had to be ended"
none_left || fail "a rank was left"

name="of several that have failed, the first one is blamed"
# The launcher is stopped while they end, so that it finds all of them ended. Who ends when is settled by
# files: "N.gone" is there when rank N has ended, as its shell's parent sees it.
blamed() { # SCRIPT: ranks 0 to 2, told $go and $gone; the launcher sees them all at once
    rm -f "$work"/*.gone "$work/go"
    : >"$work/out"
    go=$work/go gone=$work "$weft" run -n 3 --grace 20s bash -c '
        here() { [ -e "$go" ]; }
        until_() { while ! "$@"; do sleep 0.01; done; }
        # has rank $1 ended? A zombie has, the launcher being stopped
        ended() { [ -e "$gone/$1.pid" ] && case $(cut -d" " -f3 "/proc/$(cat "$gone/$1.pid")/stat" 2>/dev/null) in Z | "") true ;; *) false ;; esac; }
        spoke() { [ -e "$gone/spoke.gone" ]; }
        echo $$ >"$gone/$WEFT_RANK.pid"; echo ready; until_ here
        '"$1" >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
    wait_for 20 has_lines "$work/out" 3 || fail "ranks did not start"
    kill -STOP $launcher
    : >"$work/go"
    all_ended() {
        local rank
        for rank in 0 1 2; do
            case $(cut -d" " -f3 "/proc/$(cat "$work/$rank.pid")/stat" 2>/dev/null) in Z | "") ;; *) return 1 ;; esac
        done
    }
    wait_for 20 all_ended || fail "ranks did not end"
    kill -CONT $launcher
    wait $launcher
    status=$?
    err=$(cat "$work/err")
    rm -f "$work"/*.pid
}
blamed 'case $WEFT_RANK in 1) exit 11 ;; 0) until_ ended 1; exit 10 ;; 2) until_ ended 0; echo told by others >&2; exit 12 ;; esac'
expect_status 11
expect_in "$err" "weft run: rank 1 (pid "
expect_in "$err" "exited with status 11"
expect_in "$err" "after it, 2 of the other ranks failed"
# who speaks and then ends all, itself last
blamed 'case $WEFT_RANK in 2) echo "that is wrong" >&2; : >"$gone/spoke.gone"; until_ ended 0; until_ ended 1; exit 12 ;; *) until_ spoke; exit 10 ;; esac'
expect_status 12
expect_in "$err" "last lines of rank 2"
# who is killed has no other rank as the reason
blamed 'case $WEFT_RANK in 0) echo "told by others" >&2; exit 10 ;; 1) until_ ended 0; kill -9 $$ ;; 2) until_ ended 1; exit 12 ;; esac'
expect_status 137
expect_in "$err" "rank 1 (pid "
# Seen one after another: the one that spoke is waited for, if only a moment. Beside a load that may be too short.
for try in 1 2 3 4 5 6 7 8; do
    rm -f "$work/spoke"
    run -n 3 --grace 20s sh -c "[ \$WEFT_RANK = 2 ] && { echo wrong >&2; : >$work/spoke; sleep 0.05; exit 12; }; while [ ! -e $work/spoke ]; do sleep 0.01; done; exit 10"
    [ "$status" = 12 ] && break
done
expect_status 12
# not for long
run -n 2 --grace 100ms sh -c "[ \$WEFT_RANK = 1 ] && { echo 'just saying' >&2; : >$work/said; sleep $tag; }; while [ ! -e $work/said ]; do sleep 0.01; done; exit 10"
expect_status 10

name="the others have the grace to end by themselves"
run -n 2 --grace 20s sh -c '[ $WEFT_RANK = 0 ] && exit 3; sleep 0.3; echo noticed; exit 4'
expect_status 3
expect_in "$out" "[1] noticed"

name="a rank that ignores SIGTERM is killed"
run -n 2 --grace 100ms sh -c "[ \$WEFT_RANK = 0 ] && exit 3; trap '' TERM; sleep $tag & while :; do wait; done"
expect_status 3
none_left || fail "a rank was left"

name="what a rank leaves behind is ended"
run -n 2 --grace 100ms sh -c "sleep $tag & exit 0"
expect_status 0
none_left || fail "a process was left"

name="program not found"
run -n 4 ./no-such-program
expect_status 127
expect_equal "$(wc -l <"$work/err")" 1
run -n 4 no-such-program-in-path
expect_status 127
expect_equal "$(wc -l <"$work/err")" 1
run -n 4 /
expect_status 126
printf '#!/no/such/interpreter\n' >"$work/script"
chmod +x "$work/script"
run -n 4 "$work/script"
expect_status 127
expect_equal "$(wc -l <"$work/err")" 1

name="bad arguments"
for arguments in "" "-n 2" "-n 0 true" "-n -1 true" "-n 5000 true" "-n x true" "true" \
    "-n 2 --bind socket true" "-n 2 --grace never true" "-n 2 --max-restarts -1 true" "-n 2 --nope true"; do
    # shellcheck disable=SC2086 # split on purpose
    run $arguments
    expect_status 2
    expect_equal "$(wc -l <"$work/err")" 1
    expect_in "$err" "weft run: "
done

name="restarts"
run -n 2 --max-restarts 2 sh -c 'echo "try $WEFT_RESTART"; [ $WEFT_RESTART = 2 ]'
expect_status 0
for try in 0 1 2; do expect_in "$out" "[1] try $try"; done
run -n 2 --max-restarts 1 sh -c 'echo "try $WEFT_RESTART"; exit 5'
expect_status 5
expect_equal "$(grep -c 'try' "$work/out")" 4
run -n 2 --max-restarts 1 sh -c "[ \$WEFT_RESTART = 1 ] || exit 5; exec $meet"
expect_status 0
expect_equal "$(grep -c ' met$' "$work/out")" 2

name="timeout"
run -n 2 --timeout 200ms sleep $tag
expect_status 124
none_left || fail "a rank was left"

name="closed output ends the job"
"$weft" run -n 2 yes 2>"$work/err" | head -2 >"$work/out"
expect_equal "${PIPESTATUS[0]}" 141
expect_equal "$(wc -l <"$work/out")" 2
expect_equal "$(cat "$work/err")" ""
if [ -c /dev/full ]; then
    "$weft" run -n 2 echo x >/dev/full 2>"$work/err"
    expect_equal "$?" 1
    expect_in "$(cat "$work/err")" "cannot write to stdout"
fi
"$weft" run -n 2 true >&- 2>&- <&-
expect_equal "$?" 0

# start COMMAND...: in the background, its pid in $launcher; two ranks that say when they are ready
start() {
    : >"$work/out"
    "$weft" run -n 2 "$@" >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
    wait_for 60 has_lines "$work/out" 2 || fail "ranks did not start"
}

name="signals are forwarded"
for signal in HUP USR1 USR2 QUIT TERM INT; do
    # bash starts background jobs with SIGINT and SIGQUIT ignored; env takes that back
    start_signal() {
        : >"$work/out"
        env --default-signal=INT,QUIT "$weft" run -n 2 --grace 20s env --default-signal bash -c \
            "trap 'echo got $signal; exit 0' $signal; echo ready; while :; do sleep 0.02; done" \
            >"$work/out" 2>"$work/err" </dev/null &
        launcher=$!
        wait_for 60 has_lines "$work/out" 2 || fail "ranks did not start"
    }
    start_signal
    kill -s $signal $launcher
    wait $launcher
    expect_equal "$signal $?" "$signal 0"
    expect_equal "$(grep -c "got $signal" "$work/out")" 2
done

name="ranks that do not end after a signal are killed, and named"
start --grace 300ms sh -c "trap '' TERM HUP; echo ready; sleep $tag"
ranks=$(ranks_of $launcher)
kill -HUP $launcher
wait $launcher
expect_equal "$?" 129
expect_in "$(cat "$work/err")" "weft run: ended by SIGHUP; rank 0 (pid "
expect_in "$(cat "$work/err")" " had to be killed after 0.3 s of grace"
for pid in $ranks; do expect_in "$(cat "$work/err")" "(pid $pid)"; done
expect_equal "$(wc -l <"$work/err")" 1
none_left || fail "a rank was left"
# one of them only
start --grace 300ms sh -c "[ \$WEFT_RANK = 1 ] && trap '' TERM || trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"
kill -TERM $launcher
wait $launcher
expect_equal "$?" 143
expect_in "$(cat "$work/err")" "ended by SIGTERM; rank 1 (pid "
expect_equal "$(grep -c 'rank 0' "$work/err")" 0

name="a failure after a signal is told, and the job is not started again"
start --max-restarts 3 --grace 20s bash -c "trap 'echo cannot save >&2; exit 9' TERM; echo ready; while :; do sleep 0.02; done"
kill -TERM $launcher
wait $launcher
expect_equal "$?" 9
expect_in "$(cat "$work/err")" "exited with status 9"
expect_in "$(cat "$work/err")" "ended by SIGTERM"
expect_equal "$(grep -c ready "$work/out")" 2

name="a failure before the end by a signal keeps its status"
start --grace 20s bash -c "trap '' TERM; echo ready; [ \$WEFT_RANK = 0 ] && exit 6; : >$work/others; while :; do sleep 0.02; done"
wait_for 10 test -e "$work/others"
wait_for 10 grep -q 'status 6' "$work/err" || fail "the failure was not told: $(cat "$work/err")"

kill -TERM $launcher
kill -TERM $launcher
sleep 0.1
kill -0 $launcher 2>/dev/null || fail "the grace after a failure is not kept"
kill -9 $(ranks_of $launcher | tail -1)
wait $launcher
expect_equal "$?" 6

name="ranks that ask for time to end have it, unless the user says otherwise"
# ending OPTION... -- ASKED TAKEN: two ranks that have asked are told to end
ending() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    : >"$work/out"
    "$weft" run -n 2 "${options[@]}" "$meet" "$2" "$3" >"$work/out" 2>"$work/err" </dev/null &
    launcher=$!
    wait_for 20 has_lines "$work/out" 4 || fail "ranks did not start"
    kill -TERM $launcher
    wait $launcher
    status=$?
    err=$(cat "$work/err")
}
ending -- 60 7
expect_status 0
expect_equal "$err $(grep -c ended "$work/out")" " 2"
ending --grace 100ms -- 60 30
expect_status 143
expect_in "$err" "had to be killed after 0.1 s of grace"

name="a stopped rank hears the signal"
start --grace 60s bash -c "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done"
stopped=$(ranks_of $launcher | tail -1)
kill -STOP "$stopped"
kill -TERM $launcher
wait_for 20 eval '! kill -0 '$launcher' 2>/dev/null' || { fail "it is waited for"; kill -CONT "$stopped"; }
wait $launcher
expect_equal "$?" 0

name="ended by a signal"
start sh -c "echo ready; sleep $tag"
kill -TERM $launcher
wait $launcher
expect_equal "$?" 143
expect_in "$(cat "$work/err")" "ended by SIGTERM"
none_left || fail "a rank was left"

name="a second SIGINT kills"
: >"$work/out"
env --default-signal=INT "$weft" run -n 2 sh -c "trap '' INT; echo ready; while :; do sleep $tag; done" \
    >"$work/out" 2>"$work/err" </dev/null &
launcher=$!
wait_for 60 has_lines "$work/out" 2 || fail "ranks did not start"
kill -INT $launcher
kill -INT $launcher # the same, on another way
sleep 1.2
kill -0 $launcher 2>/dev/null || fail "ended at the first"
kill -INT $launcher
wait $launcher
expect_equal "$?" 130
expect_in "$(cat "$work/err")" "ended by SIGINT, which came twice; rank 0 (pid "
expect_in "$(cat "$work/err")" "and rank 1 (pid "
none_left || fail "a rank was left"

name="output that nobody reads is no success, and keeps nobody waiting"
mkfifo "$work/pipe"
sleep "$tag" <"$work/pipe" & # holds it open
reader=$!
: >"$work/err"
"$weft" run -n 1 --no-prefix sh -c "head -c 200000 /dev/zero; echo ready >&2" >"$work/pipe" 2>"$work/err" </dev/null &
launcher=$!
wait_for 60 has_lines "$work/err" 1 || fail "the rank did not end"
sleep 0.5
kill -TERM $launcher
wait $launcher
expect_equal "$?" 143
expect_in "$(cat "$work/err")" "weft run: nobody reads what the ranks wrote: "
: >"$work/err"
"$weft" run -n 1 --no-prefix sh -c "trap 'exit 0' TERM; head -c 200000 /dev/zero; echo ready >&2; while :; do sleep 0.02; done" \
    >"$work/pipe" 2>"$work/err" </dev/null &
launcher=$!
wait_for 60 has_lines "$work/err" 1 || fail "the rank did not start"
kill -TERM $launcher
wait_for 60 eval "! kill -0 $launcher 2>/dev/null" || fail "it still waits for a reader"
wait $launcher
expect_equal "$?" 143
kill $reader
wait $reader 2>/dev/null

name="ranks that wait for a rank 0 that failed before it joined do not use up the grace"
began=$SECONDS
"$weft" run --grace 60s -n 3 sh -c "[ \$WEFT_RANK != 0 ] || { sleep 0.5; exit 7; }
    exec '$weft' bench allreduce -e 8 --device cpu" >"$work/out" 2>"$work/err"
expect_equal "$?" 7
expect_in "$(cat "$work/err")" "rank 0 "
expect_in "$(cat "$work/err")" "a rank of this job failed while others waited for it"
[ $((SECONDS - began)) -lt 50 ] || fail "it took $((SECONDS - began)) s: $(cat "$work/err")"

# guard_of LAUNCHER: the child that runs no other program
guard_of() {
    local child
    for child in $(pgrep -P "$1"); do
        [ "$(readlink "/proc/$child/exe")" = "$(readlink "/proc/$1/exe")" ] && echo "$child"
    done
}

name="a guard that was stopped keeps nobody waiting"
start sh -c "echo ready; exec sleep 0.5"
kill -STOP "$(guard_of $launcher)"
ended() { ! kill -0 $launcher 2>/dev/null; }
wait_for 30 ended || { fail "the launcher waits for it"; pkill -CONT -P $launcher; }
wait $launcher
expect_equal "$?" 0

name="nor does one that is stopped again and again while the launcher ends"
start sh -c "echo ready; exec sleep 0.5"
guard=$(guard_of $launcher)
stops=0
until ((stops == 200000)) || ! kill -STOP "$guard" 2>/dev/null; do
    ((stops += 1))
done
wait_for 30 ended || { fail "the launcher waits for it"; kill -CONT "$guard"; }
wait $launcher
expect_equal "$?" 0

name="kill -9 of the launcher leaves nothing"
start sh -c "sleep $tag & echo ready; sleep $tag; true"
kill -9 $launcher
wait $launcher 2>/dev/null
wait_for 30 none_left || fail "left: $(pgrep -af "sleep $tag")"

name="nor does it with a guard that was stopped"
start sh -c "sleep $tag & echo ready; sleep $tag; true"
guard=$(guard_of $launcher)
kill -STOP "$guard" || fail "there is no guard"
kill -9 $launcher
wait $launcher 2>/dev/null
wait_for 30 none_left || fail "left: $(pgrep -af "sleep $tag")"
wait_for 30 eval "! kill -0 $guard 2>/dev/null" || { fail "the guard is left"; kill -9 "$guard"; }

name="children from before are left alone, and not waited for"
for rank in true false; do
    began=$SECONDS
    child=$(bash -c 'sleep 1234 >/dev/null 2>&1 & echo $!; exec "$@" >/dev/null 2>&1' - "$weft" run --grace 20s -n 2 $rank)
    [ $((SECONDS - began)) -lt 10 ] || fail "waited for a child that was there before"
    kill -9 "$child" || fail "ended a child that was there before"
done

name="ranks meet where the identity of the host is hidden, as in some containers"
hidden() { unshare -rm sh -c 'mount -t tmpfs none /proc/sys/kernel/random && exec "$@"' sh "$@"; }
if hidden true 2>/dev/null; then
    hidden "$weft" bench allreduce -n 2 -e 8 --device cpu >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
    expect_in "$(cat "$work/out")" "verified"
else
    echo "not tried: $name: nothing can be mounted here"
fi

name="commands"
"$weft" --help >"$work/out" || fail "--help failed"
for command in run bench topo info; do expect_in "$(cat "$work/out")" "  $command "; done
expect_in "$("$weft" --version)" "weft "
"$weft" rnu 2>"$work/err"
expect_equal "$?" 2
expect_in "$(cat "$work/err")" "did you mean 'run'"
"$weft" 2>"$work/err"
expect_equal "$?" 2
expect_in "$("$weft" info)" "WEFT_TIMEOUT"
"$weft" topo --json "$work/topo.json" >"$work/out" || fail "topo failed"
expect_in "$(cat "$work/topo.json")" '"cores"'
"$weft" topo --json /no/such/folder/x 2>"$work/err" >/dev/null
expect_equal "$?" 1
"$weft" info >/dev/full 2>"$work/err"
expect_equal "$?" 1

name="nothing is left"
expect_equal "$(ls -A "$TMPDIR")" ""
if [ -n "${OWN_SHM:-}" ]; then
    expect_equal "$(left_in_shm)" ""
else # others may use it beside us, and remove things meanwhile
    expect_equal "$(comm -13 <(echo "$before") <(left_in_shm) | grep -i weft | grep -v -e weft-test -e weft-fuzz)" ""
fi
pgrep -f "weft-guard" >/dev/null && sleep 1
none_left || fail "processes: $(pgrep -af "sleep $tag")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
echo "all passed"
