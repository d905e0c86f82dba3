#!/bin/bash
# ctest: timeout=900 soak plain
# Random lives: jobs train, benchmark and use OpenSHMEM while random ranks and launchers are killed, stopped,
# continued and signalled and the disk fills up and empties. A training job is started again until it has ended;
# its weights must then have the bits of the run that nobody disturbed.
#
# LIVES_SECONDS says how long (30), LIVES_SEED with which decisions (1). The same seed
# decides the same again, though the moments at which things happen are the machine's.
#
# What must hold, whatever happens:
#   - status 0 only when the job is complete, or when it was asked to end and says which checkpoint it wrote;
#   - any other status has a sentence beside it, unless the launcher itself was killed, or hit by a signal so early
#     that it did not catch it yet (oshrun is a shell script until it becomes weft run);
#   - a job ends: after 10 minutes it hangs;
#   - a job that nobody disturbs does not fail, whatever happened to the jobs before it;
#   - no process and no temporary file outlives a job. (All shared memory is anonymous, and ends with them.)
set -u
: "${WEFT_BIN:?}" "${WEFT_BUILD:?}"
seconds=${LIVES_SECONDS:-30}
seed=${LIVES_SEED:-1}
RANDOM=$((seed % 32768))
work=$(mktemp -d)
failures=0
lives=0 attempts=0 blows=0
life="" # LIVES_JOB of the processes of this attempt
export XDG_CACHE_HOME=$work/cache TMPDIR=$work/tmp
mkdir "$work/tmp" "$work/disk" "$work/keep"
cd "$work" || exit 1

# Into $picked, not to stdout: a subshell has random numbers of its own, which no seed decides.
pick() { # pick WORD...: one of them
    shift "$((RANDOM % $#))"
    picked=$1
}
nap() {
    local hundredths
    printf -v hundredths %02d "$((RANDOM % ${1:-40}))"
    sleep "0.$hundredths"
}

# ---- the disk --------------------------------------------------------------------------------------------

small_disk=""
if mount -t tmpfs -o size=10m lives "$work/disk" 2>/dev/null; then
    small_disk=yes
else
    echo "disks are not filled: this user may not mount a small one"
