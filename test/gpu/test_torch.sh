#!/bin/bash
# ctest: timeout=300 plain
# PyTorch's nccl backend with all ranks on one GPU, over Weft's libnccl.so.2: collectives, DDP, FSDP2, tensor parallel,
# pipeline, graphs, torch.compile (torch_gpu.py). Needs a python3 ($WEFT_TEST_PYTHON) whose torch sees a GPU, and MPS.
set -u
weft=$WEFT_BIN
python=${WEFT_TEST_PYTHON:-python3}
unset WEFT_TEST_PYTHON # no setting of Weft's
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

if ! why=$("$weft" bench copy --device cuda --threads -n 1 -e 8 --iters 1 --repeat 1 2>&1); then
    echo "skipped: $(tail -1 <<<"$why")"
    exit 77
fi
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    echo "skipped: $python has no torch that finds a GPU"
    exit 77
fi
for size in 1 2 4 8; do
    timeout 120 env WEFT_TIMEOUT=30 "$weft" run --as-nccl -n $size -- "$python" "$WEFT_SOURCE/test/gpu/torch_gpu.py" \
        >"$work/log" 2>&1
    status=$?
    if grep -q 'MPS is off' "$work/log" && [ $failures = 0 ]; then
        echo "skipped: MPS is off, so ranks that are processes cannot share a GPU"
        exit 77
    fi
    if [ $status -ne 0 ] || [ "$(grep -c 'right$' "$work/log")" != $size ]; then
        echo "FAILED: $size ranks: status $status"
        grep -E 'WRONG|Error|error' "$work/log" | head -n 20
        tail -n 20 "$work/log"
        failures=$((failures + 1))
    else
        echo "$size ranks: $(grep -oE '[a-z_]+: [0-9.]+ s$' "$work/log" | tr '\n' ' ')"
    fi
done
[ $failures = 0 ]
