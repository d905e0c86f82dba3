#!/bin/bash
# ctest: timeout=600 plain
# Some of the points at which the system can fail Weft, of every path, drawn by a seed; make test-faults tries all.
set -u
if [ -n "$SANITIZER" ]; then
    echo "skipped: sanitizers stand between programs and libc, where faults are injected"
    exit 77
fi
failures=0
for path in launch store join2 join3 split symm shmem save train resume resume2; do
    "$WEFT_BUILD/test/faults/drive" --path $path --points "${FAULT_POINTS:-12}" --seed "${FAULT_SEED:-1}" -j 6 ||
        failures=$((failures + 1))
done
[ $failures -eq 0 ]
