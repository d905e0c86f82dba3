#!/bin/bash
# tools/check-format looks at whole files, tracked or not, and at the width of comments, and mends.
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
expect 1 "an old line in bad format"
tools/check-format --fix
[ "$(cat a.c)" = $'int old;\nint f(void);' ] || { echo "--fix made: $(cat a.c)"; exit 1; }
expect 0 "after --fix"
commit two
printf 'int  c;\n' >'c.c'
expect 1 "a file not yet added"
rm c.c
printf '/* %s */\n' "$(printf '%.0sx' {1..94})" >wide.h
expect 0 "a comment of 100 columns"
printf '/* %s */\n' "$(printf '%.0sé' {1..94})" >wide.h
expect 0 "a comment of 100 columns and more bytes"
printf '/* %s */\n' "$(printf '%.0sx' {1..95})" >wide.h
expect 1 "a comment of 101 columns"
grep -q "wide.h:1:" <<<"$output" || { echo "the line is not named: $output"; exit 1; }
mv wide.h wide.cuh
expect 1 "a comment of 101 columns in a CUDA header"
rm a.c wide.cuh
expect 0 "a file removed"
