#!/bin/bash
# ctest: timeout=120 tsan
# Patterns with ranks that are threads, where the thread sanitizer sees both sides of every flag: a load that
# does not acquire what its partner released is a race there, and a right result on most machines.
set -u
weft=$WEFT_BIN
failures=0

# right WHAT OPTION...: all results of the pattern are verified
right() {
    local out status
    out=$("$weft" bench "$@" --device cpu --threads --iters 2 --repeat 1 </dev/null 2>&1)
    status=$?
    if [ $status != 0 ] || ! grep -q 'all verified' <<<"$out" || grep -q 'WARNING: ThreadSanitizer' <<<"$out"; then
        echo "FAILED: bench $*: status $status: $(head -60 <<<"$out")"
        failures=$((failures + 1))
    fi
}

for ranks in 2 3; do
    right gradient-sync -n $ranks -b 64 -e 4K -f 8
done
for pattern in balance handoff lookup put-allgather async-gradients; do
    right $pattern -n 2
done
for pattern in halo kv gemm-column gemm-row param-server swap; do # of few bytes, as these take long
    right $pattern -n 2 -e 16K
done
exit $((failures > 0))
