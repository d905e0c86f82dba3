#!/bin/bash
# ctest: timeout=120
# The OpenSHMEM programs of this folder, with fresh random data, on 1, 2, 4 and 7 PEs.
set -eu
failed=0
for pes in 1 2 4 7; do
    for program in rma amo wait memory team short; do
        "$WEFT_BIN" run -n "$pes" "$WEFT_BUILD/test/symm/shmem/pe_$program" || {
            echo "pe_$program failed on $pes PEs"
            failed=1
        }
    done
done
exit $failed
