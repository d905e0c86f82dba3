#!/bin/bash
# tools/test-fresh: what it asks of the machine, runs, counts and cleans up, with stand-ins for all that makes a Debian.
# shellcheck disable=SC2016,SC1091 # stand-ins expand what is theirs
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/tree/tools" "$work/roots"
export WORK=$work PATH=$work/bin:$PATH
unset JOBS http_proxy https_proxy no_proxy
failed=0

program() { # program NAME, and its text on stdin
    { echo '#!/bin/bash'; cat; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
program id <<<'echo "${USER_ID:-0}"'
program unshare <<'P'
[ ! -e "$WORK/no-namespaces" ] || { echo "unshare failed: Operation not permitted" >&2; exit 1; }
while [[ $1 == --* ]]; do shift; done
exec "$@"
P
program mount <<<'exit 0'
program debootstrap <<'P'
echo "debootstrap $*" >>"$WORK/log"
[ ! -e "$WORK/no-debian" ] || { echo "E: no such suite"; exit 1; }
for last; do [[ $last == */debian-* ]] && root=$last; done
mkdir -p "$root"/{etc/apt/apt.conf.d,root,proc,sys,dev/shm,dev/pts,usr/local/share}
P
# The commands that it gets are not run, but for the name of the part.
program chroot <<'P'
echo "chroot ${*:2}" >>"$WORK/log"
case "$*" in
*" make demo") echo "a demo" && exit "${DEMO:-0}" ;;
*" make test") { [ -z "${SLOW:-}" ] || { echo $$ >"$WORK/slow" && exec sleep 600; }; } && printf '7 passed, 1 failed, 0 skipped\n\n' && exit "${TESTS:-0}" ;;
*" bash -ec "*) echo "no warnings" ;;
esac
P
program apt-get <<<'[ "$1" = indextargets ] && . /etc/os-release && printf "http://mirror.test/%s main\n" \
    "debian/ $VERSION_CODENAME" "debian/ $VERSION_CODENAME-updates" "security/ $VERSION_CODENAME-security" "other/ stable"'
program apt-config <<<'printf "Acquire::http::Proxy \"http://proxy.test\";\nAPT::Other \"x\";\n"'

cp "$root/tools/test-fresh" "$work/tree/tools/"
printf '#!/bin/sh\n[ ! -e "$WORK/no-debootstrap" ]\n' >"$work/tree/tools/install-deps"
chmod +x "$work/tree/tools/install-deps"
git -c init.defaultBranch=main init -q "$work/tree" && git -C "$work/tree" add tools &&
    git -C "$work/tree" -c user.name=x -c user.email=x@x commit -qm x || exit 1

fresh() {
    : >"$work/log"
    out=$("$work/tree/tools/test-fresh" --dir "$work/roots" "$@" 2>&1)
    status=$?
    log=$(cat "$work/log")
}
# expect NAME STATUS TEXT...: of the last call of fresh
expect() {
    local text name=$1 wanted=$2
    shift 2
    [ $status -eq "$wanted" ] || complain "$name: status $status, not $wanted"
    for text; do
        grep -qF -- "$text" <<<"$out" || complain "$name: \"$text\" was expected"
    done
}
complain() {
    printf '%s\n%s\n%s\n' "$1" "$out" "$log"
    failed=1
}
left() { ls -A "$work/roots"; }

for wrong in "--release 11" "--only lunch" "--release" "--nope"; do
    # shellcheck disable=SC2086 # words
    fresh $wrong
    expect "$wrong" 2 "usage: tools/test-fresh"
done

# Reasons not to try.
USER_ID=1000 fresh
expect "not root" 77 "skipped: " "takes root"
touch "$work/no-debootstrap" && fresh && rm "$work/no-debootstrap"
expect "no debootstrap" 77 "skipped: there is no debootstrap"
touch "$work/no-namespaces" && fresh && rm "$work/no-namespaces"
expect "no namespaces" 77 "Operation not permitted" "skipped: "
[ -z "$log" ] || complain "something was run"

if ! (. /etc/os-release && [ "$ID" = debian ]); then
    fresh
    expect "no Debian" 77 "--mirror"
    [ $failed -eq 0 ] && echo "the rest is skipped: this machine is no Debian, whose mirror is looked up" && exit 77
    exit 1
fi

# All of it.
fresh --keep
expect "all" 0 "Debian 12: demo passed in" "a demo" "Debian 13: test passed in" "7 passed, 1 failed, 0 skipped" \
    "Debian 13: compilers passed in" "no warnings" "kept: "
for text in "--variant=minbase --include=make,git,ca-certificates bookworm" "trixie" " http://mirror.test/debian/"; do
    grep -qF -- "$text" <<<"$log" || complain "\"$text\" was not asked for"
done
[ "$(grep -c '^chroot git clone' <<<"$log")" = 2 ] || complain "not cloned twice"
machine=$(echo "$work"/roots/*/debian-13)
[ "$(sort "$machine/etc/apt/sources.list")" = "deb http://mirror.test/debian/ trixie main
deb http://mirror.test/debian/ trixie-updates main
deb http://mirror.test/security/ trixie-security main" ] || complain "sources: $(cat "$machine/etc/apt/sources.list")"
[ "$(cat "$machine/etc/apt/apt.conf.d/99this-machine")" = 'Acquire::http::Proxy "http://proxy.test";' ] ||
    complain "apt.conf: $(cat "$machine/etc/apt/apt.conf.d/"*)"
rm -rf "${work:?}/roots/"*

# Some of it, and failures.
TESTS=1 fresh --release 13 --only test
expect "failed tests" 1 "Debian 13: test FAILED in"
grep -q bookworm <<<"$log" && complain "Debian 12 was not asked for"
grep -q 'make demo' <<<"$log" && complain "the demo was not asked for"
DEMO=3 fresh --release 12 --only demo --only test --mirror http://own.test
expect "failed demo" 1 "Debian 12: demo FAILED" "Debian 12: test passed"
grep -q 'http://own.test$' <<<"$log" || complain "another mirror was named"
touch "$work/no-debian" && fresh --release 13 && rm "$work/no-debian"
expect "no such Debian" 1 "E: no such suite" "Debian 13: could not be made"
[ -z "$(left)" ] || complain "left: $(left)"

# Interrupted: nothing is left, neither folders nor processes.
SLOW=1 "$work/tree/tools/test-fresh" --dir "$work/roots" --release 13 --only test >"$work/out" 2>&1 &
pid=$!
until [ -s "$work/slow" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
kill -TERM $pid
wait $pid
status=$? out=$(cat "$work/out") log=""
expect "interrupted" 143
kill "$(cat "$work/slow")" 2>/dev/null # what namespaces would have ended
[ -z "$(left)" ] || complain "left: $(left)"
exit $failed
