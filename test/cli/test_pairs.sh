#!/bin/bash
# ctest: timeout=300 cores=2
# weft pairs from the outside: every pair runs and is verified, files and expectations, and what it refuses.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
export WEFT_EXPECTATIONS=$work/expectations

# pairs ARGUMENT...: weft pairs with stdout, stderr and status in $out, $err, $status
pairs() {
    "$weft" pairs "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out)
    err=$(cat err)
}
refused() { # SENTENCE ARGUMENT...
    local sentence=$1
    shift
    pairs "$@"
    expect_status 2
    expect_in "$err" "weft pairs: $sentence"
    [ -z "$out" ] || fail "it printed: $out"
    [ "$(wc -l <err)" = 1 ] || fail "told more than once: $err"
}
fails() { # SENTENCE ARGUMENT...
    local sentence=$1
    shift
    pairs "$@"
    expect_status 1
    expect_in "$err" "$sentence"
}
json() { tr -d ' \n' <"$1"; }

name="wrong use"
refused 'say what to do: list, run or compare'
refused 'there is no "weft pairs lst"; did you mean list' lst
refused 'there is no pair or group "hallo"; did you mean "halo"?' run hallo
refused 'there is no pair or group "atomic"' run atomic # a benchmark of one way
refused 'there is no pair or group "conpression"; did you mean "compression"?' list conpression
refused 'there is no profile "quik"; did you mean "quick"?' run halo -p quik
refused '--device must be cpu, cuda or auto' run halo -d gpu
refused '--capture must be trace or nsys' run halo --capture perf
refused 'compare takes two files' compare a.json
for option in '-n 0' '-i 0' '--no-such'; do
    # shellcheck disable=SC2086
    pairs run halo $option
    expect_status 2
done

name="the list"
pairs list --json list.json
expect_status 0
for group in one-sided links calls compression; do
    grep -q "^# $group$" <<<"$out" || fail "no group $group: $out"
done
expect_in "$out" 'ring -> tree -> direct'
expect_in "$(json list.json)" '"name":"handoff/put","group":"one-sided",'
[ "$(awk 'length > 80' out | wc -l)" = 0 ] || fail "lines of more than 80 columns: $(awk 'length > 80' out)"
pairs list calls
expect_not_in "$out" halo
expect_in "$out" small-calls

name="every pair, quick, 2 ranks"
# Under a sanitizer one of those that run the same code with another type or plan; tests of train and parallel run the
# plans there.
wanted=()
if [ -n "${SANITIZER:-}" ]; then
    wanted=(one-sided links calls compress/int8 compress-allreduce/fp16 quantized/bf16 dp-overlap recompute)
fi
start=$SECONDS
pairs run "${wanted[@]}" --profile quick --json all.json
expect_status 0
expect_narrow
echo "all pairs, quick: $((SECONDS - start)) s"
expect_in "$out" 'wrong results: 0 (all verified)'
expect_in "$out" 'no expectations for this machine; --update-expectations keeps a run as such'
expect_in "$out" 'graphs need a GPU'
all=$(json all.json)
for key in '"kind":"pairs","format":1,' '"profile":"quick","seed":' '"build":"' \
    '{"name":"halo","group":"one-sided","bytes":16384,"baseline":"send/recv","ways":[{"name":"one-sided","us":[' \
    '"left_out":"graphsneedaGPU"' '"wrong":0,"outside":0}'; do
    expect_in "$all" "$key"
done
"$weft" pairs list "${wanted[@]}" | sed -n 's/^  \([a-z][^ ]*\) .*/\1/p' | while read -r pair; do
    grep -qF "{\"name\":\"$pair\",\"group\":" <<<"$all" || echo "$pair"
done >missing
[ "$("$weft" pairs list "${wanted[@]}" | grep -c '^  [a-z]')" -ge 31 ] || fail "the list is too short"
[ ! -s missing ] || fail "not measured: $(cat missing)"
for way in $(grep -o '"ratio":[^,]*,"low":[^,]*,"high":[^,]*,"verdict":"[a-z]*"' <<<"$all" | tr -d ' '); do
    awk -F'[:,]' '{ exit !($4 > 0 && $4 <= $2 * 1.000001 && $2 <= $6 * 1.000001) }' <<<"$way" || fail "interval: $way"
