#!/bin/bash
# ctest: timeout=180
# What Weft saved is loaded by `transformers`, and the other way round. Needs a python3 ($WEFT_TEST_PYTHON) with
# torch, transformers and safetensors.
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=${WEFT_TEST_PYTHON:-python3}
if ! "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
    echo "left out: $python has no torch, transformers and safetensors"
    exit 77
fi
unset WEFT_TEST_PYTHON # no setting of Weft's
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$here/interop.py" "$WEFT_BUILD/test/train/interop" "$WEFT_BIN" "$folder"
