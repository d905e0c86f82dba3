#!/bin/bash
# ctest: timeout=120
# tools/mutate draws by its seed alone, breaks code and neither strings nor comments, and says what it cannot do.
set -u
cd "$WEFT_SOURCE" || exit 1
command -v python3 >/dev/null || {
    echo "skipped: there is no python3, which tools/mutate needs"
    exit 77
}
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
    echo "skipped: this is not a git work tree, and tools/mutate asks git for the sources"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

tools/mutate --dir "$work" --list --count 200 --seed 3 >"$work/a" || fail "it does not draw"
tools/mutate --dir "$work" --list --count 200 --seed 3 >"$work/b"
tools/mutate --dir "$work" --list --count 200 --seed 4 >"$work/c"
cmp -s "$work/a" "$work/b" || fail "one seed draws differently"
cmp -s "$work/a" "$work/c" && fail "two seeds draw the same"
[ "$(grep -c '^ *[0-9]* *src/' "$work/a")" = 200 ] || fail "not 200 are drawn"

# Each differs from its line, and not only in what stands between quotation marks.
awk '/^      - / { before = substr($0, 9) }
     /^      \+ / { after = substr($0, 9); x = before; y = after; gsub(/"[^"]*"/, "", x); gsub(/"[^"]*"/, "", y)
                    if (x == y) { print "changes nothing: " before; bad = 1 } }
     END { exit bad }' "$work/a" || fail "a string was broken, or nothing"
tools/mutate --dir "$work" --list --count 50 --only src/boot | grep '^ *[0-9]* *src/' | grep -v ' src/boot/' &&
    fail "--only draws elsewhere"

# Other lines do not change what is drawn of those that stay, and one line more takes one place at most.
mkdir -p "$work/tree/tools" "$work/tree/src/base"
cp tools/mutate "$work/tree/tools/" && cp src/base/json.c src/base/args.c "$work/tree/src/base/"
git -C "$work/tree" init -q
"$work/tree/tools/mutate" --list --count 30 --seed 3 | grep '^      ' >"$work/before"
awk '/^static/ && !done { print "static int more(int a)\n{\n    return a + 1;\n}\n"; done = 1 } { print }' src/base/json.c \
    >"$work/tree/src/base/json.c"
"$work/tree/tools/mutate" --list --count 31 --seed 3 | grep '^      ' >"$work/after"
[ -s "$work/before" ] || fail "nothing is drawn in a tree of two files"
grep -vxFf "$work/after" "$work/before" && fail "a function more changes what is drawn elsewhere"
tools/mutate --dir "$work" --report --count 5 | grep -q '^folder' || fail "nothing to report is no table"
[ $failures -eq 0 ]
