#!/bin/bash
# ctest: timeout=180 plain
# Files that commands write: whole or not at all, and what is no file is never removed. The devices are our
# own: a command that is wrong here would take the machine's away.
set -u
weft=$WEFT_BIN
# In mounts of our own, if we may, so that there can be a full disk.
if [ -z "${MOUNTS:-}" ] && unshare -m true 2>/dev/null; then
    MOUNTS=own exec unshare -m bash "$0"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-test-outputs.XXXXXX")
failures=0
export XDG_CACHE_HOME=$work/cache WEFT_DEVICE=cpu
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "FAILED: $name: $*"
    failures=$((failures + 1))
}
expect_status() { [ "$status" = "$1" ] || fail "status $status, not $1; $err"; }
expect_in() { grep -qF -- "$2" <<<"$1" || fail "'$2' is not in: $1"; }
nothing_left() {
    local left
    left=$(find . -name '*.tmp' -o -name '*.part' | head -3)
    [ -z "$left" ] || fail "left behind: $left"
}

yes 'the quick brown fox jumps over the lazy dog' | head -300 >text
cat >config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_embd": 16,
 "n_head": 1, "n_positions": 16, "vocab_size": 257, "activation_function": "gelu_new"}
END
small="--model ./config.json --data text --length 16 --batch 4 --steps 2 --eval-share 0"
# one COMMAND PATH: let it write to PATH what a moment's work gives
one() {
    case $1 in
    train) "$weft" train $small -n 2 --trace "$2" >out 2>err </dev/null ;;
    train1) "$weft" train $small -n 1 --trace "$2" >out 2>err </dev/null ;;
    bench) "$weft" bench barrier -n 2 --iters 2 --repeat 1 --json "$2" >out 2>err </dev/null ;;
    threads) "$weft" bench barrier -n 2 --threads --iters 2 --repeat 1 --json "$2" >out 2>err </dev/null ;;
    advise) "$weft" bench --advise -n 2 -b 256 -e 256 --iters 1 --repeat 1 --json "$2" >out 2>err </dev/null ;;
    swap) "$weft" bench swap -n 2 -e 8K --iters 1 --repeat 1 --json "$2" >out 2>err </dev/null ;;
    benchmark) "$weft" train --benchmark --model ./config.json --batch 4 --steps 1 -n 2 --json "$2" >out 2>err </dev/null ;;
    scaling) "$weft" scaling --model ./config.json -b 1 --steps 1 --rounds 1 -n 2 --mode weak --no-plans --json "$2" \
        >out 2>err </dev/null ;;
    links) "$weft" links -n 2 --profile quick --size 64K --json "$2" >out 2>err </dev/null ;;
    topo) "$weft" topo --json "$2" >out 2>err </dev/null ;;
    esac
    status=$?
    err=$(cat err)
}
commands="train train1 bench threads swap topo links benchmark scaling"

name="a file appears whole, with the mode that it had, through links that stay"
for command in $commands advise; do
    rm -f file link
    : >file
    chmod 604 file
    ln -s file link
    one $command link
    expect_status 0
    [ -L link ] || fail "$command replaced a link"
    [ "$(stat -c %a file)" = 604 ] || fail "$command made the mode $(stat -c %a file)"
    [ "$(head -c 1 file)" = "{" ] && [ "$(tail -c 2 file | tr -d '\n')" = "}" ] || fail "$command wrote $(head -c 99 file)"
    nothing_left
done

name="what stood there is untouched when the disk is full, and the status says so"
mkdir disk
if [ "${MOUNTS:-}" = own ] && mount -t tmpfs -o size=4k none disk 2>why; then
    echo '{"displayTimeUnit": old' >disk/file # takes all of it
    for command in $commands; do
        one $command disk/file
        expect_status 1
        expect_in "$err" "cannot write disk/file: No space left on device; what stood there before is untouched"
        [ "$(cat disk/file)" = '{"displayTimeUnit": old' ] || fail "$command: the old file is $(head -c 99 disk/file)"
        nothing_left
    done
    rm disk/file
    "$weft" train $small --out disk/run >out 2>err </dev/null
    status=$? err=$(cat err)
    expect_status 1
    expect_in "$err" "no room in disk/run: a checkpoint takes"
    nothing_left
    umount disk
else
    echo "no disk of our own here ($(cat why 2>/dev/null)): a full one is not tried"
fi
said=$(
    ulimit -f 0
    "$weft" topo --json "$work/link" 2>&1 >/dev/null
)
expect_in "$said" "cannot write $work/link: File too large; what stood there before is untouched"

