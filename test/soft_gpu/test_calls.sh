#!/bin/bash
# ctest: timeout=400 tsan
# Collectives by kernels without a GPU: every kernel, by threads and processes that share a GPU or have one
# each; groups, streams, graphs, and memory of programs. Sanitizers watch the host's side of it.
set -eu -o pipefail
# shellcheck source=test/soft_gpu/soft_gpu.sh
. "$(dirname "$0")/soft_gpu.sh"
case ${SANITIZER:-} in
thread)
    on_soft_gpu group 'g*'
    on_soft_gpu group 'batch*'
    on_soft_gpu streams 's*'
    on_soft_gpu streams 'd*'
    ;;
?*)
    on_soft_gpu device
    on_soft_gpu register
    on_soft_gpu group
    on_soft_gpu scale
    on_soft_gpu tune
    ;;
*)
    export WEFT_TEST_SHORT=1
    on_soft_gpu matrix_threads
    on_soft_gpu matrix 'two_processes*'
    SOFT_GPUS=4 on_soft_gpu matrix_threads
    SOFT_GPUS=2 on_soft_gpu matrix 'two_processes*'
    on_soft_gpu graph 'thousand_replays_of_threads'
    unset WEFT_TEST_SHORT
    on_soft_gpu graph 'plain*'
    for name in device events register group scale streams tune; do
        on_soft_gpu $name
    done
    # More ranks than the GPU has multiprocessors (8): each gets one block all the same.
    echo "== 10 ranks on 8 multiprocessors"
    out=$(WEFT_TIMEOUT=60000 timeout 150 "$WEFT_BIN" bench allreduce -n 10 -b 1K -e 64K -f 64 --iters 3 2>&1) ||
        { echo "10 ranks on a GPU: status $?: $out"; exit 1; }
    grep 'wrong elements: 0' <<<"$out"
    with_nccl
    SOFT_GPUS=4 on_soft_gpu tune
    ;;
esac
