#!/bin/bash
# ctest: timeout=180
# What commands return: every cell of the table in docs/reliability.md, which has a row for every command.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
bin=$WEFT_BUILD
tried=0
unset WEFT_RANK WEFT_SIZE RANK WORLD_SIZE # of a launcher above us

# ---- what is run -------------------------------------------------------------------------------

seq 1 3000 | awk '{ print "line " $1 " of " $1 % 7 ": the quick brown fox counts " $1 * 13 % 101 }' >text
cat >config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_embd": 16,
 "n_head": 2, "n_positions": 32, "vocab_size": 257, "activation_function": "gelu_new"}
END
echo 'int main(void) { return 0; }' >program.c
mkdir empty
train="$weft train --device cpu --model ./config.json --data text --batch 4 --eval-share 0"
name="a model to write with"
$train --steps 2 --out model >out 2>err || fail "$(cat err)"

# short COMMAND: the words of one that succeeds and prints something
short() {
    case $1 in
    run) echo "$weft run -n 2 echo x" ;;
    train) echo "$train -n 2 --steps 3" ;;
    generate) echo "$weft generate --from model -n 4" ;;
    bench) echo "$weft bench barrier -n 2 --iters 2 --repeat 1" ;;
    pairs) echo "$weft pairs run put-signal -p quick -i 2" ;;
    report) echo "$weft report model" ;;
    scaling) echo "$weft scaling --device cpu --model ./config.json -n 2 -b 1 --steps 1 --rounds 1 --mode weak --no-plans" ;;
    links) echo "$weft links -n 2 --profile quick" ;; # of two links nothing can be said but what they reach
    topo | info) echo "$weft $1" ;;
    # an empty machine: what is wrong with this one is no concern here
    doctor) echo "env WEFT_NVML=none.so $weft doctor --level quick --root $work/empty" ;;
    oshrun) echo "$bin/oshrun -np 2 echo x" ;;
    oshcc | weftcc) echo "$bin/$1 --showme:compile" ;;
    esac
}
# more COMMAND: other forms of it, one a line, that must return the same where output does not arrive
more() {
    case $1 in
    train) printf '%s\n' "$train --steps 3" "$train --dry-run" "$weft train --help" "$weft train --model help" \
        "$weft train --device cpu --model ./config.json --batch 4 --benchmark -n 2 --steps 1" ;;
    bench) printf '%s\n' "$weft bench barrier -n 2 --threads --iters 2 --repeat 1" "$weft bench --help" \
        "$weft bench barrier -n 2 --iters 2 --repeat 1 --json -" ;;
    pairs) printf '%s\n' "$weft pairs list" "$weft pairs list --json -" "$weft pairs --help" \
        "$weft pairs run put-signal -p quick -i 2 --json -" ;;
    report) printf '%s\n' "$weft report model -o -" "$weft report --help" ;;
    scaling) printf '%s\n' "$(short scaling) --json -" "$weft scaling --help" ;;
    links) printf '%s\n' "$weft links -n 2 --profile quick --threads" "$weft links --help" \
        "$weft links -n 2 --profile quick --json -" ;;
    topo) printf '%s\n' "$weft topo --json -" "$weft topo --help" ;;
    doctor) printf '%s\n' "$(short doctor) --json -" "$weft doctor --list" "$weft doctor --help" ;;
    oshrun) printf '%s\n' "$bin/oshrun --help" "$bin/oshrun -V" ;;
    oshcc) echo "$bin/oshcc --showme x.c" ;;
    weftcc) printf '%s\n' "$bin/weftcc -nccl --showme x.cu" "$bin/weftcc -nccl --showme:link" ;;
    *) printf '%s\n' "$weft $1 --help" "$weft --help" "$weft --version" ;;
    esac
}
# long COMMAND: one that goes on until it is ended
long() {
    case $1 in
    run) echo "$weft run -n 2 --grace 20s sleep 600" ;;
    train) echo "$train -n 2 --steps 100000000 --log 100" ;;
    # always the likeliest token, which is never the end of the text
    generate) echo "$weft generate --from model -n 100000000 --temperature 0" ;;
    bench) echo "$weft bench allreduce -n 2 -b 8 -e 8 --iters 1000000000" ;;
    pairs) echo "$weft pairs run halo -p thorough -i 10000000" ;;
    scaling) echo "$(short scaling) --steps 1000000" ;;
    links) echo "$weft links -n 2 --profile thorough --size 64M" ;;
    oshrun) echo "$bin/oshrun -np 2 --grace 20s sleep 600" ;;
    esac
}

