#!/bin/bash
# ctest: timeout=120 cores=2
# weft doctor: statuses, output, time, ranks, bad input, and that its page lists every check.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
unset WEFT_RANK WEFT_SIZE RANK WORLD_SIZE WEFT_DEVICE WEFT_THREADS CUDA_VISIBLE_DEVICES
while IFS= read -r variable; do unset "$variable"; done < <(env | sed -n 's/^\(\(NCCL\|NVSHMEM\|SLURM\)_[A-Z0-9_]*\)=.*/\1/p')
export WEFT_NVML=none.so
mkdir empty

# doctor ARGUMENT...: with stdout, stderr and status in $out, $err, $status
doctor() {
    "$weft" doctor "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out)
    err=$(cat err)
}
# level CHECK: of its findings in file json; "skipped" where it did not look
level() {
    tr -d '\n' <json | tr '{' '\n' | grep -F "\"check\": \"$1\"" |
        sed 's/.*"looked": false.*/skipped/; s/.*"level": "\([a-z]*\)".*/\1/' | sort -u
}

name="a machine that tells nothing has nothing wrong"
doctor --level quick --root "$work/empty" --json json
expect_status 0
expect_in "$out" "nothing to fix"
expect_in "$(tr -d ' \n' <json)" '"kind":"doctor","format":1,'
expect_in "$(tr -d ' \n' <json)" '"exports":[]'
[ "$(level env-hurts)" = ok ] || fail "env-hurts is $(level env-hurts)"
for key in check level what evidence cost fix; do
    [ "$(grep -c "\"$key\":" json)" -ge 50 ] || fail "$key is missing"
done

name="a fault is named, and the status says so"
NCCL_P2P_DISABLE=1 doctor --level quick --root "$work/empty" --json json
expect_status 3
expect_in "$out" "warning: env-hurts"
expect_in "$out" "unset NCCL_P2P_DISABLE"
expect_in "$out" "1 warning; begin with env-hurts"
[ "$(level env-hurts)" = warning ] || fail "env-hurts is $(level env-hurts)"
NCCL_P2P_DISABLE=1 doctor --level quick --root "$work/empty" --json -
expect_status 3
[ "$(tr -d ' \n' <out | head -c 16)" = '{"kind":"doctor"' ] || fail "--json - is not JSON alone"

name="a note is not a problem"
NCCL_DEBUG=INFO doctor --level quick --root "$work/empty"
expect_status 0
expect_in "$out" "note: env-hurts"
expect_in "$out" "no warnings; 1 note"
expect_not_in "$out" "nothing to fix"

name="lines fit a terminal"
NCCL_ALGO=Ring WEFT_TIMEUOT=5 doctor --level quick --verbose
[ "$(awk 'length > 80' out | wc -l)" = 0 ] || fail "$(awk 'length > 80' out)"

name="quick takes less than a second of this machine"
TIMEFORMAT='%U %S'
times=$({ time "$weft" doctor --level quick >out 2>err; } 2>&1)
awk '{ exit !($1 + $2 < 1) }' <<<"$times" || fail "$times s"

name="standard tries communication, in less than a minute"
for ranks in 1 7; do
    start=$SECONDS
    doctor -n $ranks --json json
    [ $status = 0 ] || [ $status = 3 ] || fail "status $status; $err"
    [ $((SECONDS - start)) -lt 60 ] || fail "$((SECONDS - start)) s"
    for check in comm-processes comm-threads; do
        [ "$(level $check)" = ok ] || fail "$ranks ranks: $check is $(level $check): $out"
    done
    expect_in "$(tr -d ' \n' <json)" "\"ranks\":$ranks,"
done

name="under a launcher its ranks are tried, and one speaks"
"$weft" run -n 3 "$weft" doctor --verbose >out 2>err </dev/null
status=$?
[ $status = 0 ] || [ $status = 3 ] || fail "status $status; $(cat err)"
[ "$(grep -c 'comm-processes' out)" = 1 ] || fail "$(cat out)"
grep -q ' ok *comm-processes' out || fail "$(cat out)"

name="the cores that weft run binds ranks to are no finding"
if [ "$(nproc)" -ge 2 ]; then
    doctor --level quick -n 2 --json json
    alone=$(level cpu-affinity)
    "$weft" run -n 2 "$weft" doctor --level quick --json json >out 2>err </dev/null
    [ "$(level cpu-affinity)" = "$alone" ] || fail "cpu-affinity is $(level cpu-affinity), without weft run $alone"
else
    echo "not tried: $name: there is one core"
fi

