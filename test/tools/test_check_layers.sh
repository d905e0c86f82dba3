#!/bin/bash
# tools/check-layers accepts this repository and refuses trees that break the order.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

fresh() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/include/weft" "$tree/src/base" "$tree/src/comm/shm" "$tree/src/cli"
    echo '#include <weft/types.h>' >"$tree/include/weft/comm.h"
    echo '#include <stdio.h>' >"$tree/src/base/log.c"
    printf '#include <weft/comm.h>\n#include "base/log.h"\n#include "comm/comm.h"\n' >"$tree/src/comm/shm/shm.c"
    echo '#include "comm/comm.h"' >"$tree/src/cli/main.c"
}

accepts() {
    if ! output=$("$root/tools/check-layers" "$1" 2>&1); then
        echo "refused but should not be: $2: $output"
        failed=1
    fi
}

# refuses WHAT FILE LINE TEXT: with FILE holding LINE, it fails and says TEXT.
refuses() {
    fresh
    mkdir -p "$(dirname "$tree/$2")"
    printf '\n%s\n' "$3" >>"$tree/$2"
    if output=$("$root/tools/check-layers" "$tree" 2>&1); then
        echo "accepted: $1"
        failed=1
    elif ! grep -qF "$4" <<<"$output"; then
        echo "$1: \"$4\" is not in: $output"
        failed=1
    fi
}

accepts "$root" "this repository"
fresh
accepts "$tree" "a tree in order"

refuses "an include upwards" src/base/log.c '#include "comm/comm.h"' \
    'src/base/log.c:3: base must not use comm'
refuses "an include upwards from a folder inside" src/comm/shm/shm.c '#include "cli/main.h"' \
    'src/comm/shm/shm.c:5: comm must not use cli'
refuses "an include upwards in angle brackets" src/base/log.h '#  include <device/device.h>' \
    'src/base/log.h:2: base must not use device'
refuses "an include by a relative path" src/comm/shm/shm.c '#include "../comm.h"' \
    'is not named from src/'
refuses "an include without its folder" src/base/log.c '#include "log.h"' 'is not named from src/'
refuses "src in a public header" include/weft/comm.h '#include "base/log.h"' \
    'a public header includes'
refuses "a folder that is not in the table" src/misc/x.c '#include "base/log.h"' \
    'src/misc: not in the table'
refuses "the inside of a closed layer" src/cli/main.c '#include "comm/shm/shm.h"' \
    'src/cli/main.c:3: "comm/shm/shm.h" is inside comm'
fresh
mkdir -p "$tree/src/comm/host" "$tree/src/comm/cuda"
echo '#include "comm/host/host.h"' >>"$tree/src/comm/shm/shm.c"
echo '#include "comm/host/host.h"' >"$tree/src/comm/cuda/cuda.c"
accepts "$tree" "folders of a layer on top of each other"
refuse_circle() {
    echo "#include \"$2\"" >>"$tree/$1"
    if output=$("$root/tools/check-layers" "$tree" 2>&1) || ! grep -qF 'include each other' <<<"$output"; then
        echo "a circle from $1 to $2: $output"
        failed=1
    fi
}
echo '#include "comm/cuda/cuda.h"' >>"$tree/src/comm/shm/shm.c"
accepts "$tree" "a chain of folders"
refuse_circle src/comm/host/host.c comm/shm/shm.h
exit $failed
