#!/bin/bash
# ctest: timeout=400 plain waits
# Late, stopped, killed and disagreeing ranks on a GPU, without one; also in calls of NCCL's.
set -eu -o pipefail
# shellcheck source=test/soft_gpu/soft_gpu.sh
. "$(dirname "$0")/soft_gpu.sh"
# Results say which GPU they are of.
results=$("$WEFT_BIN" bench barrier -n 2 --iters 2)
grep -q 'ranks (processes) on cuda: soft GPU$' <<<"$results" || { echo "the GPU is not named: $results"; exit 1; }
on_soft_gpu faults
on_soft_gpu errors 'different_*'
on_soft_gpu errors 'abort_ends*'
with_nccl
# NCCL that not all can join is not used, and disturbs nobody.
SOFT_GPUS=4 FAKE_NCCL_REFUSES=1 on_soft_gpu streams 'calls*'
for name in 'killed*' 'error*' 'late*' 'different*' 'out_of_reach'; do
    on_soft_gpu apart "$name"
done