# ---- the cases ---------------------------------------------------------------------------------

# Each sets $status, and leaves stderr in err.
run_it() {
    "$@" >out 2>err </dev/null
    status=$?
}
says() { grep -q -- "$1" err || fail "no word of \"$1\": $(cat err)"; }
silent() { [ ! -s err ] || fail "it says: $(cat err)"; }

case_success() { run_it $(short "$1"); }
case_wrong_use() {
    case $1 in
    oshcc | weftcc) run_it "$bin/$1" --no-such-option program.c -o program ;;
    oshrun) run_it "$bin/oshrun" true ;;
    run) run_it "$weft" run --no-such-option true ;;
    *) run_it "$weft" "$1" --no-such-option ;;
    esac
    says .
}
# start COMMAND: in the background as $pid, with as many ranks under way as it has
start() {
    local count=2 end=$((SECONDS + 60))
    [ "$1" = generate ] && count=0
    $(long "$1") >out 2>err </dev/null &
    pid=$!
    until [ "$(ranks | wc -w)" = $count ] && [ -s out -o $count = 2 -a "$1" != train ]; do
        [ $SECONDS -lt $end ] || { fail "it does not start: $(cat err)" && return; }
        sleep 0.05
    done
}
# ranks: children of $pid that are ranks, which know their number
ranks() {
    local child
    for child in $(cat /proc/$pid/task/$pid/children 2>/dev/null); do
        { tr '\0' '\n' <"/proc/$child/environ"; } 2>/dev/null | grep -q '^WEFT_RANK=' && echo "$child"
    done
}
case_failed_rank() {
    case $1 in
    run | oshrun) run_it $(short "$1" | sed 's/ echo x$//') sh -c 'exit 7' ;;
    *)
        start "$1"
        kill -9 "$(ranks | tail -1)"
        wait $pid
        status=$?
        ;;
    esac
    says "with status 7\|killed by SIGKILL"
}
case_signal() {
    start "$1"
    kill -TERM $pid
    wait $pid
    status=$?
}
case_timeout() {
    run_it $(short "$1" | sed 's/ echo x$//') --timeout 0.2 sleep 600
    says "as long as it may"
}
case_no_program() {
    case $1 in
    oshcc | weftcc) OSHCC=$work/none WEFTCC=$work/none run_it "$bin/$1" program.c ;;
    *)
        run_it $(short "$1" | sed 's/ echo x$//') "$work/text"
        [ "$status" = 126 ] || fail "a file that is no program: status $status"
        run_it $(short "$1" | sed 's/ echo x$//') "$work/none"
        ;;
    esac
    says none
}
# into WHERE COMMAND...: with stdout there
into() {
    local where=$1
    shift
    case $where in
    full) "$@" >full 2>err </dev/null ;;
    closed) "$@" >&- 2>err </dev/null ;;
    left) "$@" >&9 2>err </dev/null ;;
    left_ignored) (trap '' PIPE && exec "$@" >&9 2>err </dev/null) ;;
    esac
    status=$?
}
# lost WHERE COMMAND: of all forms of the command, the last status. Under a sanitizer the other forms lose their output in
# one way only.
lost() {
    local words others=more
    [ -z "${SANITIZER:-}" ] || [ "$1" = closed ] || others=:
    while read -r words; do
        into "$1" $words
        [ "$status" = "$expected" ] || fail "$words: status $status, not $expected; $(cat err)"
        case $1 in
        # sh of oshcc and weftcc may speak; the table of --json - goes to stderr
        left*) [[ $words == *osh* || $words == *weftcc* ]] || ! grep -q '^[^# ]' err || fail "$words: it says: $(cat err)" ;;
        full) says "No space left\|echo: I/O error" ;; # the second are words of sh, of osh*
        *) says . ;;
        esac
    done < <(short "$2" && $others "$2")
}
# a device that is always full; ours, so that nobody can do harm to the system's
mknod full c 1 7 2>/dev/null && (echo x >full) 2>/dev/null || [ -c full ] || { rm -f full && no_full=yes; }
case_full_disk() {
    if [ "${no_full-}" = yes ]; then
        echo "not tried: $name: no device can be made here"
        status=$expected
        return
    fi
    lost full "$1"
}
case_closed_stdout() { lost closed "$1"; }
case_broken_pipe() {
    lost left "$1"
    # a shell of oshcc or weftcc that ignores the signal says so in its own words
    [ "$1" = oshcc ] || [ "$1" = weftcc ] || [ "$1" = oshrun ] || lost left_ignored "$1"
}
mkfifo left
exec 8<>left 9>left 8>&- # a pipe that nobody reads

