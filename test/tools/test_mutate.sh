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
tools/mutate --dir "$work" --report --count 5 | grep -q '^folder' || fail "nothing to report is no table"
[ $failures -eq 0 ]