fi
clean_up() {
    kill_members
    if [ -n "$small_disk" ]; then
        umount "$work/disk"
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

fill_disk() { dd if=/dev/zero of="$work/disk/filler" bs=64K 2>/dev/null; }
free_disk() { rm -f "$work/disk/filler"; }

# ---- processes of a job ----------------------------------------------------------------------------------

# The processes of this attempt: all inherit its mark.
members() {
    [ -n "$life" ] || return 0
    grep -slzx "LIVES_JOB=$life" /proc/[0-9]*/environ | sed 's,/proc/\([0-9]*\)/.*,\1,'
}

kill_members() {
    local pid
    for pid in $(members); do
        kill -KILL "$pid" 2>/dev/null
    done
}

fail() {
    echo "FAILED: seed $seed, $what, attempt $life: $*"
    echo "  command: ${command[*]}"
    echo "  blows: ${log:-none}"
    tail -n 20 "$work/err" | sed 's/^/  | /'
    failures=$((failures + 1))
}

# Nothing outlives a job. What the launcher's guard has to end when the launcher was killed may take a moment.
expect_gone() {
    local left="" i
    for ((i = 0; i < 100; i++)); do
        left=$(members)
        [ -n "$left" ] || break
        sleep 0.1
    done
    if [ -n "$left" ]; then
        fail "processes are left: $(for pid in $left; do tr '\0' ' ' <"/proc/$pid/cmdline"; done)"
        kill_members
    fi
    left=$(ls -A "$TMPDIR")
    if [ -n "$left" ]; then
        fail "temporary files are left: $left"
        rm -rf "${TMPDIR:?}"/*
    fi
}

# Does it catch SIGTERM? By a handler, or through a descriptor. Before it becomes weft it is a shell, whose handlers
# do not count.
hears() {
    [ "/proc/$1/exe" -ef "$WEFT_BIN" ] &&
        awk '/^Sig(Cgt|Blk)/ { if (index("4567cdef", substr($2, 13, 1))) found = 1 } END { exit !found }' "/proc/$1/status"
}

# ---- blows -----------------------------------------------------------------------------------------------

# One thing that happens to the job of process $1; $2 are the kinds that may.
blow() {
    local launcher=$1 kind victims victim
    # shellcheck disable=SC2086 # words
    pick $2
    kind=$picked
    mapfile -t victims < <(members | grep -vx "$launcher")
    victim=$launcher
    if [ ${#victims[@]} -gt 0 ]; then
        victim=${victims[RANDOM % ${#victims[@]}]}
    elif [ "$kind" = kill ] || [ "$kind" = stop-and-term ]; then
        kind=$kind-launcher # a job of one rank has no other
    fi
    case $kind in
    kill) kill -KILL "$victim" ;;
    stop) kill -STOP "$victim" && nap 90 && kill -CONT "$victim" ;;
    kill-launcher) kill -KILL "$launcher" ;;
    stop-and-term-launcher)
        hears "$launcher" || log+=" early"
        kill -STOP "$launcher" && kill -TERM "$launcher" && nap 90 && kill -CONT "$launcher"
        asked=TERM
        ;;
    stop-launcher) kill -STOP "$launcher" && nap 90 && kill -CONT "$launcher" ;;
    TERM | INT | HUP)
        hears "$launcher" || log+=" early"
        kill "-$kind" "$launcher"
        asked=$kind
        ;;
    stop-and-term) # nobody tells the launcher which of its ranks does not hear
        hears "$launcher" || log+=" early"
        kill -STOP "$victim" && kill -TERM "$launcher"
        asked=TERM
        ;;
    disk) fill_disk && nap 99 && free_disk ;;
    esac 2>/dev/null
    blows=$((blows + 1))
    log+=" $kind"
    touched=yes
}

# attempt KINDS COUNT COMMAND...: run it, with up to COUNT blows of KINDS; sets status, asked, touched, log
attempt() {
    local kinds=$1 count=$2 launcher
    shift 2
    command=("$@")
    attempts=$((attempts + 1))
    life=$seed.$attempts
    asked="" touched="" log=""
    LIVES_JOB=$life "$@" >out 2>err </dev/null &
    launcher=$!
    while ((count-- > 0)); do
        nap
        kill -0 "$launcher" 2>/dev/null || break
        blow "$launcher" "$kinds"
    done
    local tenths=0
    while kill -0 "$launcher" 2>/dev/null; do
        if ((++tenths > 6000)); then
            fail "it has not ended after 10 minutes: $(ps -o pid,stat,wchan,cmd -p "$(members | paste -sd,)")"
            kill_members
            break
        fi
        sleep 0.1
    done
    wait "$launcher" 2>/dev/null
    status=$?
    free_disk
    if [ "$status" != 0 ] && [ -z "$touched" ]; then
        fail "status $status, though nothing was done to it"
    fi
    if [ "$status" != 0 ] && [ ! -s err ] && [[ $log != *kill-launcher* && $log != *early* ]]; then
        fail "status $status without a sentence"
    fi
    expect_gone
}

# ---- training --------------------------------------------------------------------------------------------

seq 1 2000 | awk '{ print "line " $1 " of " $1 % 7 ": the quick brown fox counts " $1 * 13 % 101 }' >text
cat >gpt2.json <<'J'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 4, "n_embd": 32,
 "n_head": 4, "n_positions": 32, "vocab_size": 257, "activation_function": "gelu_new"}
J
plans=("-n 1" "-n 2" "-n 3 --batch 12" "-n 4" "-n 2 --tp 2" "-n 2 --pp 2 --micro-batches 2" "-n 2 --zero 1"
    "-n 2 --zero 3" "-n 4 --tp 2 --zero 2" "-n 4 --pp 2 --zero 3 --micro-batches 2" "-n 2 --precision bf16"
    "-n 2 --accumulate 2 --dropout 0.1" "-n 2 --compress bf16" "-n 2 --zero 2 --offload optimizer" "-n 1 --precision fp16"
    "-n 2 --compress int8" "-n 2 --zero 1 --compress int8" "-n 4 --tp 2 --compress int8")

bits_of() { # of a run's last checkpoint
    (cd "$1/latest" && sha256sum ./*.safetensors | tr '\n' ' ')
}
last_of() { readlink "$1/latest" 2>/dev/null; }

# expect_metrics DIR STEPS: every step is there, once, in order
expect_metrics() {
    local differ
    differ=$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$1/metrics.jsonl" | diff - <(seq 1 "$2")) ||
        fail "the steps in metrics.jsonl are not 1 to $2: $(head -n 6 <<<"$differ")"
}

# What a training job that ended with status 0 must have done.
check_ended_well() {
    local last number
    last=$(last_of "$run")
    [ "$last" != "$end" ] || return 0
    if [ -z "$asked" ]; then
        fail "status 0 at ${last:-no checkpoint}, not at $end"
        return
    fi
    number=$(sed -n 's/.*stopped after step \([0-9]*\).*/\1/p' err)
    [ "$last" = "$(printf 'step-%06d' "${number:-0}")" ] ||
        fail "status 0 after SIG$asked, and the last checkpoint is ${last:-none}: $(cat err)"
}

train_life() {
    local plan=${plans[RANDOM % ${#plans[@]}]} steps=$((40 + RANDOM % 160)) save=$((1 + RANDOM % 20)) tries
    local kinds="kill kill stop TERM INT HUP kill-launcher stop-launcher stop-and-term"
    [ -z "$small_disk" ] || kinds+=" disk disk"
    end=$(printf 'step-%06d' "$steps")
    run=disk/run
    # shellcheck disable=SC2206 # words
    local train=("$WEFT_BIN" train --device cpu --model ./gpt2.json --data text --length 32 --batch 8 --lr 3e-3
        --log 1000 --steps "$steps" --save "$save" --keep 2 --seed "$RANDOM" $plan)
    what="train $plan, $steps steps"
    rm -rf keep/run disk/run
    attempt none 0 "${train[@]}" --out keep/run
    [ "$status" = 0 ] || return
    for ((tries = 1; ; tries++)); do
        local count=$((tries < 8 ? 1 + RANDOM % 4 : 0))
        attempt "$kinds" "$count" "${train[@]}" --out "$run" --resume auto --max-restarts $((RANDOM % 3))
        if [ "$status" = 0 ]; then
            check_ended_well
        fi
        if [ "$(last_of "$run")" = "$end" ] && [ "$status" = 0 ]; then
            break
        fi
        if [ "$tries" -ge 12 ]; then
            fail "it does not come to its end"
            return
        fi
    done
    [ "$(bits_of keep/run)" = "$(bits_of "$run")" ] || fail "the weights differ from those of an undisturbed run"
    expect_metrics "$run" "$steps"
    compgen -G "$run/.step*" && fail "an unfinished checkpoint is left: $(ls -A "$run")"
}

# ---- other jobs ------------------------------------------------------------------------------------------

# Blows of one kind only: stopped and continued ranks must not change the result, a killed one must be told.
# $1: what a complete run prints; "": it prints nothing.
other_life() {
    local done=$1 kinds
    shift
    pick "stop stop-launcher" "kill" "TERM" "kill-launcher"
    kinds=$picked
    attempt "$kinds" $((1 + RANDOM % 3)) "$@"
    if [ "$status" = 0 ] && [ -n "$done" ] && ! grep -q "$done" out; then
        fail "status 0, but '$done' is not in its output: $(tail -n 3 out)"
    fi
    if [ "$status" != 0 ] && [[ $kinds == stop* ]]; then
        fail "status $status, though ranks were only stopped and continued"
    fi
}

bench_life() {
    local ranks=$((2 + RANDOM % 4)) name
    pick allreduce alltoall reduce_scatter broadcast sendrecv put get put-signal halo
    name=$picked
    what="bench $name -n $ranks"
    other_life "verified)" "$WEFT_BIN" bench "$name" -n "$ranks" -e 256K --device cpu --repeat 2
}

shmem_life() {
    local name pes=$((1 + RANDOM % 5))
    pick rma amo wait memory team
    name=$picked
    what="pe_$name on $pes PEs"
    other_life "" "$WEFT_BUILD/oshrun" -np "$pes" "$WEFT_BUILD/test/symm/shmem/pe_$name"
}

# ---- until time is up -------------------------------------------------------------------------------------

echo "seed $seed, $seconds s"
exec 2>/dev/null # the shell tells of every process that was killed
until ((SECONDS >= seconds || failures >= 5)); do
    case $((RANDOM % 4)) in
    0) bench_life ;;
    1) shmem_life ;;
    *) train_life ;;
    esac
    lives=$((lives + 1))
done
echo "$lives lives, $attempts jobs, $blows blows, $failures failures"
[ "$failures" -eq 0 ]
