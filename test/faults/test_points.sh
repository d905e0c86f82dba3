#!/bin/bash
# ctest: timeout=600 plain
# Some of the points at which the system can fail Weft, drawn by a seed; make test-faults tries all.
set -u
if [ -n "$SANITIZER" ]; then
    echo "skipped: sanitizers stand between programs and libc, where faults are injected"
    exit 77
fi
exec "$WEFT_BUILD/test/faults/drive" --points "${FAULT_POINTS:-150}" --seed "${FAULT_SEED:-1}" -j 6
