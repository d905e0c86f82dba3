#!/bin/bash
# ctest: timeout=180 plain waits
# The tests of groups, communicators and killed ranks, the command and an example, over the nccl backend.
set -eu
# shellcheck source=test/comm/nccl/over_nccl.sh
. "$(dirname "$0")/over_nccl.sh"
tests=$WEFT_BUILD/test/comm

"$tests/nccl/test_nccl"
"$tests/test_group"
# NCCL has no chunks for ranks to disagree about.
"$tests/test_comms" '*' settings_must_agree
"$tests/test_faults" 'kill_in_*_calls'
"$tests/test_matrix" 'small_counts*'

"$WEFT_BIN" run -n 3 -- "$WEFT_BUILD/examples/01-allreduce" | grep 'rank 0 of 3: the sum of all ranks is 3'
"$WEFT_BIN" bench allreduce -n 3 -b 8 -e 64K -f 8 | grep 'wrong elements: 0'

# Virtual GPUs do not need NCCL, whatever the engine.
out=$(WEFT_DEVICE=cpu "$WEFT_BIN" run -n 2 -- "$WEFT_BUILD/examples/01-allreduce")
grep 'sum of all ranks is 1' <<<"$out"
# A wrong name is no silent default.
if out=$(WEFT_ENGINE=ncl "$WEFT_BIN" run -n 2 -- "$WEFT_BUILD/examples/01-allreduce" 2>&1); then
    echo "WEFT_ENGINE=ncl was accepted" && exit 1
fi
grep 'WEFT_ENGINE=ncl is not auto, weft or nccl' <<<"$out"
if out=$(WEFT_NCCL=/no/libnccl.so.2 "$WEFT_BIN" run -n 2 -- "$WEFT_BUILD/examples/01-allreduce" 2>&1); then
    echo "a missing NCCL was not missed" && exit 1
fi
grep 'NCCL cannot be loaded.*set WEFT_NCCL' <<<"$out"

# GPUs of one host that do not reach each other: NCCL is taken without being asked for.
facts=$(mktemp)
trap 'rm -f "$facts"' EXIT
for i in 0 1 2; do
    echo "gpu 0000:0$i:00.0 name=L4 uuid=GPU-0${i}000000-0000-0000-0000-000000000000"
done >"$facts"
echo "peer 0 1 1 1 5 5" >>"$facts"
export FAKE_NVML=$facts WEFT_NVML=$WEFT_BUILD/test/topo/fake_nvml.so WEFT_ENGINE=auto
out=$(WEFT_LOG=info "$WEFT_BIN" run -n 3 -- "$WEFT_BUILD/examples/01-allreduce" 2>&1)
grep 'rank 0 of 3: the sum of all ranks is 3' <<<"$out"
grep 'GPU 0 of rank 0 does not reach the memory of GPU 1 of rank 1.*NCCL carries all calls' <<<"$out"
"$WEFT_BIN" bench allreduce --threads -n 3 -b 8 -e 64K -f 8 | grep 'wrong elements: 0'
