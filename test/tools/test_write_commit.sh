#!/bin/bash
# tools/write-commit names the commit, says when sources differ from it, and leaves a file alone that says so already.
set -eu
command -v git >/dev/null || { echo "skipped: there is no git"; exit 77; }
# shellcheck disable=SC2046 # a list of names: a hook's repository is not the one to try this in
unset $(git rev-parse --local-env-vars)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
header=$work/made/by/it.h

mkdir -p "$work/tree/tools" "$work/tree/src" "$work/tree/include"
cp "$WEFT_SOURCE/tools/write-commit" "$work/tree/tools/"
echo 'int a;' >"$work/tree/src/a.c"

expect() { # WHAT COMMIT
    GIT_CEILING_DIRECTORIES=$(dirname "$work") "$work/tree/tools/write-commit" "$header"
    [ "$(cat "$header")" = "#define WEFT_COMMIT \"$2\"" ] || { echo "$1: $(cat "$header")"; exit 1; }
}

git() { command git -c user.name=a -c user.email=a@b -c commit.gpgsign=false -C "$@"; }
expect "not in git" ""
command git init -q "$work"
git "$work" commit -q --allow-empty -m "of something else"
expect "in another repository" ""
git "$work" add -A
git "$work" commit -qm "with a copy of the sources"
expect "a copy in another repository" ""
rm -rf "$work/.git"
command git init -q "$work/tree"
git() { command git -C "$work/tree" -c user.name=a -c user.email=a@b -c commit.gpgsign=false "$@"; }
git commit -q --allow-empty -m "nothing yet"
expect "not in this repository" ""
git add -A
git commit -qm "a"
commit=$(git rev-parse --short=10 HEAD)
expect "a commit" "$commit"
touch -d '2001-01-01' "$header"
expect "the same again" "$commit"
[ "$(stat -c %Y "$header")" -lt 1000000000 ] || { echo "written although nothing changed"; exit 1; }
echo 'int b;' >>"$work/tree/src/a.c"
expect "changed" "$commit+"
git checkout -q src/a.c
expect "as it was" "$commit"
echo 'int c;' >"$work/tree/src/c.c"
expect "a source more" "$commit+"

# The command and what it writes have the one that it was built from.
shown=$("$WEFT_BIN" --version)
if [ -e "$WEFT_SOURCE/.git" ] && command git -C "$WEFT_SOURCE" rev-parse HEAD >/dev/null 2>&1; then
    [[ $shown =~ ^weft\ [0-9.]+\ \([0-9a-f]{10}\+?\)$ ]] || { echo "weft --version: $shown"; exit 1; }
fi
built=$(sed -n 's/^weft [0-9.]* (\(.*\))$/\1/p' <<<"$shown")
"$WEFT_BIN" bench barrier -n 2 --iters 2 --json "$work/bench.json" >"$work/out"
grep -qF "\"commit\": \"$built\"" "$work/bench.json" || { echo "results do not have it:"; head "$work/bench.json"; exit 1; }