done

name="a chain has all its ways; the middle one is not always there"
pairs run algorithms small-calls -p quick -n 3 -i 3
expect_status 0
for way in ring tree direct 'one by one' grouped; do
    grep -qE " $way +[0-9]" <<<"$out" || fail "no $way: $out"
done

name="7 ranks, ranks that are threads"
pairs run halo gradient-sync/slices peer places algorithms -p quick -n 7 -i 2
expect_status 0
pairs run put-signal cold-state -p quick --threads -n 3
expect_status 0
expect_in "$out" 'ranks (threads)'

name="one rank"
pairs run calls -p quick -n 1
expect_status 0
expect_in "$out" 'left out: small-calls needs 2 ranks or more, and there is 1: give -n 2'
fails 'no pair can run here: handoff needs 2 ranks or more' run handoff -n 1 --json one.json
[ ! -e one.json ] || fail "a file of nothing is left"

name="a GPU made of threads"
module=$WEFT_BUILD/test/soft_gpu/soft_gpu.so
if [ -e "$module" ]; then
    WEFT_CUDA_MODULE=$module WEFT_ENGINE=weft WEFT_DEVICE=cuda \
        pairs run peer places one-shot small-calls registered pinned halo -p quick -i 2
    expect_status 0
    expect_in "$out" 'wrong results: 0 (all verified)'
    expect_in "$out" 'left out: halo runs on virtual GPUs only'
    for way in 'through host' 'by topology' one-shot graph registered pinned; do
        grep -qE " $way +[0-9]" <<<"$out" || fail "no $way: $out"
    done
else
    echo "not tried: $name: $module is not built"
fi

name="a rank that is killed"
"$weft" pairs run -p thorough halo --json killed.json >out 2>err </dev/null &
pid=$!
rank_of() { ranks_of $pid | tail -1; }
wait_for 30 test -s out && wait_for 30 eval '[ -n "$(rank_of)" ]'
kill -9 "$(rank_of)"
wait $pid
status=$?
[ $status = 137 ] || fail "status $status; $(cat err)"
grep -q 'killed by SIGKILL' err || fail "not told: $(cat err)"
[ ! -e killed.json ] || fail "half a file is left"

name="a folder that is not there"
fails "cannot write $work/no/such/file.json" run halo -p quick --json "$work/no/such/file.json"

name="a timeline"
pairs run put-signal -p quick --json t.json --capture trace
expect_status 0
for word in '"rank 0"' '"rank 1"' '"send/recv"' '"one-sided"' '"loops"'; do
    expect_in "$(cat t.trace.json)" "$word"
done

name="under nsys, or without it"
mkdir -p bin
PATH=$work/bin:/usr/bin:/bin
if ! command -v nsys >/dev/null; then
    fails 'nsys cannot be started' run halo -p quick --capture nsys
fi
cat >bin/nsys <<'END'
#!/bin/sh
echo "$@" >"$NSYS_WORDS"
while [ "$1" != --output ]; do shift; done
shift 2
exec "$@"
END
chmod +x bin/nsys
NSYS_WORDS=$work/words pairs run halo -p quick --capture=nsys --json n.json
expect_status 0
expect_in "$(cat words)" 'profile --trace=cuda,nvtx,osrt --force-overwrite=true --output n '
expect_in "$(json n.json)" '"name":"halo"'

# ---- expectations ------------------------------------------------------------------------------

name="a slowdown that is planted"
for _ in $(seq 20); do # a busy machine may say that it cannot tell, but never that it is the same
    WEFT_PAIRS_TEST=100 pairs run put-allgather -p quick --json slow.json
    expect_status 0
    expect_not_in "$(json slow.json)" '"verdict":"thesame"'
    grep -q 'noisy$' <<<"$out" || break
done
expect_in "$(json slow.json)" '"verdict":"slower"'

