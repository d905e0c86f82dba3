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
    printf '#include <cuda_runtime.h>\nint main(void) { void *p; return cudaMalloc(&p, 8) || cudaFree(p); }\n' >"$prefix/c.c"
    "$prefix/usr/bin/weftcc" -nccl "$prefix/c.c" -o "$prefix/c"
    "$prefix/c"
fi
[ -z "$(find "$prefix/usr/include" -type f ! -name '*.h' ! -name '*.cuh')" ]

# ---- CMake

mkdir "$prefix/project"
cp "$prefix/a.c" "$prefix/project"
cat >"$prefix/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(a LANGUAGES C)
find_package(weft ${WANTED} REQUIRED COMPONENTS ${PARTS})
add_executable(shared a.c)
target_link_libraries(shared PRIVATE weft::weft)
if(TARGET weft::static)
    add_executable(fixed a.c)
    target_link_libraries(fixed PRIVATE weft::static)
endif()
CMAKE
# configure WANTED PARTS: the project, with what it says in $prefix/said; only the compiler is known from before
configure() {
    cmake -S "$prefix/project" -B "$prefix/build" -DCMAKE_PREFIX_PATH="$prefix/usr" -U '*weft*' -U '*HWLOC*' \
        -DWANTED="$1" -DPARTS="$2" >"$prefix/said" 2>&1
}
version=$(pkg-config --modversion weft)
configure "${version%.*}" static || { cat "$prefix/said"; exit 1; }
cmake --build "$prefix/build" >"$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }
for program in shared fixed; do
    output=$("$prefix/build/$program")
    [ "$output" = "$expected" ] || { echo "$program of CMake printed \"$output\", not \"$expected\""; exit 1; }
done
readelf -d "$prefix/build/shared" | grep -q 'NEEDED.*libweft\.so\.0' || { echo "not linked by soname"; exit 1; }
! readelf -d "$prefix/build/fixed" | grep -q 'NEEDED.*libweft' || { echo "not linked statically"; exit 1; }
! grep -rqF "$WEFT_BUILD" "$libdir/cmake" || { echo "the package names the build folder"; exit 1; }
! grep -rqF "$prefix/first" "$libdir" "$prefix/usr/share" || { echo "the first prefix is somewhere"; exit 1; }
! configure 1.0 "" || { echo "version 1.0 was found"; exit 1; }
grep -q "version: $version" "$prefix/said" || { cat "$prefix/said"; exit 1; }
! configure "" nonsense || { echo "a component was found that is not there"; exit 1; }
grep -q 'weft has no component nonsense' "$prefix/said" || { cat "$prefix/said"; exit 1; }
# Without hwloc there is no static library, and the shared one does not need it.
PKG_CONFIG_LIBDIR=/nowhere PKG_CONFIG_PATH='' configure '' '' || { cat "$prefix/said"; exit 1; }
rm "$prefix/build/shared" "$prefix/build/fixed"
cmake --build "$prefix/build" --target shared >"$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }
! cmake --build "$prefix/build" --target fixed >"$prefix/log" 2>&1 || { echo "static without hwloc"; exit 1; }
! PKG_CONFIG_LIBDIR=/nowhere PKG_CONFIG_PATH='' configure '' static || { echo "static without hwloc"; exit 1; }
grep -q 'static library of weft needs hwloc' "$prefix/said" || { cat "$prefix/said"; exit 1; }

# ---- pages

[ -e "$prefix/usr/bin/weft" ] || exit 0
man=$prefix/usr/share/man/man1
for command in $("$prefix/usr/bin/weft" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$prefix/usr/bin/weft" --man "$command" | cmp -s - "$man/weft-$command.1" || { echo "no page of $command"; exit 1; }
    pages=1
done
[ "${pages-}" = 1 ]
"$prefix/usr/bin/weft" --completion | cmp -s - "$prefix/usr/share/bash-completion/completions/weft"
for page in weft weftcc weftc++ oshcc oshc++ oshrun; do
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
