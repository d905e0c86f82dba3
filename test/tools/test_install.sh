#!/bin/bash
# What is installed under any prefix, and moved elsewhere then, can be found by pkg-config and CMake, compiled against and
# run, shared and static, from C and from C++. Manual pages and completion are there.
set -eu
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$WEFT_BUILD" --prefix "$prefix/first" >"$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }
mv "$prefix/first" "$prefix/usr"

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

# ---- pages

[ -e "$prefix/usr/bin/weft" ] || exit 0
man=$prefix/usr/share/man/man1
for command in $("$prefix/usr/bin/weft" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$prefix/usr/bin/weft" --man "$command" | cmp -s - "$man/weft-$command.1" || { echo "no page of $command"; exit 1; }
    pages=1
done
[ "${pages-}" = 1 ]
"$prefix/usr/bin/weft" --completion | cmp -s - "$prefix/usr/share/bash-completion/completions/weft"
for page in weft oshcc oshc++ oshrun; do
    [ -s "$man/$page.1" ] || { echo "no page of $page"; exit 1; }
done
if command -v groff >/dev/null; then
    for page in "$man"/*.1; do
        (cd "$man/.." && groff -s -man -Tutf8 -ww "$page") 2>&1 >/dev/null | tee "$prefix/said"
        [ ! -s "$prefix/said" ] || { echo "groff complains about $page"; exit 1; }
    done
else
    echo "not tried: reading the pages: there is no groff"
fi
