#!/bin/bash
# The shared library exports exactly what the public headers declare, under its versioned name.
# OpenSHMEM's names have a test of their own, symm/shmem/names.sh.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
version=$(awk '/^#define WEFT_VERSION_/ { printf "%s%s", dot, $3; dot = "." }' "$root/include/weft/weft.h")
library=$WEFT_BUILD/libweft.so.$version
[ -f "$library" ] || { echo "$library is not there"; exit 1; }

exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
    grep -vE '^p?shmem_|^(start_pes|_my_pe|_num_pes|shmalloc|shmemalign|shrealloc|shfree)$' | sort -u)
# A declaration: the name before an opening bracket, on a line that is neither comment nor macro.
declared=$(awk '/^\/\*|^ \*|^#|^    X\(/ { next }
    match($0, /weft_[a-z0-9_]+\(/) && !/typedef/ { print substr($0, RSTART, RLENGTH - 1) }' \
    "$root"/include/weft/*.h | sort -u)
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p')

failed=0
if [ "$soname" != "libweft.so.${version%%.*}" ]; then
    echo "soname is $soname"
    failed=1
fi
if [ "$exported" != "$declared" ]; then
    echo "declared (<) and exported (>) differ:"
    diff <(echo "$declared") <(echo "$exported") || true
    failed=1
fi
exit $failed
