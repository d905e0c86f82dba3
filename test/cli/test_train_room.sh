#!/bin/bash
# ctest: timeout=180 plain
# weft train asks for memory and disk before it starts, and says what it needs and what is there.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
tried=0

# in_disk SIZE ARGUMENT...: the same with a file system of SIZE at `small`; what is in it then, in $left
in_disk() {
    local size=$1
    shift
    unshare -rm sh -c 'mount -t tmpfs -o size="$1" none small && shift && "$@"; s=$?; ls -A small >left; exit $s' \
        sh "$size" "$weft" train --device cpu "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out) err=$(cat err) left=$(echo $(cat left))
}

# in_memory MIB ARGUMENT...: the same on a machine that has MIB of memory left
in_memory() {
    printf 'MemTotal: 64000000 kB\nMemFree: 1 kB\nMemAvailable: %d kB\n' $(($1 * 1024)) >meminfo
    shift
    unshare -rm sh -c 'mount --bind meminfo /proc/meminfo && exec "$@"' \
        sh "$weft" train --device cpu "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out) err=$(cat err)
}

# make_group: a control group for memory, $group with $limit in it; false if none can be made
make_group() {
    local base
    for base in "/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)" \
        "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)"; do
        group=$base/weft-room-$$
        mkdir "$group" 2>/dev/null || continue
        for limit in memory.limit_in_bytes memory.max; do
            [ ! -w "$group/$limit" ] || return 0
        done
        rmdir "$group"
    done
    return 1
}

# in_group MIB ARGUMENT...: the same in $group, which may take MIB
in_group() {
    echo $(($1 * 1024 * 1024)) >"$group/$limit" || fail "the limit of $group cannot be set to $1 MiB"
    shift
    sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$weft" train --device cpu "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out) err=$(cat err)
}

expect_not_in() { ! grep -qF -- "$2" <<<"$1" || fail "'$2' is in: $1"; }
# mib WORDS: the number of MiB before WORDS in $out
mib() {
    sed -n "s/.*[ (]\([0-9.]*\) \([KMG]\)iB $1.*/\1 \2/p" <<<"$out" |
        awk '{ printf "%.3f", $1 * ($2 == "K" ? 1 / 1024 : $2 == "G" ? 1024 : 1) }'
}
# within A B LEAST MOST: is A / B between the two?
within() { awk -v a="$1" -v b="$2" -v x="$3" -v y="$4" 'BEGIN { exit !(b > 0 && a / b >= x && a / b <= y) }'; }

seq 1 3000 | awk '{ print "line " $1 " of " $1 % 7 ": the quick brown fox counts " $1 * 13 % 101 }' >text
cat >config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 4, "n_embd": 64,
 "n_head": 4, "n_positions": 64, "vocab_size": 257, "activation_function": "gelu_new"}
END
common="--model ./config.json --data text --length 64 --batch 16 --log 100"

name="what is forecast is what a run takes"
for plan in "-n 2" "-n 2 --precision bf16" "-n 4 --tp 2 --pp 2 --micro-batch 4" "-n 4 --zero 3 --recompute full" \
    "-n 2 --micro-batch 2" "-n 1 --offload optimizer" "-n 2 --compress int8" \
    "-n 4 --pp 2 --zero 1 --compress int8 --schedule interleaved --micro-batches 2"; do
    rm -rf run
    train $common $plan --steps 2 --save 1 --out run --dry-run
    expect_status 0
    checkpoint=$(mib "a checkpoint") device=$(mib "on virtual GPUs") ranks=$(cut -d' ' -f2 <<<"$plan")
    [ ! -e run ] || fail "a run folder was made"
    train $common $plan --steps 2 --out run
    expect_status 0
    size=$(du -sb run/latest/ | awk '{ print $1 / 1048576 }')
    within "$checkpoint" "$size" 1 1.1 || fail "$plan: a checkpoint of $size MiB, $checkpoint were forecast"
    memory=$(sed -n 's/.*"memory": *\([0-9]*\).*/\1/p' run/metrics.jsonl | sort -n | tail -1)
    memory=$(awk -v m="$memory" -v n="$ranks" 'BEGIN { print m * n / 1048576 }')
    within "$device" "$memory" 0.95 1.6 || fail "$plan: $memory MiB of devices, $device were forecast"
done

name="checkpoints that are there at one time are counted"
# more OPTION... N: how many more the dry run says
more() {
    train $common --dry-run "${@:1:$#-1}"
    expect_in "$out" "iB for ${*: -1} more;"
}
more --out new --steps 10 --save 2 4
more --out new --steps 10 --save 2 --keep 1 2
more --out new --steps 10 --save 2 --keep 0 5
more --out new --steps 11 --save 2 --keep 0 6
more --out new --steps 11 1
more --resume run --steps 10 --save 2 --keep 0 4
train $common --steps 8 --save 2 --out full
more --resume full --steps 12 1
more --resume full --steps 12 --keep 4 2
train $common --dry-run --out new --save -1
expect_not_in "$out" "a checkpoint"
[ ! -e new ] || fail "a dry run made a folder"

