#!/bin/bash
# ctest: timeout=240 cores=2
# weft scaling and weft train --benchmark: what they print and write, and what they refuse.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
unset WEFT_RANK WEFT_SIZE RANK WORLD_SIZE # of a launcher above us
export WEFT_DEVICE=cpu HOME=$work/home
mkdir home

cat >config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 4, "n_embd": 16,
 "n_head": 4, "n_positions": 16, "vocab_size": 61, "activation_function": "gelu_new"}
END
small="--model ./config.json"

benchmark() { train --benchmark $small "$@"; }
scaling() {
    "$weft" scaling $small --batch 2 --steps 2 --rounds 1 "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out)
    err=$(cat err)
}
# nothing but what was there, and what is named, is in the folder
expect_only() {
    local left
    left=$(find . -mindepth 1 ! -name out ! -name err ! -name config.json ! -path ./home ! -path ./tmp ! -name "${1-none}" | head -3)
    [ -z "$left" ] || fail "it left $left"
}
json() { python3 -c "import json, sys; d = json.load(open('$1')); $2"; }
have_python=$(command -v python3 || true)

# ---- weft train --benchmark --------------------------------------------------------------------

name="benchmark on one rank"
benchmark --steps 3 --batch 4
expect_status 0
expect_in "$out" "tokens/s"
expect_in "$out" "where the time of a step goes"
expect_in "$out" "MFU"
expect_in "$out" "steps        3, after 3 to warm up"
expect_narrow
expect_only

name="benchmark of a plan, as JSON"
benchmark -n 4 --tp 2 --pp 2 --steps 3 --batch 8 --json b.json
expect_status 0
expect_in "$out" "pp 2 x tp 2"
expect_only b.json
if [ -n "$have_python" ]; then
    json b.json '
assert d["kind"] == "train" and d["format"] == 1 and d["ranks"] == 4 and d["plan"] == "pp 2 x tp 2", d["plan"]
assert d["steps"] == 3 and len(d["step_ms"]) == 3 and len(d["loss"]) == 3 and d["tokens_per_s"] > 0
t = d["time"]
assert set(t) == {"compute", "communication", "bubble", "imbalance", "optimizer", "data", "rest"}
assert abs(sum(t.values()) - sum(d["step_ms"]) / 3e3) < 1e-6 + 0.02 * sum(t.values())
assert abs(d["tokens_per_s"] * sum(t.values()) / (d["batch"] * d["length"]) - 1) < 0.02
assert {"weights", "gradients", "optimizer", "activations", "buffers", "host"} <= set(d["memory"])
assert all(3.5 < x < 5 for x in d["loss"])' || fail "b.json"
    benchmark --steps 3 --batch 8 --json one.json
    python3 -c '
import json
a, b = (json.load(open(f))["loss"] for f in ("b.json", "one.json"))
assert all(abs(x - y) < 1e-4 * y for x, y in zip(a, b)), (a, b)' || fail "a plan has other losses than one rank"
fi
rm -f b.json one.json

name="benchmark of the configuration of a run: its data and folder are left alone"
printf 'data = nowhere\nout = run\ntensorboard = auto\nsteps = 100000\nsave = 5\n' >run.config
benchmark -c run.config --steps 2 --batch 2
expect_status 0
rm run.config
expect_only

name="benchmark with wrong options"
benchmark --resume somewhere
expect_status 2
expect_in "$err" "--resume"
train --json x.json --data config.json
expect_status 2
expect_in "$err" "--json is for --benchmark"
benchmark -n 4 --tp 3
expect_status 2
benchmark --steps 0
expect_status 2
benchmark --steps 1 --batch 2 --json /nowhere/x.json
expect_status 1
expect_in "$err" "/nowhere"
expect_only

name="benchmark on 7 ranks"
benchmark -n 7 --steps 1 --batch 7
expect_status 0
expect_in "$out" "dp 7"

# ---- weft scaling ------------------------------------------------------------------------------

