#!/bin/bash
# The library exports exactly what its headers declare, under a name of its own; and where NVIDIA's headers are
# installed, names have the same values in both.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
headers=$WEFT_SOURCE/include/weft/cudart
library=$WEFT_BUILD/cudart/libweft-cudart.so.0
failed=0

exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort -u)
declared=$({
    sed -n 's/^\(cudaError_t\|CUresult\|const char \*\) *\(cu[A-Za-z0-9]*\)(.*/\2/p' \
        "$headers/cuda_runtime_api.h" "$headers/cuda.h"
    echo weft_cudart_enter
} | sort -u)
if [ "$exported" != "$declared" ] || [ "$(wc -l <<<"$declared")" -lt 100 ]; then
    echo "declared (<) and exported (>) differ:"
    diff <(echo "$declared") <(echo "$exported")
    failed=1
fi
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p')
[ "$soname" = libweft-cudart.so.0 ] || { echo "soname is $soname" && failed=1; }

# ---- against NVIDIA's

theirs=
for folder in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include; do
    [ -f "$folder/driver_types.h" ] && theirs=$folder && break
done
if [ -z "$theirs" ]; then
    echo "not tried: values against NVIDIA's headers, which are not installed"
    exit $failed
fi
{
    sed -n 's/^ *X(\(cuda[A-Za-z0-9]*\),.*/\1/p' "$headers/errors.h"
    sed -n 's/^ *\(\(cuda\|CUDA_\|CU_\)[A-Za-z0-9_]*\) = [0-9].*/\1/p' "$headers/driver_types.h" "$headers/cuda.h"
    sed -n 's/^#define \(cuda[A-Za-z0-9]*\) .*/\1/p' "$headers/driver_types.h"
} | sort -u >"$work/names"
{
    printf '#include <stdio.h>\n#include <cuda.h>\n#include <cuda_runtime_api.h>\nint main(void)\n{\n'
    sed 's/.*/    printf("%s %lld\\n", "&", (long long)&);/' "$work/names"
    printf '    return 0;\n}\n'
} >"$work/values.c"
for side in ours theirs; do
    folders=(-I"$headers" -I"$WEFT_SOURCE/include")
    [ $side = ours ] || folders=(-I"$theirs")
    cc "${folders[@]}" "$work/values.c" -o "$work/$side" || { echo "$side does not compile" && exit 1; }
    "$work/$side" >"$work/$side.values"
done
count=$(wc -l <"$work/ours.values")
[ "$count" -gt 250 ] || { echo "only $count values" && failed=1; }
diff "$work/ours.values" "$work/theirs.values" || { echo "values differ: ours (<), NVIDIA's (>)" && failed=1; }
exit $failed