name="a folder that cannot be written is told before anything runs"
for command in $commands; do
    one $command none/file
    [ "$status" != 0 ] || fail "$command: status 0"
    expect_in "$err" "none/file"
    expect_in "$err" "No such file or directory"
    one $command "$work"
    [ "$status" != 0 ] || fail "$command: status 0 for a folder"
    expect_in "$err" "folder"
done

name="devices are written to and stay"
mkdir devices
if mknod devices/full c 1 7 2>why && mknod devices/null c 1 3 && true 2>why >devices/null; then
    ln -s full devices/to-full
    for command in $commands; do
        for path in devices/full devices/to-full; do
            one $command $path
            [ "$status" = 1 ] || fail "$command $path: status $status"
            expect_in "$err" "cannot write $path: No space left on device"
        done
        one $command devices/null
        expect_status 0
        [ -L devices/to-full ] || fail "$command removed a link"
        [ "$(stat -c '%F %t %T' devices/full devices/null | tr '\n' ' ')" = \
            "character special file 1 7 character special file 1 3 " ] || fail "$command: $(ls -l devices)"
    done
    [ "$(ls devices | wc -l)" = 3 ] || fail "files among the devices: $(ls devices)"
else
    echo "no devices of our own here ($(cat why)): that they stay is not tried"
fi

name="pipes are written to and stay"
mkfifo fifo
for command in $commands; do
    timeout 60 cat fifo >got &
    one $command fifo
    wait $!
    expect_status 0
    [ -p fifo ] || fail "$command removed the pipe"
    [ "$(tail -c 2 got | tr -d '\n')" = "}" ] || fail "$command: the pipe gave $(head -c 99 got)"
done

name="/dev/stdout is what the shell opened, not a file to replace"
{
    echo head
    "$weft" topo --json /dev/stdout
    echo tail
} >shell
[ "$(head -1 shell) $(tail -1 shell)" = "head tail" ] && grep -q hardware_threads shell || fail "$(head -c 200 shell)"
"$weft" topo --json /dev/stdout 2>err | grep -q hardware_threads || fail "no JSON in the pipe: $(cat err)"

name="one file for two outputs is refused, and stays"
# clash SENTENCE ARGUMENT...
clash() {
    local sentence=$1
    shift
    "$weft" "$@" >out 2>err </dev/null
    status=$?
    err=$(cat err)
    expect_status 2
    expect_in "$err" "$sentence"
    [ "$(wc -l <err)" = 1 ] || fail "not one line: $err"
    [ "$(cat both 2>/dev/null)" = "${kept-}" ] || fail "it is now: $(head -c 99 both)"
}
benchmark="train --benchmark --model ./config.json --batch 4 --steps 1 -n 2"
rm -f both link
ln -s both link
mkdir -p deep
ln -s both.trace.json both.json
same="name the same file"
clash "weft train: --json and --trace $same" $benchmark --json both --trace both
clash "weft train: --json and --trace $same" $benchmark --json both --trace deep/../both
clash "weft train: --json and --trace $same" $benchmark --json link --trace both
clash "weft pairs: --json and --expectations $same" pairs run halo --profile quick --json both --expectations both --update-expectations
clash "weft pairs: --json and --capture trace $same" pairs run halo --profile quick --json both.json --capture trace
kept='{}'
echo "$kept" >both
clash "weft pairs: --json and --expectations $same" pairs run halo --profile quick --json link --expectations both
"$weft" run -n 2 "$weft" pairs run halo --profile quick --json both --expectations both >out 2>err </dev/null
[ $? = 2 ] && [ "$(grep -c "$same" err)" = 1 ] || fail "ranks of a launcher: $(cat err)"
one benchmark /dev/null
expect_status 0

name="a benchmark of a run's plan leaves the run's trace"
"$weft" train $small -n 1 --out traced --trace traced/trace.json >out 2>err </dev/null || fail "$(cat err)"
cp traced/trace.json trace.before
"$weft" train --benchmark --config traced/config --steps 1 >out 2>err </dev/null || fail "$(cat err)"
cmp -s trace.before traced/trace.json || fail "the trace is another"
"$weft" train --benchmark --config traced/config --steps 1 --trace own.json >out 2>err </dev/null || fail "$(cat err)"
[ -s own.json ] || fail "a trace that is asked for is not written"

name="a benchmark that is stopped leaves the old results, and nothing else"
echo old >file
"$weft" bench allreduce -n 2 -e 64M --iters 100000 --json file >out 2>&1 </dev/null &
for _ in $(seq 300); do
    grep -q busbw out && break
    sleep 0.1
done
kill -TERM $!
wait $!
[ "$(cat file)" = old ] || fail "the old results are gone"
nothing_left

exit $((failures > 0))
