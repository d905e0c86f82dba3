#!/bin/bash
# Matrix products by OpenBLAS and by our own code, whichever of the two is not the default here.
set -eu
export WEFT_TEST_SHORT=1 # the tables of inner loops have nothing to do with it
for blas in libopenblas.so.0 own; do
    echo "WEFT_BLAS=$blas"
    WEFT_BLAS=$blas "$WEFT_BUILD/test/kernel/cpu/test_compute_matmul"
done
# The library that was asked for is the one that is used, by one thread for each of ours.
told=$(WEFT_BLAS=$WEFT_BUILD/test/kernel/cpu/fake_blas.so "$WEFT_BUILD/test/kernel/cpu/test_compute_matmul" 2>&1)
grep -q 'fake blas: [1-9][0-9]* products by 1 thread' <<<"$told" || {
    echo "FAILED: a BLAS that is there is not used: $told"
    exit 1
}
# A library that is not there is no failure.
WEFT_BLAS=libnowhere.so WEFT_LOG=info "$WEFT_BUILD/test/kernel/cpu/test_compute_matmul" 2>&1 |
    grep -q "matrix products use Weft's own code"
