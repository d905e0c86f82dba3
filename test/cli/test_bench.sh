#!/bin/bash
# ctest: timeout=120
# weft bench: one-sided calls, patterns and advice, from the outside; and what it refuses.
set -u
. "$WEFT_SOURCE/test/cli/lib.sh"

# bench ARGUMENT...: weft bench with stdout, stderr and status in $out, $err, $status
bench() {
    "$weft" bench "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    out=$(cat "$work/out")
    err=$(cat "$work/err")
}

expect_rows() { # N: so many rows of numbers, none of them with wrong results
    local rows
    rows=$(grep -cE '^ +([0-9]+|-) .* 0$' <<<"$out")
    [ "$rows" = "$1" ] || fail "$rows good rows, not $1: $out"
}
refused() { # SENTENCE ARGUMENT...
    local sentence=$1
    shift
    bench "$@"
    expect_status 2
    expect_in "$err" "weft bench: $sentence"
    [ -z "$out" ] || fail "it printed a table: $out"
}

name="a name that is not there"
refused 'there is no benchmark "hallo"; did you mean "halo"?' hallo
refused 'there is no benchmark "put_signal"; did you mean "put-signal"?' put_signal
refused 'one benchmark at a time' put get

name="roots other than the first, in place too"
for collective in scatter gather broadcast reduce; do
    bench $collective -n 3 -r 2 -b 64 -e 4K -f 8 --iters 2
    expect_status 0
    expect_in "$out" "wrong elements: 0 (all results verified)"
done

name="a column for copies where there are some"
for pair in put:no handoff:yes; do
    bench ${pair%:*} -n 2 --iters 2 --repeat 2
    expect_status 0
    head=$(grep '^# *bytes' <<<"$out" | head -1)
    [ "${pair#*:}" = "$(grep -q ' copy ' <<<"$head" && echo yes || echo no)" ] || fail "$pair: $head"
done

name="sizes that make no sense"
refused '--min must be at least 1 byte and at most --max' put -b 0
refused '--min must be at least 1 byte and at most --max' put -b 4K -e 1K
refused '--min must be at least 1 byte and at most --max' allreduce -b 128M
refused 'atomic has no sizes: leave --min and --max out' atomic -e 4K
refused 'balance has no sizes' balance -b 8
bench halo -b 3x
expect_status 2
expect_in "$err" '3x'

name="options of collectives"
for option in '--algo ring' --tune '-t f16' '-o max' '-r 1' --explain; do
    refused '--type, --op, --root, --algo, --explain, --graph and --tune are for collectives' put $option
done
refused '--type, --op, --root, --algo, --explain, --graph and --tune are for collectives' --advise --tune

refused '--root is not one of the ranks' broadcast -n 3 -r 3
[ "$(wc -l <"$work/err")" = 1 ] || fail "it is told more than once: $err"

name="too few ranks"
bench handoff -n 1
expect_status 1
expect_in "$err" 'handoff needs 2 ranks or more, and there is 1: give -n 2'
grep -q verified <<<"$out" && fail "nothing was measured, and all was verified: $out"
bench --advise -n 1
expect_status 1
expect_in "$err" 'advice needs 2 ranks or more'

name="a heap larger than the device"
WEFT_DEVICE_MEMORY=64M bench put -b 1G -e 1G
expect_status 1
expect_in "$err" '64'

name="every call and pattern runs, with ranks and sizes that divide nothing"
for what in put get put-signal halo lookup kv put-allgather gemm-column gemm-row param-server \
    async-gradients swap; do
    name="$what"
    bench "$what" -n 3 -b 1003 -e 5000 -f 3 --iters 3 --repeat 1
    expect_status 0
    expect_rows 2
done
for what in handoff:6 gradient-sync:4 compress:6 compress-allreduce:18 quantized:6; do # several ways each
    name="${what%:*}"
    bench "${what%:*}" -n 3 -b 1003 -e 5000 -f 3 --iters 3 --repeat 1
    expect_status 0
    expect_rows "${what#*:}"
done
for what in atomic:4 symm-barrier:1 lock:2 balance:1; do
    name="${what%:*}"
    bench "${what%:*}" -n 3 --iters 3 --repeat 1
    expect_status 0
    expect_rows "${what#*:}"
done

name="ranks that are threads"
bench halo --threads -n 3 -e 1K --iters 3 --repeat 1
expect_status 0
expect_rows 2

name="only --max, below the usual sizes; only --min, above them"
bench kv -n 2 -e 512 --iters 2 --repeat 1
expect_rows 1
bench lookup -n 2 -b 128K --iters 2 --repeat 1
expect_rows 1

