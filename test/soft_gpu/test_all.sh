#!/bin/bash
# ctest: timeout=1200 slow plain long
# All tests of test/gpu that need no more than collectives, without a GPU.
set -eu -o pipefail
# shellcheck source=test/soft_gpu/soft_gpu.sh
. "$(dirname "$0")/soft_gpu.sh"
for name in matrix matrix_threads agree comms errors graph sizes; do
    on_soft_gpu "$name"
done
SOFT_GPUS=4 on_soft_gpu matrix
SOFT_GPUS=3 on_soft_gpu streams
SOFT_GPUS=4 on_soft_gpu group
on_soft_gpu apart own_kernels
with_nccl
on_soft_gpu apart nccl_beside_kernels