name="scaling on 2 ranks, as JSON"
scaling -n 2 --json s.json
expect_status 0
expect_narrow
expect_in "$out" "weak scaling: 2 x 16 tokens on each rank"
expect_in "$out" "strong scaling: 4 x 16 tokens in all"
expect_in "$out" "dp 2, zero 3"
expect_in "$out" "tp 2"
expect_only s.json
[ -z "$have_python" ] || json s.json '
assert d["kind"] == "scaling" and d["format"] == 1 and d["remedies"] == []
seen = {(p["mode"], p["ranks"], p["plan"]) for p in d["points"]}
assert {("weak", 1, "dp 1"), ("weak", 2, "dp 2"), ("strong", 1, "dp 1"), ("strong", 2, "dp 2"), ("weak", 2, "pp 2"),
        ("weak", 2, "dp 2, zero 1")} <= seen, seen
one = {p["mode"]: p for p in d["points"] if p["ranks"] == 1}
for p in d["points"]:
    lost, efficiency = p["lost"], p["tokens_per_s"] / one[p["mode"]]["tokens_per_s"] / p["ranks"]
    assert set(lost) == {"communication", "bubble", "imbalance", "optimizer", "data", "rest"}
    assert abs(p["efficiency"] - efficiency) < 1e-9 * efficiency
    assert abs(sum(lost.values()) - (1 - p["efficiency"])) < 0.02 * abs(1 - p["efficiency"]) + 1e-9
    assert p["ranks"] > 1 or abs(p["efficiency"] - 1) < 1e-12
assert any(p["lost"]["communication"] > 0 for p in d["points"])' || fail "s.json"
rm -f s.json

name="scaling on 1 rank"
scaling -n 1
expect_status 0
expect_in "$out" "100.0"

name="scaling on 7 ranks: weak at 1, 2, 4 and 7; strong where the batch divides"
scaling -n 7 --no-plans --json s.json
expect_status 0
[ "$(grep -cE '^ +[1247] dp [1247] ' out)" = 6 ] || fail "not six points: $out"
if [ "$(nproc)" -lt 7 ]; then
    expect_in "$out" "Oversubscribed: 7 ranks share"
    grep -q '"oversubscribed": true' s.json || fail "s.json does not say oversubscribed"
fi
rm -f s.json

name="scaling, with remedies"
scaling_with_remedies() { # now and then a rank waits for another's computing alone, and nothing is to be mended
    for _ in 1 2 3 4 5 6; do
        scaling -n 2 --mode weak --no-plans --remedies --limit 0 --json s.json "$@"
        expect_status 0
        grep -q '^# remedies for ' out && break
    done
}
scaling_with_remedies
for remedy in "larger batch" "overlap, buckets" "compression" "another plan"; do
    expect_in "$out" "$remedy"
done
[ -z "$have_python" ] || json s.json '
assert d["remedies_for"]["plan"] == "dp 2" and d["remedies_for"]["ranks"] == 2
assert {r["name"] for r in d["remedies"]} == {"larger batch", "overlap, buckets", "compression", "another plan"}
assert all(r["tokens_per_s"] > 0 and r["gain"] > -1 and r["noise"] for r in d["remedies"])' || fail "s.json"
rm -f s.json
expect_in "$(tail -1 out)" "One round does not tell a gain from noise"

name="remedies: what is noise, and what helps most"
scaling_with_remedies --rounds 3
grep -qE '^# remedies for dp 2 on 2 ranks: .* tokens/s \+-[0-9]+%' out || fail "no spread of what it is for: $out"
wide=$(sed -n '/^# remedies/,$p' out | awk 'length > 80')
[ -z "$wide" ] || fail "more than 80 columns: $wide"
[ -z "$have_python" ] || python3 - <<'END' || fail "s.json and the table differ: $out"
import json
d, lines = json.load(open("s.json")), open("out").read().splitlines()
best = max((r for r in d["remedies"] if not r["noise"] and r["gain"] > 0), key=lambda r: r["gain"], default=None)
for r in d["remedies"]:
    row, = [l for l in lines if l.startswith("  " + r["name"]) and " " + r["options"] + " " in l]
    assert row.endswith(" noise") == r["noise"], row
    base = r["tokens_per_s"] / (1 + r["gain"])
    assert r["noise"] or not min(r["rounds"]) <= base <= max(r["rounds"]), r