# kept: a run of the pair that is quiet enough to be kept; a busy machine may need some
kept() {
    for _ in $(seq 20); do
        pairs run put-allgather -p quick --update-expectations "$@"
        [ $status = 0 ] && return
        expect_in "$err" 'this run cannot be kept as what to expect: put-allgather, one-sided, 16K was too noisy to tell, measured 4 times;'
    done
    fail "no run of 20 was quiet enough: $out"
}
name="expectations are made, found and met"
kept
file=$(sed -n 's/^# kept as what to expect: //p' <<<"$out")
[ -s "$file" ] || fail "no file $file"
case $file in "$work/expectations/"*-2-ranks.json | "$work/expectations/"*-2-ranks-sanitized.json) ;; *) fail "it is named $file" ;; esac
grep -q '"commit"' "$file" || fail "no history: $(cat "$file")"
kept
[ "$(grep -c '"started"' "$file")" = 2 ] || fail "not two runs in the history: $(cat "$file")"
pairs run put-allgather -p quick --json met.json
expect_in "$out" "# expectations: $file"
expect_in "$(json met.json)" '"expected_low":'

name="a run outside is named, and returns 3"
sed -i -E 's/^(      "low": )[0-9.]+/\1900/; s/^(      "high": )[0-9.]+/\1901/' "$file"
outside=no
for _ in $(seq 20); do # where it is too noisy to tell, it does not say so
    pairs run put-allgather -p quick --json outside.json
    [ $status = 3 ] && outside=yes && break
done
[ $outside = yes ] || fail "no run was outside: $out"
grep -qE 'outside: 99% below the expected 900.00..901.00|outside: 100% below' <<<"$out" || fail "$out"
expect_in "$(json outside.json)" '"outside":true'
expect_in "$(json outside.json)" '"outside":1}'
cp "$file" mine.json
kept # of the same commit: the range grows to hold what is outside
grep -q '"high": 901' "$file" || fail "not expected any more: $(cat "$file")"
grep -q '"low": 900' "$file" && fail "the range did not grow: $(cat "$file")"
sed -i -E 's/"commit": "[^"]*"/"commit": "another"/; s/^(      "low": )[0-9.]+/\1900/' "$file"
kept # of another: what is outside takes the place of what was expected
grep -q '"high": 901' "$file" && fail "still expected: $(cat "$file")"

name="files of expectations that are not for us"
pairs run put-allgather -p quick -n 3
expect_in "$out" 'no expectations for this machine'
fails 'is for another machine' run put-allgather -p quick -n 3 --expectations "$file"
fails 'is no file of expectations' run put-allgather -p quick --expectations met.json
sed 's/"format": 1/"format": 99/' "$file" >other.json
fails 'other.json has format 99' run put-allgather -p quick --expectations other.json
head -c 300 "$file" >torn.json
fails 'torn.json, line' run put-allgather -p quick --expectations torn.json
sed 's/"way":/"weg":/' "$file" >odd.json
fails 'odd.json has an expectation without name' run put-allgather -p quick --expectations odd.json
fails 'no.json' run put-allgather -p quick --expectations no.json
cp torn.json expectations/0-torn.json
pairs run put-allgather -p quick
expect_in "$err" 'expectations are not read: '
rm expectations/0-torn.json

name="what is not kept"
before=$(cat "$file")
for percent in ten 10% -5 nan; do
    WEFT_PAIRS_TEST=$percent fails "WEFT_PAIRS_TEST is \"$percent\", not a number of percent" run put-allgather -p quick
done
WEFT_PAIRS_TEST=0 fails 'cannot be kept as what to expect: WEFT_PAIRS_TEST is set' run put-allgather --update-expectations
fails 'cannot be kept as what to expect: --iterations was given' run put-allgather -i 3 --update-expectations
[ "$before" = "$(cat "$file")" ] || fail "it changed"

# ---- compare -----------------------------------------------------------------------------------