name="results as JSON"
bench swap -n 2 -e 16K --iters 2 --repeat 3 --json "$work/swap.json"
expect_status 0
json=$(tr -d ' \n' <"$work/swap.json")
expect_in "$json" '"target":"swap","name":null,"bytes":8192,"other":"broadcast","us":['
expect_in "$json" '"ranks":2,'
expect_in "$json" '"command":["bench","swap","-n","2","-e","16K","--iters","2","--repeat","3","--json",'
expect_in "$json" "\"cpus\":$(getconf _NPROCESSORS_ONLN),"
expect_in "$json" '"WEFT_DEVICE":"cpu"'
expect_in "$json" '"device":"cpu","device_name":"virtualGPU"' # without blanks, as all of it
grep -qE '"processor":"[^"]+"' <<<"$json" || fail "the processor is not named: $json"
expect_in "$out" '2 ranks (processes)'
expect_in "$out" "$(getconf _NPROCESSORS_ONLN) CPUs"
for key in us other_us copy_us; do # three times each, none of them 0
    grep -qE "\"$key\":\[([0-9]*[.0-9]*[1-9][0-9]*,?){3}\]" <<<"$json" || fail "no 3 times in $key: $json"
done
[ "$(grep -o '"target"' <<<"$json" | wc -l)" = 1 ] || fail "not one result: $json"
expect_in "$json" '"wrong":0}],"wrong":0}'
bench swap -n 2 -e 16K --iters 2 --json "$work/no/such/folder.json"
expect_status 1
expect_in "$err" "cannot write $work/no/such/folder.json"
[ "$(wc -l <"$work/err")" = 1 ] || fail "it is told more than once: $err"
bench barrier -n 2 --iters 2 --repeat 1 --json -
expect_status 0
[ "${out:0:1}${out: -1}" = "{}" ] || fail "not JSON alone: $out"
expect_in "$err" "# barrier"
name="every result tells the machine, the settings and the command"
for what in 'allreduce -e 8' barrier 'halo' 'compress -e 1M' 'put -e 8' 'allreduce -e 8 --threads'; do
    WEFT_WARN_AFTER=17 bench $what -n 2 --iters 2 --repeat 1 --json results.json
    expect_status 0
    for part in '"kind":"bench","format":1,"version":' '"commit":' "\"command\":[\"bench\",\"${what%% *}\"," \
        '"machine":{"started":"2' '"processor":' '"ranks":2,' '"device":"cpu"' '"WEFT_WARN_AFTER":"17s"'; do
        tr -d ' \n' <results.json | grep -qF "$part" || fail "$what does not tell $part: $(head -c 300 results.json)"
    done
done
name="a barrier has no bandwidth"
bench barrier -n 2 --iters 2 --repeat 3
expect_status 0
expect_in "$out" "#     time     least      most #wrong"
expect_not_in "$out" "busbw"
expect_not_in "$out" "bus bandwidth"
bench all -n 2 -e 8 --iters 2 --repeat 1
expect_in "$out" "busbw"
expect_in "$out" "average bus bandwidth"

name="a CUDA module that cannot be loaded"
for module in "$work/none.so" "$work/swap.json" "$(ldd "$weft" | grep -o '/[^ ]*libc\.so[^ ]*')"; do
    WEFT_CUDA_MODULE=$module bench barrier -n 2 --iters 2 --device auto
    expect_status 0
    expect_in "$out" "on virtual GPUs, kernels"
    expect_in "$err" "virtual GPUs are used, not real ones"
    expect_in "$err" "$module"
    expect_in "$err" "see WEFT_CUDA_MODULE"
    [ "$(wc -l <<<"$err")" = 1 ] || fail "not told once: $err"
    WEFT_CUDA_MODULE=$module bench barrier -n 2 --iters 2 --device cuda
    expect_in "$err" "see WEFT_CUDA_MODULE"
    [ "$status" != 0 ] || fail "went on without cuda"
done

name="advice for every number of ranks"
bench --advise -n 3 -b 256 -e 1K --iters 2 --repeat 1 --json "$work/advice.json"
expect_status 0
for operation in message 'neighbour exchange' hand-off lookup all-reduce all-gather \
    'sharded update' broadcast; do
    for ranks in 2 3; do
        grep -qE "^$operation +$ranks " <<<"$out" || fail "no advice on $operation, $ranks ranks: $out"
    done
done
json=$(tr -d ' \n' <"$work/advice.json")
expect_in "$json" '{"operation":"all-reduce","other":"all-reduce","ranks":3,"use":"'
[ "$(grep -oE '"ratios":\[\{"bytes":256,"ratio":[^}]+\},\{"bytes":1024,"ratio":[^}]+\}\]' <<<"$json" |
    wc -l)" = 16 ] || fail "not 8 operations with 2 and 3 ranks: $json"

[ $failures -eq 0 ] || exit 1
echo "weft bench: all as it should be"
