# shellcheck shell=bash
# To be sourced: what runs from here on has a GPU made of threads (device.h), with Weft's own kernels.
export WEFT_DEVICE=cuda WEFT_CUDA_MODULE=$WEFT_BUILD/test/soft_gpu/soft_gpu.so
export WEFT_ENGINE=weft # NCCL needs a true GPU
unset CUDA_VISIBLE_DEVICES CUDA_MPS_PIPE_DIRECTORY # meant for true ones
if [ ! -e "$WEFT_CUDA_MODULE" ]; then
    echo "skipped: $WEFT_CUDA_MODULE is not there, for lack of a C++ compiler"
    exit 77
fi

# Kernels are not compiled for it, so that it cannot follow what happens inside.
unwatched=$(dirname "${BASH_SOURCE[0]}")/tsan.supp
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:suppressions=$unwatched

set -o pipefail # else a test that failed has the status of tee

# on_soft_gpu NAME [FILTER]: a test of test/gpu, which must not find a reason to be skipped.
on_soft_gpu() {
    local status=0 log
    log=$(mktemp)
    echo "== gpu/$1 ${2:-}, ${SOFT_GPUS:-1} soft GPU"
    "$WEFT_BUILD/test/gpu/test_$1" "${@:2}" 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
    if grep -qE 'SKIPPED|skipped:|not run with|Running 0 test' "$log"; then
        status="nothing done, see above"
    fi
    rm -f "$log"
    if [ "$status" != 0 ]; then
        echo "gpu/$1 ended with status $status"
        exit 1
    fi
}

# From here on there is an NCCL, made of Weft, that works on soft GPUs.
with_nccl() {
    export WEFT_ENGINE=auto WEFT_NCCL=$WEFT_BUILD/test/comm/nccl/fake_nccl_by_weft.so
    # The second copy of Weft in a process needs more room for thread-local variables than is left.
    export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536
}
