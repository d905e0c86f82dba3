#!/bin/bash
# tools/test-gpu: what it finds, counts and cleans up, with stand-ins for NVIDIA's programs.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/build/test/gpu"
export WORK=$work PATH=$work/bin:$PATH
unset CUDA_MPS_PIPE_DIRECTORY
failed=0

program() { # program FILE, and its text on stdin
    { echo '#!/bin/bash'; cat; } >"$1"
    chmod +x "$1"
}

program "$work/bin/nvidia-smi" <<'P'
[ ! -e "$WORK/no-gpu" ] || { echo "no devices were found"; exit 6; }
echo "0, Stand-in, 1.2, 3 MiB, Default"
P
program "$work/bin/nvidia-cuda-mps-control" <<'P'
if [ "${1:-}" = -d ]; then
    touch "$WORK/mps" && echo start >>"$WORK/mps.log"
    exit
fi
[ -e "$WORK/mps" ] || exit 1
read -r command
[ "$command" != quit ] || { rm "$WORK/mps" && echo quit >>"$WORK/mps.log"; }
P
program "$work/bin/compute-sanitizer" <<'P'
[ "$WEFT_TEST_SHORT" = 1 ] || exit 5
echo "========= ERROR SUMMARY: $([ -e "$WORK/hazard" ] && echo 3 || echo 0) errors"
exec "${@:5}"
P
status_of() { # status_of NAME STATUS: a test that ends so
    echo "exit $2" | program "$work/build/test/gpu/test_$1"
}

# expect NAME STATUS LAST-LINE PATTERN ARGUMENT...
expect() {
    local name=$1 status=$2 last=$3 pattern=$4 out got
    shift 4
    out=$("$root/tools/test-gpu" "$@" "$work/build" 2>&1)
    got=$?
    if [ $got -ne "$status" ] || [ "$(tail -n 1 <<<"$out")" != "$last" ] || ! grep -qE "$pattern" <<<"$out"; then
        printf '%s: status %s, not %s; "%s" and "%s" were expected in\n%s\n' \
            "$name" "$got" "$status" "$last" "$pattern" "$out"
        failed=1
    fi
}

touch "$work/no-gpu"
expect "no GPU" 0 "0 passed, 0 failed, 1 skipped" "skipped: nvidia-smi says: no devices" --prebuilt
rm "$work/no-gpu"
expect "no module" 1 "0 passed, 1 failed, 0 skipped" "no libweft-cuda.so" --prebuilt
touch "$work/build/libweft-cuda.so"
status_of matrix 0
status_of compute 0
status_of compress 0
status_of graph 0
status_of group 0
status_of symm 0
status_of comms 77
expect "all is well" 0 "23 passed, 0 failed, 1 skipped" "Stand-in" --prebuilt
expect "some" 0 "2 passed, 0 failed, 0 skipped" "== gpu/graph" --prebuilt --no-sanitizer --only 'gpu/g.*'
status_of graph 3
expect "a failure" 1 "5 passed, 1 failed, 1 skipped" "failed: gpu/graph: ended with status 3" --prebuilt --no-sanitizer
status_of graph 0
touch "$work/hazard"
expect "a hazard" 1 "6 passed, 15 failed, 1 skipped" "failed: racecheck of gpu/graph" --prebuilt
if [ "$(sort "$work/mps.log" | uniq -c | xargs)" != "4 quit 4 start" ] || [ -e "$work/mps" ]; then
    echo "MPS was not started and ended with each run: $(xargs <"$work/mps.log")"
    failed=1
fi
touch "$work/mps"
expect "MPS of others" 0 "6 passed, 0 failed, 1 skipped" "runs already" --prebuilt --no-sanitizer
if [ ! -e "$work/mps" ]; then
    echo "an MPS that was there before was ended"
    failed=1
fi
exit $failed
