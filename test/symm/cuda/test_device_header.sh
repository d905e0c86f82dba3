#!/bin/bash
# ctest: timeout=180
# The device header is nothing but <weft/symm.h> to compilers that know no CUDA, and the kernel that
# docs/symmetric.md shows is one that nvcc compiles without a warning.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

printf '#include <weft/symm_device.cuh>\n#include <weft/symm_device.cuh>\nweft_symm_view_t view;\n' >"$folder/plain.c"
gcc -std=c99 -pedantic-errors -Wall -Wextra -Werror -I"$root/include" -fsyntax-only "$folder/plain.c"
g++ -std=c++11 -x c++ -pedantic-errors -Wall -Wextra -Werror -I"$root/include" -fsyntax-only "$folder/plain.c"

sed -n '/^```cuda$/,/^```$/{/^```/d;p}' "$root/docs/symmetric.md" >"$folder/relay.cu"
grep -q '__global__ void relay' "$folder/relay.cu" || { echo "docs/symmetric.md has no kernel"; exit 1; }
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
    PATH=$PATH:/usr/local/cuda/bin
fi
if ! command -v nvcc >/dev/null; then
    echo "skipped: nvcc was not found, so the kernel of docs/symmetric.md was not compiled"
    exit 77
fi
nvcc -arch=sm_90 -Werror=all-warnings -I"$root/include" -ptx -o "$folder/relay.ptx" "$folder/relay.cu"
grep -q 'ld.acquire.gpu' "$folder/relay.ptx" # it waits by acquire loads, not by what a cache may keep
