#!/bin/bash
# ctest: timeout=120
# weft links on GPUs made of threads, with NVLinks that a made-up driver tells of: every link has its name, all bytes
# arrive, and links far below what their kind should reach are named. By our own kernels and over NCCL.
set -u
# shellcheck source=test/soft_gpu/soft_gpu.sh
. "$(dirname "$0")/soft_gpu.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
# links STATUSES ARGUMENT...: weft links --device cuda, which must end with one of them
links() {
    local statuses=$1 status
    shift
    timeout 200 "$WEFT_BIN" links --device cuda --profile quick --json "$work/json" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ " $statuses " == *" $status "* ]] || fail "$*: status $status, not $statuses: $(cat "$work/out" "$work/err")"
}
count() { # NUMBER PATTERN
    local found
    found=$(grep -c -- "$2" "$work/json")
    [ "$found" = "$1" ] || fail "$found of $2, not $1: $(cat "$work/out")"
}

# Two ranks on one GPU.
links 0 -n 2 --size 64K
count 2 '"link": "same GPU"'
count 2 '"wrong_bytes": 0'
count 0 '"expected_gbs"'

# Two GPUs with 18 links of the fourth generation to a switch; ranks 0 and 2 share one.
for gpu in 0 1; do
    echo "gpu 0000:0$((gpu + 1)):00.0 name=NVIDIA_H100 uuid=GPU-$gpu cc=9.0 memory=85899345920 free=85899345920 cores=16896" \
        "clock=1980 pcie=5x16 pcie_max=5x16 numa=0 cpus=0-1"
    echo "link $gpu switch 18 6"
    echo "peer $gpu $((1 - gpu)) 0 0 0 0"
    echo "path $gpu $((1 - gpu)) 40"
done | sed '1i driver 570.10\ncuda 12080' >"$work/facts"
export FAKE_NVML=$work/facts WEFT_NVML=$WEFT_BUILD/test/topo/fake_nvml.so SOFT_GPUS=2
# Messages here, as soft GPUs do not reach each other: what copies reach is told, and what is asked for counts. Status 3
# may be about the host's memory, which is this machine's own, held against the made-up PCIe link: 52 GB/s.
links "0 3" -n 3 --size 64K
count 2 '"link": "same GPU"'
count 4 '"link": "NV18 (NVLink 4)"'
count 4 '"expected_gbs": 335'
count 0 'below the 335 that such a link should reach'
count 6 '"wrong_bytes": 0'
links 3 -n 3 --size 64K --min 334
count 6 '"slow": true'
count 6 'below the 334 '
grep -q '^a NV18 (NVLink 4) ' "$work/out" || fail "no row of its kind: $(cat "$work/out")"

# NCCL between GPUs: messages in place of puts.
with_nccl
export WEFT_ENGINE=nccl
links "0 3" -n 2 --size 64K
count 2 '"link": "NV18 (NVLink 4)"'
count 2 '"wrong_bytes": 0'
count 3 '"algorithm": "nccl"'

[ $failures = 0 ] || exit 1
echo "links on soft GPUs: all as expected"
