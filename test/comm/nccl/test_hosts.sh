#!/bin/bash
# ctest: timeout=120 plain waits
# Jobs on several hosts, as launchers describe them to their ranks: rank 0 serves the store over TCP, and
# NCCL does the rest. All hosts are this one here, so what is seen is how ranks find each other.
set -u
# shellcheck source=test/comm/nccl/over_nccl.sh
. "$(dirname "$0")/over_nccl.sh"
program=$WEFT_BUILD/examples/01-allreduce
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
port=$((20000 + RANDOM % 10000))
export WEFT_TIMEOUT=20

fail() {
    echo "FAILED: $1"
    cat "$work"/out.*
    failures=$((failures + 1))
}

# expect NAME RANKS TEXT: each rank printed TEXT (%: its number) and ended with `status` (0 or 1)
expect() {
    local rank
    for ((rank = 0; rank < $2; rank++)); do
        if [ "$(cat "$work/status.$rank")" != "$status" ] || ! grep -qF -- "${3//%/$rank}" "$work/out.$rank"; then
            fail "$1, rank $rank"
            return
        fi
    done
    echo "$1: $2 ranks"
}

# start RANKS FUNCTION: a process per rank, in an environment made by FUNCTION RANK RANKS
start() {
    local rank
    rm -f "$work"/out.* "$work"/status.*
    for ((rank = 0; rank < $1; rank++)); do
        (
            "$2" "$rank" "$1"
            timeout 60 "$program" >"$work/out.$rank" 2>&1
            echo $? >"$work/status.$rank"
        ) &
    done
    wait
}

torchrun() { # two ranks a host
    export RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$(($1 % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
}
slurm() { # one rank a host
    export SLURM_PROCID=$1 SLURM_NTASKS=$2 SLURM_LOCALID=0 SLURM_NODEID=$1 SLURM_JOB_ID=$((port + 1))
    export SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE="1(x$2)" SLURM_STEP_NODELIST='127.0.0.[1-4]'
}
mpich() {
    export PMI_RANK=$1 PMI_SIZE=$2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1
}
mpich_told() {
    mpich "$@"
    export WEFT_MASTER_ADDR=localhost WEFT_MASTER_PORT=$((port + 2)) WEFT_SECRET=0123456789abcdef0123456789abcdef
}
strangers() { # one of them does not know the secret
    torchrun "$@"
    export WEFT_SECRET=0123456789abcdef0123456789abcde$(($1 / 3))
}
one_without_nccl() {
    torchrun "$@"
    [ "$1" != 1 ] || export WEFT_NCCL=/no/libnccl.so.2
}
undecided() { # hosts that look like one to us, as containers may
    torchrun "$@"
    export WEFT_ENGINE=auto WEFT_NCCL=/no/libnccl.so.2
}
elsewhere() { # rank 0 is not where they are told
    torchrun "$@"
    export MASTER_ADDR=192.0.2.1 WEFT_TIMEOUT=2
}
virtual() {
    torchrun "$@"
    export WEFT_DEVICE=cpu
}

status=0
start 4 torchrun && expect torchrun 4 "rank % of 4: the sum of all ranks is 6"
start 3 slurm && expect slurm 3 "rank % of 3: the sum of all ranks is 3"
start 2 mpich_told && expect "MPICH, told where" 2 "rank % of 2: the sum of all ranks is 1"
status=1
start 2 mpich && expect "MPICH, told nothing" 2 "set WEFT_MASTER_ADDR to its host, alike on all ranks"
start 4 virtual && expect "virtual GPUs" 4 "2 of 4 ranks are on this host; ranks on several hosts need GPUs"
start 4 undecided && expect "without WEFT_ENGINE" 4 "NCCL cannot be loaded"
port=$((port + 3))
start 4 elsewhere
grep -qE "192.0.2.1 port [0-9]+.*; rank 0 serves it on host .*WEFT_MASTER_ADDR must name that" "$work/out.0" ||
    fail "rank 0 elsewhere"
# Rank 0, which serves the store, hears of it and ends; the others still get to know why.
for ((i = 0; i < 5; i++)); do
    port=$((port + 3)) SECONDS=0
    start 4 one_without_nccl && expect "one rank without NCCL" 4 "NCCL cannot be loaded"
    [ $SECONDS -lt 18 ] || fail "that took $SECONDS s"
done
# Rank 0 is killed while the others wait for it.
program=$WEFT_BUILD/test/comm/nccl/lose_rank_0
port=$((port + 3)) SECONDS=0
start 4 torchrun
echo 1 >"$work/status.0" && echo "rank 0" >"$work/out.0"
expect "rank 0 is killed" 4 "rank 0"
[ $SECONDS -lt 18 ] || fail "that took $SECONDS s"
program=$WEFT_BUILD/examples/01-allreduce
port=$((port + 3)) WEFT_TIMEOUT=5
start 4 strangers
grep -qF "our secret is not the job's" "$work/out.3" || fail "a wrong secret"
exit $((failures > 0))
