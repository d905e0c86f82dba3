#!/bin/bash
# tools/check-format looks at changed lines and new files, leaves old ones alone, and mends.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
command -v git >/dev/null || { echo "skipped: there is no git"; exit 77; }
# shellcheck disable=SC2046 # a list of names: a hook's repository is not the one to try this in
unset $(git rev-parse --local-env-vars)
"$root/tools/check-format" | grep -q "no clang-format" && { echo "skipped: no clang-format 14"; exit 77; }
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/tools"
cp "$root/tools/check-format" "$tree/tools/"
cp "$root/.clang-format" "$tree/"
cd "$tree"

expect() { # expect STATUS WHAT
    local status=0
    output=$(tools/check-format 2>&1) || status=1
    [ $status -eq "$1" ] || { echo "$2: status $status: $output"; exit 1; }
}
commit() {
    git add -A
    git -c user.name=test -c user.email=test@localhost commit -qm "$1"
}

expect 0 "not a work tree"
grep -q "not a git work tree" <<<"$output"

git init -q
expect 0 "an empty repository"
printf 'int  old;\nint f(void);\n' >a.c
expect 1 "a new file before the first commit"
commit one
expect 1 "the first commit"
printf 'int b;\n' >b.c
commit two
expect 0 "an old file in bad format"
printf 'int  old;\nint f(int x);\n' >a.c
expect 0 "a good line changed beside a bad one"
printf 'int  old;\nint f( int x );\n' >a.c
expect 1 "a bad line changed"
commit three
expect 1 "a bad line in the last commit"
tools/check-format --fix
[ "$(cat a.c)" = $'int  old;\nint f(int x);' ] || { echo "--fix made: $(cat a.c)"; exit 1; }
expect 0 "after --fix"
printf 'int  c;\n' >'c.c'
expect 1 "a file not yet added"
rm a.c c.c
expect 0 "a file removed"
