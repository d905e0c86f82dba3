#!/bin/bash
# tools/demo: where it trains, how it tells that something failed, and its bars, with stand-ins for weft and nvidia-smi.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/build dir"
export WORK=$work PATH=$work/bin:$PATH TRAIN=0 GENERATE=0 REPORT=0 GPUS=0
unset CUDA_VISIBLE_DEVICES DEMO_STEPS
failed=0

program() { # program FILE, and its text on stdin
    { echo '#!/bin/bash'; cat; } >"$1"
    chmod +x "$1"
}
program "$work/bin/nvidia-smi" <<'P'
for ((i = 0; i < GPUS; i++)); do echo "GPU $i: Stand-in"; done
P
program "$work/build dir/weft" <<'P'
echo "$*" >>"$WORK/calls"
if [ "$1" = train ]; then
    printf 'step 1/9  loss %s  lr\n' 5.4321 0.9321 0.0123 nan
    exit "$TRAIN"
fi
[ "$1" != report ] || exit "$REPORT"
printf 'static weft_status_t w\033ritten\r\n'
exit "$GENERATE"
P

# expect NAME STATUS PATTERN-OF-OUTPUT PATTERN-OF-CALLS
expect() {
    local out status
    rm -f "$work/calls"
    out=$("$root/tools/demo" "$work/build dir" 2>&1)
    status=$?
    if [ $status -ne "$2" ] || ! grep -qE -- "$3" <<<"$out" || ! grep -qE -- "$4" "$work/calls"; then
        printf '%s: status %s, not %s; "%s" and "%s" were expected in\n%s\n%s\n' \
            "$1" $status "$2" "$3" "$4" "$out" "$(cat "$work/calls")"
        failed=1
    fi
}

expect "virtual GPUs" 0 "written" "^train -n 4 --device cpu .*--length 128 --batch 32 --steps 350 .*--warmup 20"
[ "$(wc -c <"$work/build dir/demo/sources.txt")" -gt 1000000 ] || { echo "there is little to learn from"; failed=1; }
expect "a bar" 0 "^#{27}  step 1/9  loss 5.4" .
expect "a bar below 1" 0 "^#{4} {25}step 1/9  loss 0.9" .
expect "no bar" 0 "^ {29}step 1/9  loss 0.0" .
expect "not a number" 0 "^step 1/9  loss nan" .
DEMO_STEPS=7 expect "few steps" 0 "written" "--steps 7 .*--warmup 7"
out=$(DEMO_STEPS=many "$root/tools/demo" "$work/build dir" 2>&1) && { echo "it took DEMO_STEPS=many"; failed=1; }
grep -qx 'DEMO_STEPS is "many"; it takes a number of steps' <<<"$out" || { echo "DEMO_STEPS=many: $out"; failed=1; }
TRAIN=3 expect "training failed" 1 "loss 0.9" "^train"
! grep -q generate "$work/calls" || { echo "it went on after a failure"; failed=1; }
GENERATE=5 expect "writing failed" 1 "What it writes" "^generate"
expect "a report, with a step's timeline" 0 "^Its report is in .*/build dir/demo/report.html" "^report .*/demo/run .*-o .*/demo/report.html"
expect "a trace for it" 0 "written" "^train .* --trace .*/demo/run/trace.json"
REPORT=4 expect "the report failed" 4 "written" "^report"
GPUS=2 expect "GPUs, but no module" 0 "4 virtual GPUs" "--device cpu"
GPUS=2 expect "why they are not used" 0 "There is a GPU, but .*build dir was built without the CUDA module" .
touch "$work/build dir/libweft-cuda.so"
GPUS=3 expect "three GPUs" 0 "3 GPU" "^train -n 3 --device cuda .*--batch 63 "
GPUS=16 expect "many GPUs" 0 "8 GPU" "^train -n 8 --device cuda .*--batch 64 "
GPUS=4 CUDA_VISIBLE_DEVICES=1,3 expect "some of the GPUs" 0 "2 GPU" "^train -n 2 --device cuda"
GPUS=4 CUDA_VISIBLE_DEVICES='' expect "none of the GPUs" 0 "4 virtual GPUs" "^train -n 4 --device cpu"
CUDA_VISIBLE_DEVICES=0 expect "no GPU, whatever is said" 0 "4 virtual GPUs" "^train -n 4 --device cpu"
exit $failed
