#!/bin/bash
# ctest: timeout=120 plain
# The CUDA module is found beside the program, whatever the program is called by and wherever it is started from, by
# every rank that it starts. Labelled plain: sanitized builds have a library of their own, which it is beside instead.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$WEFT_SOURCE/test/soft_gpu/soft_gpu.sh"
failures=0

mkdir "$work/bin" "$work/elsewhere" || exit 1
cp "$WEFT_BIN" "$work/bin/weft" || exit 1
cp "$WEFT_CUDA_MODULE" "$work/bin/libweft-cuda.so" || exit 1
cp "$WEFT_CUDA_MODULE" "$work/libcuda.so.1" || exit 1 # without a driver the module is not looked for: this one is enough
export LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset WEFT_CUDA_MODULE
ln -s ../bin/weft "$work/elsewhere/linked"

# finds WORD...: a command that needs the module
finds() {
    if "$@" bench barrier -n 2 --device cuda --iters 10 >"$work/log" 2>&1; then
        echo "found by $1"
    else
        echo "FAILED: $* bench barrier -n 2 --device cuda"
        tail -n 5 "$work/log"
        failures=$((failures + 1))
    fi
}

cd "$work/elsewhere" || exit 1
finds "$work/bin/weft"
finds ../bin/weft
finds ./linked
PATH=$work/bin:$PATH finds weft

rm "$work/bin/libweft-cuda.so"
if "$work/bin/weft" bench barrier -n 2 --device cuda --iters 10 >"$work/log" 2>&1; then
    echo "FAILED: without a module the command found one all the same"
    failures=$((failures + 1))
elif ! grep -q 'the CUDA module cannot be loaded' "$work/log"; then
    echo "FAILED: a missing module is not named:"
    cat "$work/log"
    failures=$((failures + 1))
fi
exit $((failures > 0))
