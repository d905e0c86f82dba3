#!/bin/bash
# ctest: timeout=60
# weft topo, and the binding of weft run to cores near GPUs, with a driver of our own.
set -u
weft=$WEFT_BIN
work=$(mktemp -d)
failures=0
trap 'rm -rf "$work"' EXIT
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER WEFT_DEVICE
export FAKE_NVML=$work/facts WEFT_NVML=$WEFT_BUILD/test/topo/fake_nvml.so

fail() {
    echo "FAILED: $name: $*"
    failures=$((failures + 1))
}
expect_in() { grep -qF -- "$2" <<<"$1" || fail "'$2' is not in: $1"; }
json() { tr -d ' \n' <"$work/json"; } # without its layout
expect_equal() { [ "$1" = "$2" ] || fail "'$1' is not '$2'"; }

name="a machine without a driver says so in one line"
out=$(WEFT_NVML=$work/none.so "$weft" topo --json "$work/json") || fail "status $?"
expect_equal "$(grep -c GPU <<<"$out")" 1
expect_in "$out" "no GPUs: there is no NVIDIA driver ($work/none.so: "
WEFT_NVML=$work/none.so "$weft" topo --json - >"$work/same"
cmp -s <(grep -v '"started"' "$work/same") <(grep -v '"started"' "$work/json") || fail "--json -"
expect_in "$(json)" '"kind":"topo","format":1,"version":'
expect_in "$(json)" '"WEFT_NVML":'
expect_in "$(json)" '"devices":[]'
expect_in "$(json)" '"none_because":"thereisnoNVIDIAdriver'

name="GPUs are shown and written"
cat >"$FAKE_NVML" <<END
driver 580.95
cuda 13000
gpu 0000:10:00.0 name=NVIDIA_H200 cpus=1-1
gpu 0000:20:00.0 name=NVIDIA_H200 cpus=0-0
link 0 switch 18 6
link 1 switch 18 6
peer 0 1 0 0 0 0
peer 1 0 0 0 0 0
END
out=$("$weft" topo --json "$work/json") || fail "status $?"
expect_in "$out" "GPUs 2, driver 580.95, CUDA 13.0"
expect_in "$out" "  GPU0        X   NV18"
expect_in "$out" "  GPU1     rwna      X"
expect_in "$(json)" '"nvlinks":18,"nvlink_version":"4.0","switched":true'

name="the ranks' GPUs are CUDA's"
out=$(HWLOC_SYNTHETIC="core:2 pu:1" WEFT_DEVICE=cuda "$weft" topo -n 3 --json "$work/json")
expect_in "$out" "    0     0  1"
expect_in "$out" "    1     1  0"
expect_in "$out" "    2     0  1"
expect_in "$(json)" '"ranks":[{"cpus":"1","cuda":0},{"cpus":"0","cuda":1},{"cpus":"1","cuda":0}]'
out=$(HWLOC_SYNTHETIC="core:2 pu:1" "$weft" topo -n 2)
expect_in "$out" "    0  0"

# allowed RANKS: the CPUs that each rank of weft run may use, in the order of ranks
allowed() {
    "$weft" run -n "$1" sh -c 'sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status' |
        sort | sed 's/^\[[0-9]*\] //' | paste -sd ' '
}

name="weft run binds ranks near their GPUs"
if [ "$(nproc)" -lt 2 ] || ! taskset -c 0 true 2>/dev/null || ! taskset -c 1 true 2>/dev/null; then
    echo "left out: $name: needs CPUs 0 and 1"
else
    export HWLOC_SYNTHETIC="core:2 pu:1" # whatever the cores of this machine are
    near() { taskset -c 0,1 env "$@" bash -c "$(declare -f allowed); weft=$weft; allowed 2"; }
    expect_equal "$(near WEFT_DEVICE=cuda)" "1 0"
    expect_equal "$(near WEFT_DEVICE=auto)" "1 0"
    expect_equal "$(near WEFT_DEVICE=cuda CUDA_VISIBLE_DEVICES=1,0)" "0 1"
    expect_equal "$(near WEFT_DEVICE=cpu)" "0 1"
    expect_equal "$(near WEFT_DEVICE=auto WEFT_NVML="$work/none.so")" "0 1"
    expect_equal "$(near WEFT_DEVICE=cuda WEFT_BIND=none)" "0-1 0-1"
    err=$(WEFT_LOG=info WEFT_DEVICE=cuda WEFT_NVML=$work/none.so "$weft" run -n 1 true 2>&1)
    expect_in "$err" "ranks are not bound near GPUs, as there are none: there is no NVIDIA driver"
fi

[ $failures -eq 0 ] && echo "all passed"
exit $((failures > 0))
