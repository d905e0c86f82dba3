#!/bin/bash
# What is installed under any prefix can be found by pkg-config, compiled against and run, shared and
# static, from C and from C++.
set -eu
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$WEFT_BUILD" --prefix "$prefix/usr" >"$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }

config=$(find "$prefix" -name weft.pc)
export PKG_CONFIG_PATH=${config%/*}
cat >"$prefix/a.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>
int main(void)
{
    printf("%s %s\n", weft_version(), weft_status_name(WEFT_ERR_TIMEOUT));
    return weft_dtype_size(WEFT_F32) != sizeof(float);
}
C
cp "$prefix/a.c" "$prefix/a.cc"
expected="$(pkg-config --modversion weft) WEFT_ERR_TIMEOUT"
libdir=$(pkg-config --variable=libdir weft)

# shellcheck disable=SC2046 # lists of words
{
    gcc -std=c99 -o "$prefix/a" "$prefix/a.c" $(pkg-config --cflags --libs weft)
    g++ -std=c++11 -o "$prefix/b" "$prefix/a.cc" $(pkg-config --cflags --libs weft)
    gcc -std=c99 -o "$prefix/c" "$prefix/a.c" $(pkg-config --cflags weft) "$libdir/libweft.a" \
        $(pkg-config --static --libs-only-l weft | sed 's/-lweft//')
}
for program in a b c; do
    output=$(LD_LIBRARY_PATH=$libdir "$prefix/$program")
    [ "$output" = "$expected" ] || { echo "$program printed \"$output\", not \"$expected\""; exit 1; }
done
readelf -d "$prefix/a" | grep -q 'NEEDED.*libweft\.so\.0' || { echo "not linked by soname"; exit 1; }
[ ! -e "$prefix/usr/bin/weft" ] || "$prefix/usr/bin/weft" --version >/dev/null
if [ -e "$prefix/usr/bin/weft" ] && ! grep -q '^WEFT_SANITIZE:STRING=.' "$WEFT_BUILD/CMakeCache.txt"; then
    printf '#include <shmem.h>\nint main(void) { shmem_init(); shmem_finalize(); return 0; }\n' >"$prefix/s.c"
    "$prefix/usr/bin/oshcc" "$prefix/s.c" -o "$prefix/s"
    "$prefix/usr/bin/oshrun" -np 2 "$prefix/s"
fi
[ -z "$(find "$prefix/usr/include" -type f ! -name '*.h' ! -name '*.cuh')" ]
