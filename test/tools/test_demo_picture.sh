#!/bin/bash
# tools/demo-picture: a picture that is well-formed and shows what the demo printed, from a stand-in for weft; and the
# one in docs/ is well-formed.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
command -v python3 >/dev/null || {
    echo "skipped: python3 was not found"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build"
unset CUDA_VISIBLE_DEVICES DEMO_STEPS
failed=0
fail() {
    echo "$*"
    failed=1
}

cat >"$work/build/weft" <<'P'
#!/bin/bash
if [ "$1" = train ]; then
    [ "${TRAIN:-0}" = 0 ] || exit "$TRAIN"
    run=$(sed 's/.*--out \([^ ]*\).*/\1/' <<<"$*")
    mkdir -p "$run"
    for ((i = 1; i <= 40; i++)); do
        printf 'step %d/40  loss %d.5000  lr 1e-3  9.9k tok/s  left 1s\n' $i $((6 - i / 8))
        printf '{"step": %d, "loss": %d.5}\n' $i $((6 - i / 8)) >>"$run/metrics.jsonl"
    done
else
    echo 'if (a < b && c > d) { "quoted" }'
fi
P
chmod +x "$work/build/weft"

well_formed() { python3 -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' "$1"; }
"$root/tools/demo-picture" "$work/build" --output "$work/out/demo.svg" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
well_formed "$work/out/demo.svg" || fail "it is not well-formed"
for text in 'step 1/40  loss 6.5000' 'step 40/40  loss 1.5000' 'a &lt; b &amp;&amp; c &gt; d' '40 steps: 6.50 to 1.50'; do
    grep -qF "$text" "$work/out/demo.svg" || fail "it does not show \"$text\""
done
! grep -q 'left 1s' "$work/out/demo.svg" || fail "a column that has no room is shown"
well_formed "$root/docs/images/demo.svg" || fail "docs/images/demo.svg is not well-formed"

cp "$work/out/demo.svg" "$work/before"
! TRAIN=3 "$root/tools/demo-picture" "$work/build" --output "$work/out/demo.svg" >/dev/null 2>&1 || fail "it drew a failed run"
cmp -s "$work/before" "$work/out/demo.svg" || fail "a failed run changed the picture"
exit $failed
