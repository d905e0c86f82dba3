#!/bin/bash
# ctest: timeout=240 plain waits
# Late, stopped, killed and disagreeing ranks on a GPU, without one; also in calls of NCCL's.
set -eu
# shellcheck source=test/soft_gpu/soft_gpu.sh
. "$(dirname "$0")/soft_gpu.sh"
on_soft_gpu faults
on_soft_gpu errors 'different_*'
on_soft_gpu errors 'abort_ends*'
with_nccl
for name in 'killed*' 'late*' 'different*' 'out_of_reach'; do
    on_soft_gpu apart "$name"
done
