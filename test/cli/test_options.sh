#!/bin/bash
# ctest: timeout=120
# Options of every command: numbers out of range, names with a slip, numbers that contradict a launcher; and
# that each reason of a failure is told once.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
unset WEFT_RANK WEFT_SIZE RANK WORLD_SIZE # of a launcher above us

# try ARGUMENT...: weft with stdout, stderr and status in $out, $err, $status
try() {
    "$weft" "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out)
    err=$(cat err)
}
# refused SENTENCE ARGUMENT...: with this sentence alone
refused() {
    local sentence=$1
    shift
    name="weft $*"
    try "$@"
    expect_status 2
    expect_in "$err" "$sentence"
    [ "$(wc -l <err)" = 1 ] || fail "not one line: $err"
    [ -z "$out" ] || fail "it printed: $out"
}

# numbers COMMAND: its options whose value is a number
numbers() { "$weft" "$1" --help | grep -oE -- '--[a-z0-9-]+ (N|K|R|B|T|STAGE)\b' | cut -d' ' -f1 | grep -v -- --type | sort -u; }

seq 1 200 >text
program() { case $1 in run) echo true ;; esac; }
more() {
    case $1 in
    train) echo --data text --device cpu --dry-run ;;
    generate) echo --from nowhere ;;
    esac
}
tried=0
for command in $("$weft" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    for option in $(numbers "$command"); do
        wrong="1x 99999999999"
        [ "$command $option" = "train --save" ] || wrong="$wrong -1"
        for value in $wrong ''; do
            named=$option
            [ "$option" = --micro-batches ] && named=-- # another name of --accumulate
            refused "weft $command: $named" "$command" $(more "$command") "$option" "$value" $(program "$command")
            tried=$((tried + 1))
        done
    done
done
name="all numbers of all commands"
[ $tried -ge 100 ] || fail "only $tried were tried"

for command in 'bench barrier' topo 'run true'; do
    set -- $command
    refused "weft $1: -n takes a whole number from 1 to" "$1" -n 0 ${2-}
    refused "weft $1: --ranks takes a whole number from 1 to" "$1" --ranks 1000000 ${2-}
done
refused 'weft bench: --repeat takes a whole number from 1 to 64, not "65"' bench barrier --repeat 65
refused 'weft bench: --iters takes a whole number from 1 to' bench barrier --iters 0
refused 'weft bench: --factor must be a number above 1' bench allreduce --factor 0x10
refused 'weft train: --ranks 0 cannot be' train --data text -n 0
refused 'weft generate: -n takes' generate --from nowhere -n 0

# A launcher's number of ranks, as ranks learn it: none has to be installed.
mpi() { env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=options-$$ "$@"; }
torch() { env RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 "$@"; }
slurm() { env SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=$$ "$@"; }
for under in mpi:mpirun torch:torchrun slurm:srun; do
    for command in 'bench barrier' 'train --device cpu --data text'; do
        name="$command -n 4 under ${under#*:}"
        ${under%:*} "$weft" $command -n 4 >out 2>err </dev/null
        status=$?
        err=$(cat err)
        expect_status 2
        expect_in "$err" "weft ${command%% *}: -n 4 contradicts ${under#*:}, which started 2 ranks: leave -n out"
    done
done
name="a rank that is not the first leaves it to that one"
start=${EPOCHREALTIME/[.,]/}
OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$weft" bench barrier -n 4 >out 2>&1 </dev/null
status=$?
out=$(cat out)
expect_status 2
[ -z "$out" ] || fail "$out"
# Such a launcher may end all at the first that exits: the sentence must be out by then.
[ $((${EPOCHREALTIME/[.,]/} - start)) -ge 900000 ] || fail "it does not wait for the first rank's sentence"
name="-n of a configuration file is no contradiction"
echo 'ranks = 4' >config
mpi "$weft" train --device cpu --data text --config config --dry-run >out 2>&1 </dev/null ||
    fail "$? $(cat out)"
grep -q '^ranks *2 on virtual GPUs' out || fail "$(cat out)"

name="each reason is told once"
# told N WORDS: in so many lines, none of them the launcher's account of a rank's last lines
told() {
    [ "$(grep -cF -- "$2" err)" = "$1" ] || fail "'$2' is not told $1 times: $err"
    grep -q 'the last lines' err && fail "lines are repeated: $err"
}
WEFT_DEVICE_MEMORY=1M try bench allreduce -n 4 -b 64M
expect_status 1
told 1 'cannot give 64.00 MiB'
expect_in "$err" "3 of the other ranks failed, and said the same"
WEFT_DEVICE_MEMORY=1M try bench allreduce -n 4 -b 64M --threads
expect_status 1
told 1 'cannot give 64.00 MiB'
WEFT_CUDA_MODULE=/none.so try bench barrier -n 3 --device cuda
expect_status 1
told 1 'cannot be loaded'
WEFT_DEVICE_MEMORY=1M try train --device cpu --data text -n 3 --steps 2 --eval-share 0 --length 8
expect_status 1
told 1 'cannot give'
WEFT_TIMEOUT=abc WEFT_TIMOUT=1 WEFT_LOG=loud try bench barrier -n 2 -i 2
expect_status 0
told 1 'WEFT_TIMEOUT=abc is not'
told 1 'WEFT_TIMOUT is not a setting'
told 1 'WEFT_LOG=loud is not'
WEFT_TIMEOUT=abc WEFT_LOG=loud try run -n 2 "$weft" bench barrier -i 2
expect_status 0
told 1 'WEFT_TIMEOUT=abc is not'
told 1 'WEFT_LOG=loud is not'
WEFT_TIMEOUT=abc try run -n 2 env WEFT_CHUNK=none "$weft" info # what the launcher has not seen is told by ranks
told 1 'WEFT_TIMEOUT=abc is not'
told 2 'WEFT_CHUNK=none is not'
name="what a user's program says is never left out, nor repeated while it can be seen"
try run -n 3 sh -c 'echo "it failed" >&2; exit 4'
expect_status 4
told 3 'it failed'

name="too few descriptors"
(ulimit -n 12 && exec "$weft" run -n 16 true) >out 2>err </dev/null
status=$?
err=$(cat err)
expect_status 1
expect_in "$err" "a process may have 12 here"
expect_in "$err" "ulimit -n"

name="ranks are called weft in ps and top"
"$weft" bench allreduce -n 2 -b 1M -e 1M --iters 1000000 >out 2>&1 </dev/null &
pid=$!
# names: of children that are ranks, as top has them
names() {
    for child in $(cat /proc/$pid/task/$pid/children 2>/dev/null); do
        tr '\0' ' ' <"/proc/$child/cmdline" 2>/dev/null | grep -q '^weft bench allreduce -n 2 ' &&
            cat "/proc/$child/comm" 2>/dev/null
    done
}
end=$((SECONDS + 30))
until [ "$(names | grep -cx weft)" = 2 ]; do
    [ $SECONDS -lt $end ] || { fail "they are $(names | tr '\n' ' ')" && break; }
    sleep 0.05
done
kill -TERM $pid
wait $pid

name="slips of commands and options"
refused "weft: unknown command 'trian'; did you mean 'train'?" trian
refused "weft: unknown command 'x'; weft --help lists them" x
refused "weft: unknown option --versoin; did you mean --version?" --versoin
refused "weft: unknown option -z; weft --help lists what" -z
refused "weft train: unknown option --step; did you mean --steps?" train --step 3
refused "weft bench: unknown option --itres; did you mean --iters?" bench --itres 3
refused "weft topo: unknown option --jsno; did you mean --json?" topo --jsno
refused "weft info: unknown option --xyz; weft info --help lists them" info --xyz
for form in '--version' '-V' 'version' 'bench --version' 'train --version' 'run --version'; do
    name="weft $form"
    try $form
    expect_status 0
    [[ "$out" =~ ^weft\ [0-9]+\.[0-9]+\.[0-9]+ ]] && [ "$(wc -l <out)" = 1 ] || fail "$out"
done
for form in '--help' '-h' 'help' 'help bench' 'bench --help' 'bench -h' 'info -h'; do
    name="weft $form"
    try $form
    expect_status 0
    expect_in "$out" "usage: weft"
    [ -z "$err" ] || fail "$err"
done
refused "weft: unknown command 'trian'; did you mean 'train'?" help trian

name="a sentence of the launcher has one prefix"
(ulimit -n 12 && exec "$weft" links -n 8 --profile quick --device cpu) >out 2>err </dev/null
err=$(cat err)
expect_in "$err" "weft links: cannot make a pipe"
expect_not_in "$err" "weft links: weft links"

# files COMMAND: its options whose value is a file
files() { "$weft" "$1" --help | sed -nE 's/^  (-., |    )(--[a-z0-9-]+) (FILE|PATH)\b.*/\2/p' | sort -u; }
named=0
for command in $("$weft" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    for option in $(files "$command"); do
        # of weft train an empty value takes back what --config says
        [ "$command" = train ] && [ "$option" != --json ] && [ "$option" != --config ] && continue
        refused "weft $command: $option takes the name of a file, not \"\"" "$command" "$option" '' $(program "$command")
        named=$((named + 1))
    done
done
name="files without a name"
[ $named -ge 10 ] || fail "only $named were tried"

for option in '--json x' '-n 2' --threads '--profile quick' '--expectations x' --update-expectations '--capture trace'; do
    set -- $option
    long=${1/#-n/--ranks}
    refused "weft pairs: $long has no use for compare: leave it out" pairs compare a b $option
    [ "$1" = --json ] || refused "weft pairs: $long has no use for list: leave it out" pairs list $option
done
for option in '--data text' '--out run' '-o run' '--tokenizer bytes' '--eval 2' '--eval-data text' '--save 1' '--keep 1' \
    '--max-restarts 1' '--sample 1' '--prompt x' '--tensorboard' '--log 2' '--grace 1' '--resume run'; do
    set -- $option
    refused "weft train: ${1/#-o/--out} has no use, as" train --benchmark --device cpu $option
done

[ $failures = 0 ] || exit 1
echo "options: $tried wrong numbers refused"