mkdir small
if unshare -rm sh -c 'mount -t tmpfs -o size=100k none small' 2>/dev/null; then
    tried=1
    name="without room for a checkpoint no step is computed"
    for more in "-n 1" "-n 2" "-n 2 --dry-run" "-n 2 --max-restarts 3"; do
        in_disk 1m $common --steps 3 --out small/run $more
        expect_status 1
        expect_in "$err" "no room in small/run: a checkpoint takes 2."
        expect_in "$err" "and 1 MiB are free"
        [ "$(wc -l <err)" = 1 ] || fail "more than a sentence: $err"
        [ "$left" = "" ] || fail "it left $left"
    done
    in_disk 2600k $common --steps 3 --out small/run # tokens take what a checkpoint would have needed
    expect_status 1
    expect_in "$err" "no room in small/run: a checkpoint takes"
    expect_not_in "$(cat out)" "step 1"
    in_disk 2m $common --steps 3 --save -1 --out small/run
    expect_status 0
    in_disk 1m $common --steps 3 --out small/run --force
    expect_status 1
    expect_in "$out$err" "step-000003 was not saved: no room in small/run"
    expect_in "$err" "; there is no earlier checkpoint"
    # The first two have room, and stay; the third one has not.
    in_disk 7m $common --steps 3 --save 1 --keep 0 --out small/run --force
    expect_status 1
    expect_in "$err" "step-000003 was not saved: no room in small/run"
    expect_in "$err" "; the last checkpoint is small/run/step-000002"

    name="room for fewer checkpoints than planned is said, and what is written is counted"
    in_disk 6m $common --steps 4 --save 1 --keep 2 --out small/run -n 2
    expect_in "$err" "3 checkpoints of 2."
    expect_in "$err" "MiB are free: a lower --keep needs less"
    in_disk 16m $common --steps 4 --save 1 --keep 2 --out small/run -n 2
    expect_status 0
    [ "$err" = "" ] || fail "$err"
    in_disk 8m $common --steps 4 --save 1 --keep 1 --out small/run -n 2
    expect_status 0
    [ "$err" = "" ] || fail "$err"
else
    echo "not tried: full disks: no small file system can be mounted here (needs user namespaces, or root)"
fi

touch meminfo
if unshare -rm mount --bind meminfo /proc/meminfo 2>/dev/null; then
    tried=1
    name="a plan that is too large is refused before it starts, and the one that is recommended works"
    for plan in "-n 4 --batch 256" "-n 4 --batch 256 --dry-run" "-n 4 --batch 256 --tp 2" "-n 4 --zero 1 --batch 256 --max-restarts 2"; do
        in_memory 150 $common $plan --steps 2 --out large
        expect_status 1
        expect_in "$err" "4 ranks need"
        expect_in "$err" "but 150 MiB are available here"
        [ "$(wc -l <err)" = 1 ] || fail "more than a sentence: $err"
        [ ! -e large ] || fail "it left a folder"
        nearest=$(sed -n 's/.*nearest plan that fits is \(.*\), with .*/\1/p' err)
        [ -n "$nearest" ] || fail "nothing is recommended: $err"
        in_memory 150 $common $plan --steps 2 --out large $nearest --dry-run
        expect_status 0
        expect_in "$out" "150 MiB available"
        expect_not_in "$err" "warning"
    done
    in_memory 150 $common -n 4 --batch 256 --steps 1 --out fits $nearest
    expect_status 0

    name="what cannot fit at all is said, and force is force"
    in_memory 10 $common -n 2 --steps 1 --out forced
    expect_status 1
    expect_in "$err" "No other plan for this batch fits either"
    in_memory 10 $common -n 2 --steps 1 --dry-run --force
    expect_status 0
    "$weft" run -n 2 --no-prefix "$weft" train --device cpu $common --steps 1 --out others >out 2>&1 || fail "$(cat out)"

    name="what is tight is warned of"
    train $common -n 4 --batch 256 --dry-run
    total=$(mib "of memory (" | cut -d. -f1)
    in_memory $((total + 4)) $common -n 4 --batch 256 --dry-run
    expect_status 0
    expect_in "$err" "more than 90% of the"
else
    echo "not tried: small machines: /proc/meminfo cannot be covered here (needs user namespaces, or root)"
fi

if make_group; then
    tried=1
    name="in a control group a plan runs in what was forecast for it, and is refused with less"
    for plan in "-n 2 --batch 64" "-n 4 --zero 3 --batch 64" "-n 4 --tp 2 --pp 2 --micro-batch 4"; do
        rm -rf run
        train $common $plan --steps 3 --out run --dry-run
        total=$(mib "of memory (" | cut -d. -f1)
        in_group $((total + total / 50 + 8)) $common $plan --steps 3 --out run
        expect_status 0
        rm -rf run
        in_group $((total * 3 / 4)) $common $plan --steps 3 --out run
        expect_status 1
        expect_in "$err" "the limits of the control groups"
        [ ! -e run ] || fail "it left a folder"
    done
    rmdir "$group" || fail "$group is still in use"
else
    echo "not tried: control groups: none can be made here (needs root, and a group that may have others inside)"
fi

[ $failures = 0 ] && [ $tried = 1 ] && echo "all passed"
exit $((failures > 0))
