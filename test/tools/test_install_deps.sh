#!/bin/bash
# tools/install-deps on a machine that has nothing, played by a PATH with next to nothing in it and an
# apt-get that writes down what it is asked for.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for tool in sh env uname cat; do
    ln -s "$(command -v $tool)" "$bin/$tool"
done

program() { # program NAME LINE...: a shell script of that name
    local name=$1
    shift
    printf '#!/bin/sh\n' >"$bin/$name"
    printf '%s\n' "$@" >>"$bin/$name"
    chmod +x "$bin/$name"
}
deps() {
    : >"$bin/log"
    status=0
    output=$(PATH=$bin "$root/tools/install-deps" "$@" 2>&1) || status=$?
    log=$(cat "$bin/log")
}
die() {
    echo "$1: status $status, output: $output, log: $log"
    exit 1
}

# Root, and the lists of packages are absent at first.
program id 'echo 0'
program apt-get "echo \"\$@\" >>$bin/log" \
    "case \$1 in update) : >$bin/updated ;; install) [ -e $bin/updated ] || exit 100 ;; esac"
deps
[ $status -eq 0 ] || die "root"
[ "$(cut -d' ' -f1 <<<"$log" | tr '\n' ' ')" = "install update install " ] || die "retry after update"
for package in cmake ninja-build gcc g++ clang libclang-rt-dev clang-format pkg-config libhwloc-dev \
    libcmocka-dev procps; do
    grep -qE "^install .* ${package//+/[+]}( |\$)" <<<"$log" || die "$package was not asked for"
    grep -qF "$package" <<<"$output" || die "$package was not announced"
done
grep -q mpi <<<"$log" && die "MPI is for peers only"
deps peers
grep -qE '^install .* openmpi-bin libopenmpi-dev mpich libmpich-dev' <<<"$log" || die "peers"

deps fresh
grep -qE '^install .* debootstrap( |$)' <<<"$log" || die "fresh"
grep -q cmake <<<"$log" && die "only debootstrap is needed here, the rest there"

# What is there is not asked for.
program cmake 'exit 0'
program make 'exit 0'
deps
grep -qE ' (cmake|ninja-build)( |$)' <<<"$log" && die "installed what is there"

# An installation that fails is a failure.
program apt-get "echo \"\$@\" >>$bin/log" 'exit 100'
deps
[ $status -ne 0 ] || die "a failed installation"

# An ordinary user without sudo is told what to type; with it, it is used.
program id 'echo 1000'
deps
[ $status -ne 0 ] || die "no sudo"
[ -z "$log" ] || die "tried without root"
grep -q 'As root, run: apt-get install -y --no-install-recommends .*libhwloc-dev' <<<"$output" || die "no hint"
program sudo "echo sudo >>$bin/log" 'exec "$@"'
program apt-get 'exit 0'
deps
[ "$status $log" = "0 sudo" ] || die "sudo"
