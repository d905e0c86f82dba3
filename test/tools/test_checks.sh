#!/bin/bash
# tools/check-size, check-banned and check-headers find what they are there to find, and no more.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0
mkdir -p "$tree/src/base" "$tree/include/weft"

# expect CHECK 0: accepted. expect CHECK 1 TEXT: refused, saying TEXT.
expect() {
    local status=0 output
    output=$("$root/tools/check-$1" "$tree" 2>&1) || status=1
    if [ $status -ne "$2" ] || ! grep -qF "${3:-}" <<<"$output"; then
        echo "check-$1: status $status instead of $2, or \"${3:-}\" is not in: $output"
        failed=1
    fi
}

lines() { # N statements
    for ((i = 0; i < $1; i++)); do echo "    x++;"; done
}

source=$tree/src/base/a.c
{ echo 'void f(void)' && echo '{' && lines 100 && echo '}'; } >"$source"
expect size 0
{ echo 'void f(void)' && echo '{' && lines 101 && echo '}'; } >"$source"
expect size 1 'src/base/a.c:2: a function of 101 lines'
lines 800 >"$source"
expect size 0
lines 801 >"$source"
echo 'int b;' >"$tree/src/base/b.c"
expect size 1 'src/base/a.c: 801 lines'

cat >"$source" <<'C'
/* strcpy( in a comment
 * and sprintf( in its second line */
const char *text = "strcat(a, \"b\") gets(";
char c = '"'; // atoi(
snprintf(a, 1, "x"); my_atoi(a); fgets(a, 1, f);
C
expect banned 0
for call in 'strcpy(a, b)' 'x = atoi (a)' 'sprintf(a, "x")' '/* */ strcat(a, b)' 'f("x", gets(a))'; do
    echo "$call;" >"$source"
    expect banned 1 'src/base/a.c:1: '
done

echo 'weft__fail(status, "weft_x: %s", f("y")); /* "weft__x" */ char c = '"'\"'; // weft__y" >"$source"
expect banned 0
echo 'weft__fail(status, "weft_x: %s", "weft__heap_export");' >"$source"
expect banned 1 'src/base/a.c:1: internal name in a string: weft__heap_export'

header=$tree/include/weft/a.h
printf '#ifndef A\n#define A\ntypedef struct a { int x; } a_t;\n#endif\n' >"$header"
expect headers 0
printf '#ifndef A\n#define A\nsize_t f(void);\n#endif\n' >"$header"
expect headers 1 'include/weft/a.h: does not compile alone'
printf 'typedef struct a { int x; } a_t;\n' >"$header"
expect headers 1 'does not compile alone'
printf '#ifndef A\n#define A\nint f(int class);\n#endif\n' >"$header"
expect headers 1 'g++ -std=c++11'
printf '#ifndef A\n#define A\nstruct s { int x; struct { int y; }; };\n#endif\n' >"$header"
expect headers 1 'gcc -std=c99'
rm "$header"
expect headers 1 'no header was compiled'
exit $failed