# ---- the table ---------------------------------------------------------------------------------

# cells LINE: of a row of the table, one a word
cells() { tr -d '` ' <<<"$(tr ' ' '_' <<<"$1" | sed 's/|_/|/g; s/_|/|/g')" | tr '|' ' '; }
mapfile -t lines < <(sed -n '/^## Exit statuses/,/^## /p' "$WEFT_SOURCE/docs/reliability.md" | grep '^|')
read -r -a columns <<<"$(cells "${lines[0]-}")"
known=" "
for line in "${lines[@]:2}"; do
    read -r -a row <<<"$(cells "$line")"
    known="$known${row[0]} "
    for ((i = 1; i < ${#columns[@]}; i++)); do
        expected=${row[i]}
        name="${row[0]}, ${columns[i]}"
        [ "$expected" = - ] && continue
        if ! declare -F "case_${columns[i]}" >/dev/null; then
            fail "nobody knows how to try it"
            continue
        fi
        status=none
        "case_${columns[i]}" "${row[0]}"
        [ "$status" = "$expected" ] || fail "status $status, not $expected; $(cat err)"
        tried=$((tried + 1))
    done
done

name="every command has a row"
commands=$("$weft" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || fail "weft --help lists no commands"
for command in $commands oshrun oshcc weftcc; do
    [[ $known == *" $command "* ]] || fail "$command is not in docs/reliability.md"
done
name="the table is read"
[ $tried -ge 50 ] || fail "only $tried cells were tried"

name="the first rank that fails, as signal"
run_it "$weft" run -n 2 sh -c 'kill -9 $$'
[ "$status" = 137 ] || fail "status $status"
name="a program whose interpreter is not there, by its name"
printf '#!/nowhere/interpreter\n' >broken && chmod +x broken
run_it "$weft" run -n 1 ./broken first second
[ "$status" = 127 ] || fail "status $status"
says "cannot run './broken'"
name="a model that is not there"
run_it "$weft" generate --from nowhere
[ "$status" = 1 ] || fail "status $status"
says nowhere

name="nobody reads stdout, and stderr is a pipe that is full"
mkfifo crowded && exec 7<>crowded
timeout 1 head -c 1000000 /dev/zero >&7 # as much as goes in
timeout 60 "$weft" bench barrier -n 2 --iters 2 --repeat 1 --json - >&9 2>&7 </dev/null
status=$?
[ "$status" = 141 ] || fail "status $status"

[ $failures = 0 ] || exit 1
echo "statuses: $tried cells as in the table"
