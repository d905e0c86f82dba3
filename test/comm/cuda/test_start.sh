#!/bin/bash
# ctest: timeout=120
# How kernels are started (src/comm/cuda/start.cuh), on a machine without a GPU: start.cc has the program.
set -eu
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$WEFT_BUILD/CMakeCache.txt")
[ -x "$nvcc" ] || { echo "skipped: this build has no nvcc, whose headers are needed"; exit 77; }
command -v g++ >/dev/null || { echo "skipped: there is no g++"; exit 77; }
include=$(dirname "$(dirname "$(realpath "$nvcc")")")/include
[ -e "$include/cuda_runtime.h" ] || { echo "skipped: $include has no cuda_runtime.h"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for sanitizer in "" -fsanitize=thread -fsanitize=address,undefined; do
    # shellcheck disable=SC2086 # none or one
    g++ -std=c++17 -g -O1 -Wall -Wno-unused-function $sanitizer -I "$WEFT_SOURCE/src" -isystem "$include" \
        -o "$work/start" "$WEFT_SOURCE/test/comm/cuda/start.cc" -pthread
    "$work/start"
    "$work/start" old
done
