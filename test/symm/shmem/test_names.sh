#!/bin/bash
# The library exports every function that the OpenSHMEM 1.5 specification names, with its profiling twin,
# and none besides those listed here. The list is made from the specification's tables of types and its
# synopses, not from our headers.
set -eu
library=$(readlink -f "$WEFT_BUILD/libweft.so")

# The tables of the specification.
amo="int long longlong uint ulong ulonglong int32 int64 uint32 uint64 size ptrdiff"
amo_extended="float double $amo"
amo_bitwise="uint ulong ulonglong int32 int64 uint32 uint64"
integer="char schar short int long longlong uchar ushort uint ulong ulonglong int8 int16 int32 int64
    uint8 uint16 uint32 uint64 size ptrdiff"
real="float double longdouble"
rma="$integer $real"
wait="short ushort $amo"
sizes="8 16 32 64 128"

each() { # each "TYPES" "SUFFIXES": TYPE_SUFFIX for all of both
    local type suffix
    for type in $1; do
        for suffix in $2; do
            echo "${type}_$suffix"
        done
    done
}

with_context() {
    local name
    while read -r name; do
        echo "$name"
        echo "ctx_$name"
    done
}

all_and_vector="wait_until_all wait_until_any wait_until_some test_all test_any test_some"
all_and_vector="$all_and_vector ${all_and_vector// /_vector }_vector"
names() {
    # set-up, memory, teams, contexts, order, locks
    printf '%s\n' init init_thread query_thread finalize global_exit my_pe n_pes pe_accessible \
        addr_accessible ptr info_get_version info_get_name pcontrol malloc malloc_with_hints calloc \
        align realloc free team_my_pe team_n_pes team_get_config team_translate_pe \
        team_split_strided team_split_2d team_destroy team_create_ctx team_sync ctx_create \
        ctx_destroy ctx_get_team fence quiet ctx_fence ctx_quiet signal_fetch signal_wait_until \
        set_lock test_lock clear_lock barrier_all sync_all
    # remote memory access
    {
        each "$rma" "p g put get put_nbi get_nbi iput iget put_signal put_signal_nbi"
        for size in $sizes; do
            printf '%s\n' "put$size" "get$size" "put${size}_nbi" "get${size}_nbi" "iput$size" \
                "iget$size" "put${size}_signal" "put${size}_signal_nbi"
        done
        printf '%s\n' putmem getmem putmem_nbi getmem_nbi putmem_signal putmem_signal_nbi
    } | with_context
    # atomics
    {
        each "$amo_extended" "atomic_fetch atomic_set atomic_swap atomic_fetch_nbi atomic_swap_nbi"
        each "$amo" "atomic_compare_swap atomic_fetch_inc atomic_inc atomic_fetch_add atomic_add
            atomic_compare_swap_nbi atomic_fetch_inc_nbi atomic_fetch_add_nbi"
        each "$amo_bitwise" "atomic_fetch_and atomic_and atomic_fetch_or atomic_or atomic_fetch_xor
            atomic_xor atomic_fetch_and_nbi atomic_fetch_or_nbi atomic_fetch_xor_nbi"
    } | with_context
    # point-to-point synchronization
    each "$wait" "wait_until test"
    each "$amo" "$all_and_vector"
    # collectives
    each "$rma" "broadcast collect fcollect alltoall alltoalls"
    printf '%s\n' broadcastmem collectmem fcollectmem alltoallmem alltoallsmem
    each "$integer" "and_reduce or_reduce xor_reduce"
    each "$rma" "max_reduce min_reduce"
    each "$rma complexd complexf" "sum_reduce prod_reduce"
    # deprecated
    each "float double int long longlong" "fetch set swap"
    each "int long longlong" "cswap finc fadd inc add"
    each "short int long longlong" "wait and_to_all or_to_all xor_to_all"
    each "short int long longlong $real" "max_to_all min_to_all"
    each "short int long longlong $real complexd complexf" "sum_to_all prod_to_all"
    printf '%s\n' wait wait_until barrier sync
    for size in 32 64; do
        printf '%s\n' "broadcast$size" "collect$size" "fcollect$size" "alltoall$size" "alltoalls$size"
    done
}

# Beyond the specification: one call of 1.6, and deprecated types where programs still use them.
extra() {
    echo team_ptr
    each "short ushort" "$all_and_vector"
    each "ushort $amo" wait
}

expected=$({
    { names && extra; } | sed 's/.*/shmem_&\npshmem_&/'
    printf '%s\n' start_pes _my_pe _num_pes shmalloc shfree shrealloc shmemalign
} | sort -u)
exported=$(nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }' |
    grep -vE '^weft_|^WEFT_' | sort -u)
if [ "$expected" != "$exported" ]; then
    echo "expected (<) and exported (>) differ:"
    diff <(echo "$expected") <(echo "$exported")
fi
[ "$(echo "$expected" | wc -l)" -gt 3000 ] || { echo "the list is too short to be true"; exit 1; }

# All of them are declared, too: a C99 program that takes the address of every one.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    echo '#include <pshmem.h>'
    echo 'typedef void (*any)(void);'
    echo 'any all[] = {'
    # shellcheck disable=SC2086 # a list of names
    printf '    (any)%s,\n' $expected
    echo '};'
    echo 'int main(void) { return all[0] == 0; }'
} >"$work/all.c"
"$WEFT_BUILD/oshcc" -std=c99 -Wall -Wextra -Werror -fsyntax-only "$work/all.c"
