#!/bin/bash
# tools/check-layers accepts this repository and refuses trees that break each of its rules.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# add FILE LINE...: the lines go to the end of the file.
add() {
    mkdir -p "$(dirname "$tree/$1")"
    printf '%s\n' "${@:2}" >>"$tree/$1"
}

fresh() {
    rm -rf "${tree:?}"/*
    add include/weft/types.h 'typedef struct weft_comm *weft_comm_h;'
    add include/weft/comm.h '#include <weft/types.h>'
    add src/base/log.c '#include <stdio.h>' '#include <weft/types.h>'
    add src/device/cuda.h '#include "base/log.h"'
    add src/device/cuda/load.h '#include "device/cuda.h"'
    add src/comm/comm.h 'struct weft_comm {' '    int rank;' '};'
    add src/comm/comm.c 'int weft__comm_rank(const struct weft_comm *comm)' '{' '    return comm->rank;' '}' \
        'const int weft__comm_limits[] = {' '    1,' '};'
    add src/comm/shm/shm.c '#include <weft/comm.h>' '#include "base/log.h"' '#include "comm/comm.h"' \
        '#include "device/cuda.h"'
    add src/cli/main.c '#include "comm/comm.h"'
    add test/comm/shm/test_shm.c '#include "comm/shm/shm.h"'
    add test/comm/test_comm.c '#include "comm/comm.h"' '#include "comm/parts/helper.h"'
    add test/comm/fixtures/numbers '1'
    add test/fuzz/cases/x '1'
}

accepts() {
    if ! output=$("$root/tools/check-layers" "$1" 2>&1); then
        echo "refused but should not be: $2: $output"
        failed=1
    fi
}

# says WHAT TEXT: it fails, and TEXT is all that it says.
says() {
    if output=$("$root/tools/check-layers" "$tree" 2>&1); then
        echo "accepted: $1"
        failed=1
    elif [ "$output" != "$2" ]; then
        echo "$1: not \"$2\" but \"$output\""
        failed=1
    fi
}

# refuses WHAT FILE LINE TEXT: with LINE at the end of FILE.
refuses() {
    fresh
    add "$2" "$3"
    says "$1" "$4"
}

accepts "$root" "this repository"
fresh
accepts "$tree" "a tree in order"

# ---- the order of layers -------------------------------------------------------------------------------

refuses "an include upwards" src/base/log.c '#include "comm/comm.h"' \
    'src/base/log.c:3: base must not use comm, which is below it ("comm/comm.h")'
refuses "an include upwards from a folder inside" src/comm/shm/shm.c '#include "cli/main.h"' \
    'src/comm/shm/shm.c:5: comm must not use cli, which is below it ("cli/main.h")'
refuses "an include upwards in angle brackets" src/base/log.h '#  include <device/device.h>' \
    'src/base/log.h:1: base must not use device, which is below it ("device/device.h")'
refuses "an include upwards from a kernel" src/device/cuda/x.cu '#include "comm/comm.h"' \
    'src/device/cuda/x.cu:1: device must not use comm, which is below it ("comm/comm.h")'
refuses "an include by a relative path" src/comm/shm/shm.c '#include "../comm.h"' \
    'src/comm/shm/shm.c:5: "../comm.h" is not named from src/ (or its folder is not in the table)'
refuses "an include without its folder" src/base/log.c '#include "log.h"' \
    'src/base/log.c:3: "log.h" is not named from src/ (or its folder is not in the table)'
refuses "a folder that is not in the table" src/misc/x.c '#include "base/log.h"' \
    'src/misc: not in the table of tools/check-layers'

# ---- public headers ------------------------------------------------------------------------------------

refuses "src in a public header" include/weft/comm.h '#include "base/log.h"' \
    'include/weft/comm.h:2: a public header includes "base/log.h"; only <weft/...> and the system are allowed'
refuses "src in a public header, in angle brackets" include/weft/comm.h '#include <base/log.h>' \
    'include/weft/comm.h:2: a public header includes "base/log.h"; only <weft/...> and the system are allowed'
refuses "src in a public header for kernels" include/weft/symm_device.cuh '#include "base/log.h"' \
    'include/weft/symm_device.cuh:1: a public header includes "base/log.h"; only <weft/...> and the system are allowed'
refuses "a public header of a layer below" src/base/log.c '#include <weft/comm.h>' \
    'src/base/log.c:3: base must not use comm, which is below it (<weft/comm.h>)'
refuses "public headers in the wrong order" include/weft/types.h '#include <weft/comm.h>' \
    'include/weft/types.h:2: base must not use comm, which is below it (<weft/comm.h>)'
refuses "OpenSHMEM's header" src/comm/comm.c '#include <shmem.h>' \
    'src/comm/comm.c:8: comm must not use symm, which is below it (<shmem.h>)'
refuses "a public header of nobody's" include/weft/more.h '' \
    'include/weft/more.h: not in the table of public headers of tools/check-layers'

# ---- insides -------------------------------------------------------------------------------------------

refuses "the inside of another layer" src/cli/main.c '#include "comm/shm/shm.h"' \
    'src/cli/main.c:2: "comm/shm/shm.h" is inside comm; others use only headers directly in src/comm'
refuses "the inside of another layer, from a folder of that name" src/comm/cuda/cuda.h \
    '#include "device/cuda/load.h"' \
    'src/comm/cuda/cuda.h:1: "device/cuda/load.h" is inside device; others use only headers directly in src/device'
for ending in cu cuh; do
    refuses "the inside of another layer, from a .$ending" "src/comm/cuda/x.$ending" \
        '#include "device/cuda/load.h"' \
        "src/comm/cuda/x.$ending:1: \"device/cuda/load.h\" is inside device; others use only headers directly in src/device"
done

# In any layer, folders may stand on each other, but not in a circle.
for layer in device comm cli; do
    fresh
    add "src/$layer/a/a.c" "#include \"$layer/b/b.h\"" "#include \"$layer/c/c.h\""
    add "src/$layer/b/b.c" "#include \"$layer/c/c.h\""
    accepts "$tree" "a chain of folders"
    add "src/$layer/c/c.cuh" "#include \"$layer/a/a.h\""
    output=$("$root/tools/check-layers" "$tree" 2>&1) && { echo "accepted: a circle in $layer"; failed=1; }
    for pair in 'a/a.c:1: src/L/a and src/L/b' 'b/b.c:1: src/L/b and src/L/c' 'c/c.cuh:1: src/L/c and src/L/a'; do
        grep -qxF "src/$layer/${pair//L/$layer} include each other, directly or by way of others" <<<"$output" || {
            echo "a circle in $layer: \"$pair\" is not in: $output"
            failed=1
        }
    done
done

# ---- names and words of layers below -------------------------------------------------------------------

refuses "a structure that a layer below defines" src/base/log.h 'struct weft_comm;' \
    'src/base/log.h:1: base must not know weft_comm, which comm defines, below it'
refuses "a type made of it" src/device/cuda.h 'typedef struct weft_comm weft_comm_t;' \
    'src/device/cuda.h:2: device must not know weft_comm, which comm defines, below it'
refuses "a function" src/base/log.c 'extern int weft__comm_rank(const void *comm);' \
    'src/base/log.c:3: base must not know weft__comm_rank, which comm defines, below it'
refuses "a table" src/device/cuda/load.h 'extern const int weft__comm_limits[];' \
    'src/device/cuda/load.h:2: device must not know weft__comm_limits, which comm defines, below it'
refuses "a word of a layer below" src/base/trace.h 'enum { TRACK_PIPELINE };' \
    'src/base/trace.h:1: "pipeline" is a word of parallel, which is below base'
fresh
add src/base/log.c '/* weft__comm_rank,' ' * a checkpoint */' 'const char *text = "weft__comm_rank, a checkpoint";' \
    '// a checkpoint' 'int my_weft_comm;'
add src/train/train.c 'int checkpoint, pipeline, rank = weft__comm_rank(0);'
accepts "$tree" "comments, sentences, and layers that may"

# ---- tests ---------------------------------------------------------------------------------------------

refuses "tests of a folder that is not there" test/comm/tcp/test_tcp.c '' \
    'test/comm/tcp: tests of src/comm/tcp, which is not there'
refuses "tests of no layer" test/misc/test_x.c '' \
    'test/misc: neither a layer nor a folder apart in the table of tools/check-layers'
refuses "a test of an inside that lies outside" test/comm/test_comm.c '#include "comm/shm/shm.h"' \
    'test/comm/test_comm.c:3: needs the inside of src/comm/shm; it belongs into test/comm/shm'
exit $failed
