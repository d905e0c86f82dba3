#!/bin/bash
# ctest: timeout=120
# A step is told when it is over, not when the next one is.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/cache
seq 1 20000 >text

# gap BATCH ARGUMENT...: the time between the last two lines of steps, as a share of what the last step took. Were
# a step told after the next one, the last two would come together.
gap() {
    local batch=$1 line before=0 last=0
    shift
    rm -rf run
    while IFS= read -r line; do
        case $line in
        "step "*) before=$last last=$EPOCHREALTIME ;;
        esac
    done < <("$WEFT_BIN" train --device cpu --data text --length 128 --batch "$batch" --steps 3 --eval-share 0 \
        --save -1 --out run "$@" 2>&1 </dev/null)
    seconds=$(sed -nE 's/.*"step": *3,.*"seconds": *([0-9.e+-]+).*/\1/p' run/metrics.jsonl)
    awk -v gap="$last $before" -v step="$seconds" 'BEGIN { split(gap, at); printf "%.2f\n", (at[1] - at[2]) / step }'
}

for plan in "-n 1" "-n 2" "-n 2 --tp 2"; do
    batch=8
    told=
    for attempt in 1 2 3 4 5; do # who reads the lines may be late, too
        share=$(gap $batch $plan)
        told="$told $share"
        awk -v share="$share" 'BEGIN { exit !(share > 0.5) }' && break
        batch=$((2 * batch)) # longer steps
        [ $attempt = 5 ] && echo "FAILED: $plan: the last two steps are told together: after$told of a step" && exit 1
    done
    echo "$plan: the last step came after$told of its time"
done
