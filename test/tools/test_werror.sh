#!/bin/bash
# ctest: timeout=120
# A warning ends no user's build: errors are made of them only where tools/test asks for it, of compilers that it knows.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
die() {
    echo "FAILED: $*"
    exit 1
}

configure() { # configure OPTION...: how sources are compiled, in $work/build/compile_commands.json
    rm -rf "$work/build"
    cmake -S "$root" -B "$work/build" -DWEFT_TESTS=OFF -DWEFT_CUDA=OFF "$@" >"$work/log" 2>&1 || die "$(cat "$work/log")"
    grep -q -e '-Wextra' "$work/build/compile_commands.json" || die "no warnings are asked for"
}
configure
grep -q -e '-Werror' "$work/build/compile_commands.json" && die "warnings are errors unless one says otherwise"
configure -DWEFT_WERROR=ON
grep -q -e '-Werror' "$work/build/compile_commands.json" || die "WEFT_WERROR=ON does nothing"

# shellcheck source=tools/testing.sh
. "$root/tools/testing.sh"
compiler() { # compiler VERSION: one that says it is that
    printf '#!/bin/sh\necho %s\n' "$1" >"$work/cc" && chmod +x "$work/cc"
}
for version in 12 14.2.0; do
    compiler $version
    [ "$(werror "$work/cc" 12 14 2>&1)" = ON ] || die "version $version is known"
done
for version in 11 15.1.0 9; do
    compiler $version
    [ "$(werror "$work/cc" 12 14 2>"$work/err")" = OFF ] || die "version $version is not known"
    grep -q "${version%%.*} is not one of those .*(12 to 14)" "$work/err" || die "$(cat "$work/err")"
done

# The build of make test, which this may be one of.
if [[ $WEFT_BUILD == */gcc ]] && [ "$(werror gcc 12 14 2>/dev/null)" = ON ]; then
    grep -q -e '-Werror' "$WEFT_BUILD/compile_commands.json" || die "make test takes warnings of gcc for no errors"
fi
