#!/bin/bash
# ctest: timeout=300
# tools/build in a tree that was moved or copied builds there, not where the tree was made.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CC TARGET
die() {
    echo "FAILED: $*"
    exit 1
}

# A project as small as they come, with the options that are carried over.
mkdir -p "$work/old/tools"
cp "$root/tools/build" "$work/old/tools/"
cat >"$work/old/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.18)
project(small LANGUAGES C)
option(WEFT_TESTS "..." ON)
set(WEFT_SANITIZE "" CACHE STRING "...")
add_executable(small small.c)
C
echo 'int main(void) { return 3; }' >"$work/old/small.c"

build() { # build TREE OPTION...: builds TREE/build from inside the tree, as make does
    (cd "$1" && tools/build build "${@:2}") 2>&1
}
expect() { # expect TREE STATUS: of the program
    local status=0
    "$1/build/small" || status=$?
    [ $status = "$2" ] || die "$1/build/small gives $status, not $2"
}
cached() { grep "^$2:" "$1/build/CMakeCache.txt" | cut -d= -f2-; }

out=$(build "$work/old" -DWEFT_TESTS=OFF -DWEFT_SANITIZE=address,undefined) || die "$out"
expect "$work/old" 3
out=$(build "$work/old") || die "$out"
! grep -q 'anew' <<<"$out" || die "a tree that was not moved: $out"

# Moved: the old folder is gone.
mv "$work/old" "$work/new place"
echo 'int main(void) { return 4; }' >"$work/new place/small.c"
out=$(build "$work/new place") || die "moved: $out"
grep -qF "build was made in $work/old/build, from the sources in $work/old: it is configured anew" <<<"$out" || die "$out"
expect "$work/new place" 4
[ ! -e "$work/old" ] || die "the old folder is there again"
[ "$(cached "$work/new place" CMAKE_HOME_DIRECTORY)" = "$work/new place" ] || die "the cache is that of the old folder"
[ "$(cached "$work/new place" WEFT_TESTS)" = OFF ] || die "WEFT_TESTS was forgotten"
[ "$(cached "$work/new place" WEFT_SANITIZE)" = address,undefined ] || die "WEFT_SANITIZE was forgotten"
out=$(build "$work/new place") || die "$out"
! grep -q 'anew' <<<"$out" || die "said twice: $out"

# Copied: the old folder is there, and is left alone. An option that is given wins over the old one.
cp -r "$work/new place" "$work/copy"
echo 'int main(void) { return 5; }' >"$work/copy/small.c"
out=$(build "$work/copy" -DWEFT_TESTS=ON) || die "copied: $out"
expect "$work/copy" 5
expect "$work/new place" 4
[ "$(cached "$work/copy" WEFT_TESTS)" = ON ] || die "WEFT_TESTS was given"

# A link to it is the same folder.
ln -s "$work/copy" "$work/link"
out=$(build "$work/link") || die "$out"
! grep -q 'anew' <<<"$out" || die "a link: $out"