# result FILE FACTOR [RANKS]: made-up results, whose way takes as much longer
result() {
    awk -v factor="$2" -v ranks="${3-2}" 'BEGIN {
        printf "{\"kind\": \"pairs\", \"format\": 1, \"machine\": {\"processor\": \"X\"}, \"ranks\": %d, ", ranks
        printf "\"settings\": {\"WEFT_CHUNK\": \"%s\"}, \"pairs\": [{\"name\": \"halo\", \"bytes\": 64, ", factor
        printf "\"baseline\": \"a\", \"ways\": [{\"name\": \"b\", \"us\": ["
        for (i = 0; i < 30; i++) printf "%s%f", i ? "," : "", factor * (1 + i % 5 / 100)
        printf "]}], \"baseline_us\": ["
        for (i = 0; i < 30; i++) printf "%s%f", i ? "," : "", 2 + i % 3 / 100
        printf "]}]}\n"
    }' >"$1"
}
name="files are compared"
result a.json 1
result b.json 1.2 3
pairs compare a.json a.json
expect_status 0
expect_in "$out" '1 compared, 0 slower, 0 faster'
pairs compare a.json b.json
expect_status 3
expect_in "$out" '# ranks: 2, then 3'
expect_in "$out" '# WEFT_CHUNK: 1, then 1.2'
grep -qE '^  halo +64 b +1.9[0-9] +1.6[0-9] +0.83 0.8[0-9]..0.8[0-9] +slower$' <<<"$out" || fail "$out"
pairs compare b.json a.json
expect_status 0
expect_in "$out" '0 slower, 1 faster'

name="names in files move no cursor"
sed 's/"halo"/"ha\\u001b[2Jlo"/; s/"b", "us"/"b\\u009b2J", "us"/; s/"X"/"X\\u0007"/' a.json >hostile.json
pairs compare hostile.json hostile.json
expect_in "$out" 'ha\x1b[2Jlo'
expect_in "$out" 'b\xc2\x9b2J'
pairs compare hostile.json a.json
expect_in "$out" '# processor: X\x07, then X'
! grep -q $'[\033\007]' out err || fail "control characters reach the terminal"

name="all pairs are compared"
pairs compare all.json all.json
expect_status 0
wide=$(awk 'length > 80 && length($1) <= 17' out) # longer names make a row longer
[ -z "$wide" ] || fail "more than 80 columns: $wide"
expect_in "$out" ' 0 slower, 0 faster'

name="files that are none"
fails 'no.json' compare a.json no.json
head -c 100 a.json >half.json
fails 'half.json, line 1' compare half.json a.json
: >empty.json
fails 'empty.json' compare a.json empty.json
echo '{"kind": "links", "format": 1}' >links.json
fails 'links.json is no result of weft pairs run --json' compare links.json a.json
sed 's/"format": 1/"format": 2/' a.json >later.json
fails 'later.json has format 2, and this version of weft reads format 1' compare a.json later.json
sed 's/halo/hello/' a.json >hello.json
fails 'have no pair of one size in common' compare a.json hello.json
sed 's/"baseline_us": \[2/"baseline_us": [-2/' a.json >negative.json
fails 'have no pair of one size in common' compare a.json negative.json
sed 's/"settings": {[^}]*}/"settings": [null]/' a.json >list.json
fails 'list.json does not say its machine and settings' compare a.json list.json
sed 's/}$/, "wrong": 7}/' a.json >wrong.json
fails 'wrong.json has 7 wrong results' compare a.json wrong.json
mkfifo fifo.json
fails 'fifo.json is no file that expectations can be kept in' run put -n 2 -p quick --update-expectations --expectations fifo.json

name="files of 50000 pairs are compared in a moment"
awk 'BEGIN { print "{\"kind\":\"pairs\",\"format\":1,\"machine\":{},\"settings\":{},\"wrong\":0,\"pairs\":["
    for (i = 50000; i > 0; i--) printf "{\"name\":\"pair-%d\",\"bytes\":64,\"ways\":[{\"name\":\"fast\"}]},\n", i
    print "{\"name\":\"last\",\"bytes\":64,\"ways\":[{\"name\":\"fast\",\"us\":[1,1,1]}],\"baseline_us\":[2,2,2]}]}" }' >many.json
timeout 30 "$weft" pairs compare many.json many.json >out 2>err </dev/null # a look at every pair for every pair: minutes
status=$?
expect_status 0
expect_in "$(cat out)" "# 1 compared, 0 slower, 0 faster against their baselines; 50000 of A have no"

[ $failures = 0 ] || exit 1
echo "weft pairs: all as it should be"
