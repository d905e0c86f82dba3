#!/bin/bash
# ctest: timeout=300 slow plain long
# Every collective, type and operation over the nccl backend, by processes and by threads.
set -eu
# shellcheck source=test/comm/nccl/over_nccl.sh
. "$(dirname "$0")/over_nccl.sh"
"$WEFT_BUILD/test/comm/test_matrix"
"$WEFT_BUILD/test/comm/test_matrix_threads"