name="GPUs, of a driver and a module made of threads"
cat >facts <<END
driver 580.95
cuda 13000
gpu 0000:10:00.0 name=NVIDIA_H200 cpus=0-0 memory=1 free=1
gpu 0000:20:00.0 name=NVIDIA_H200 cpus=0-0 memory=1 free=1
peer 0 1 0 0 0 0
peer 1 0 0 0 0 0
END
if [ -e "$WEFT_BUILD/test/soft_gpu/soft_gpu.so" ]; then
    FAKE_NVML=$work/facts SOFT_GPUS=2 WEFT_NVML=$WEFT_BUILD/test/topo/fake_nvml.so WEFT_NCCL=none.so \
        WEFT_CUDA_MODULE=$WEFT_BUILD/test/soft_gpu/soft_gpu.so doctor --json json
    [ "$(level comm-cuda)" = ok ] || fail "comm-cuda is $(level comm-cuda): $out; $err"
    [ "$(level gpu-cuda)" = ok ] || fail "gpu-cuda is $(level gpu-cuda)"
    sed 's/cuda 13000/cuda 11080/' facts >older
    FAKE_NVML=$work/older SOFT_GPUS=2 WEFT_NVML=$WEFT_BUILD/test/topo/fake_nvml.so WEFT_NCCL=none.so \
        WEFT_CUDA_MODULE=$WEFT_BUILD/test/soft_gpu/soft_gpu.so doctor --level quick --json json
    [ "$(level gpu-cuda)" = error ] || fail "gpu-cuda of an older driver is $(level gpu-cuda)"
    name="lines to export are a shell's"
    FAKE_NVML=$work/facts WEFT_NVML=$WEFT_BUILD/test/topo/fake_nvml.so WEFT_NCCL=none.so \
        WEFT_CUDA_MODULE=$WEFT_BUILD/test/soft_gpu/soft_gpu.so doctor --level quick --exports
    expect_status 0
    expect_in "$out" "export WEFT_DEVICE=cuda"
    (eval "$out" && [ "$WEFT_DEVICE" = cuda ]) || fail "$out"
else
    echo "not tried: $name: soft_gpu.so is not built"
fi

name="wrong use"
for words in "a b" "--level hasty" "-n 0" "--no-such-option" "--exports --json x"; do
    # shellcheck disable=SC2086
    doctor $words
    expect_status 2
    [ "$(wc -l <err)" = 1 ] || fail "$words: $err"
done

name="what is no run"
doctor nowhere
expect_status 1
expect_in "$err" "there is no folder nowhere"
doctor empty
expect_status 1
expect_in "$err" "empty is no run folder: it has neither config nor metrics.jsonl"
[ ! -s out ] || fail "$out"

name="a run"
seq 1 3000 | awk '{ print "line " $1 " of " $1 % 7 }' >text
train --model tiny --length 32 --data text --steps 6 --batch 4 -n 2 --overlap no --recompute full --out run --trace run/trace.json
expect_status 0
doctor run --json json --verbose
expect_status 3
expect_in "$out" "warning: run-overlap"
expect_in "$out" "warning: run-recompute"
[ "$(level run-files)" = ok ] || fail "run-files is $(level run-files): $out"
expect_not_in "$out" "cpu-affinity" # a run is looked at, not this machine
expect_not_in "$out" "there is no trace"

name="a run that was killed while it wrote"
printf '{"step": 7, "lo' >>run/metrics.jsonl
cp run/metrics.jsonl before
doctor run --json json
[ "$(level run-files)" = note ] || fail "run-files is $(level run-files)"
expect_same run/metrics.jsonl before # nothing is changed

name="results that do not arrive"
if [ -c /dev/full ]; then
    doctor --level quick --root "$work/empty" --json /dev/full
    expect_status 1
fi
doctor --level quick --root "$work/empty" --json nowhere/json
expect_status 1
expect_in "$err" "nowhere"
[ ! -s out ] || fail "it speaks before it fails: $out"

name="a run larger than memory: its beginning and its end are looked at"
mkdir -p long
yes '{"step": 1, "loss": 2.5, "seconds": 0.1}' | head -3000000 >long/metrics.jsonl
echo '{"step": 2, "loss": null, "seconds": 0.1}' >>long/metrics.jsonl
limit=100000
grep -q '^WEFT_SANITIZE:STRING=.' "$WEFT_BUILD/CMakeCache.txt" && limit=unlimited # it takes the whole address space
(ulimit -v $limit && exec "$weft" doctor long) >out 2>err </dev/null
out=$(cat out)
expect_in "$out" "loss is null in step 2"
rm -r long

name="names of others move no cursor"
mkdir -p hostile
printf '{"device": "cpu", "host": "a\\u001b[2Jb", "ranks": 2}' >hostile/machine.json
printf 'model = a\033[2Jb\nno\033[2Jsuch = 1\n' >hostile/config
doctor hostile
expect_in "$out" 'no\x1b[2Jsuch'
! grep -q $'\033' out err || fail "an escape reaches the terminal"

name="a signal leaves nothing behind"
MARK=$work "$weft" doctor --level thorough -n 7 >out 2>err </dev/null &
pid=$!
marked() { grep -lsaF "MARK=$work" /proc/[0-9]*/environ 2>/dev/null | wc -l; }
under_way() { [ "$(marked)" -gt 2 ] || ! kill -0 $pid 2>/dev/null; }
all_gone() { [ "$(marked)" = 0 ]; }
wait_for 20 under_way
kill -TERM $pid 2>/dev/null
wait $pid
status=$?
[ $status = 143 ] || [ $status = 0 ] || [ $status = 3 ] || fail "status $status" # it may have been done
[ $status != 143 ] || [ "$(cat err)" = "weft doctor: SIGTERM: ended before everything was looked at" ] || fail "$(cat err)"
wait_for 20 all_gone || fail "$(marked) processes are left"

name="its page lists every check, with its level"
"$weft" doctor --list | awk 'NR > 1 && /^[a-z]/ { print $1, $2 }' | sort >checks
# shellcheck disable=SC2016 # these are the page's own
sed -n 's/^| `\([a-z-]*\)` | \(quick\|standard\|thorough\) |.*/\1 \2/p' "$WEFT_SOURCE/docs/doctor.md" | sort >listed
[ "$(wc -l <checks)" -ge 60 ] || fail "$(wc -l <checks) checks"
diff checks listed || fail "docs/doctor.md and weft doctor --list differ"

[ $failures = 0 ] || exit 1
echo "doctor: $(wc -l <checks) checks"
