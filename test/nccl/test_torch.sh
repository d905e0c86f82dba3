#!/bin/bash
# ctest: timeout=240 plain
# PyTorch's collectives for CPU tensors over Weft: python/weft_torch.py. Needs a python3 ($WEFT_TEST_PYTHON) with torch.
python=${WEFT_TEST_PYTHON:-python3}
unset WEFT_TEST_PYTHON # no setting of Weft's
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "left out: $python has no torch"
    exit 77
fi
. "$WEFT_SOURCE/test/cli/lib.sh" || exit 1
err=
export LIBWEFT=$WEFT_BUILD/libweft.so.0 OMP_NUM_THREADS=1 MASTER_ADDR=127.0.0.1 # the last: of weft run's own
rank=$WEFT_SOURCE/test/nccl/torch_ranks.py

for size in 1 2 3; do
    name="$size ranks"
    out=$(MASTER_PORT=$((20000 + RANDOM % 10000)) "$weft" run -n $size "$python" "$rank" "$WEFT_SOURCE/python" 2>&1)
    status=$?
    err=$out
    expect_status 0
    [ "$(grep -c 'right$' <<<"$out")" = $size ] || fail "$out"
done

name="a rank that ends is named in an exception"
cat >ends.py <<'END'
import sys, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import weft_torch
dist.init_process_group("weft")
if dist.get_rank() == 1:
    import os
    os._exit(0)
try:
    dist.all_reduce(torch.ones(4))
except dist.DistBackendError as error:
    print("told:", error)
END
out=$(MASTER_PORT=$((20000 + RANDOM % 10000)) timeout 60 "$weft" run -n 2 "$python" ends.py "$WEFT_SOURCE/python" 2>&1)
expect_in "$out" "told: rank 1"
expect_in "$out" "allreduce of 4 f32"

[ $failures = 0 ] || exit 1