assert lines[-1] == "# No remedy helps beyond the noise." if best is None else best["options"] in lines[-1], lines[-1]
END
rm -f s.json

scaling -n 2 --mode weak --no-plans --remedies --limit 100
expect_status 0
expect_in "$out" "no remedy is due"

name="scaling with options of training"
scaling -n 2 --mode weak --no-plans -- --overlap no
expect_status 0
expect_in "$out" "dp 2, no overlap"

name="scaling with wrong options"
for words in "--mode sideways" "--limit 101" "-n 0" "--rounds 0" "--batch 0" "--no-such-option" "--length 17" \
    "--model nowhere" "-- --tp 2" "-- --batch 4" "-- --no-such-option" "-- --trace x" "-- -n 3" "-- --help" \
    "-- --steps 7" "-- -s7" "-- --steps=7" "-- --data config.json" "-- --out zz" "-- -o zz" "-- --resume zz" \
    "-- --overlap no --save 5" "-- --tensorboard" "bogus" "bogus -- --overlap no"; do
    scaling -n 2 $words
    [ "$status" = 2 ] || fail "$words: status $status; $err"
    [ -n "$err" ] || fail "$words: not a word"
    [ "$(wc -l <err)" = 1 ] || fail "$words: more than a sentence: $err"
done
scaling -n 2 -- --steps 7
expect_in "$err" "weft scaling: --steps goes before --"
scaling -n 2 -- --data nope --out zz
expect_in "$err" "weft scaling: --data has no use, as tokens are made up: leave it out"
scaling bogus
expect_in "$err" 'weft scaling: there is nothing to give but options, not "bogus"; options of weft train go after --'
expect_only

name="a launcher with other ranks"
"$weft" run -n 2 "$weft" scaling $small -n 3 >out 2>err </dev/null
status=$?
err=$(cat err)
expect_status 2
expect_in "$err" "3"

name="a file that cannot be written"
scaling -n 2 --json /nowhere/x.json
expect_status 1
expect_in "$err" "/nowhere"

name="a rank fails: the others are told why, and do not wait"
cat >little_memory.sh <<END
#!/bin/bash
[ "\$WEFT_RANK" != 1 ] || export WEFT_DEVICE_MEMORY=256K
exec "$weft" "\$@"
END
chmod +x little_memory.sh
"$weft" run -n 3 ./little_memory.sh scaling --device cpu $small --steps 3 --rounds 1 --mode weak --no-plans >out 2>err </dev/null
status=$?
err=$(cat err)
expect_status 1
grep -q "rank 1 gave up: dp [23] on [23] ranks: weft_malloc: device 1 cannot give" err || fail "not told why: $err"
rm little_memory.sh

name="a rank is killed: it is named, and nothing is left"
for command in "scaling $small -n 3 --steps 1000000 --rounds 1 --mode weak --no-plans" \
    "train --benchmark --device cpu $small -n 3 --steps 1000000 --batch 3"; do
    "$weft" $command --json k.json >out 2>err </dev/null &
    pid=$!
    ranks() { cat /proc/$pid/task/$pid/children 2>/dev/null; }
    started() { [ "$(ranks | wc -w)" -ge 3 ] && grep -q '^#' out; }
    wait_for 60 started || fail "it does not start"
    victim=$(ranks | awk '{ print $3 }')
    all=$(ranks)
    kill -9 "$victim"
    wait $pid
    status=$?
    err=$(cat err)
    expect_status 137
    expect_in "$err" "killed by SIGKILL"
    for rank in $all; do
        ! kill -0 "$rank" 2>/dev/null || fail "process $rank is still there"
    done
    expect_only
done

[ $failures = 0 ] || exit 1
echo "scaling: as it should be"
