#!/bin/bash
# oshcc, oshc++ and oshrun work from the build tree, as compilers and launchers of OpenSHMEM do; a
# program runs without a launcher; a profiler's own shmem_X is called in place of ours.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$WEFT_BUILD:$PATH
sanitize=$(sed -n 's/^WEFT_SANITIZE:STRING=\(.\+\)$/-fsanitize=\1/p' "$WEFT_BUILD/CMakeCache.txt")

cat >"$work/hello.c" <<'C'
#include <mpp/shmem.h>
#include <stdio.h>
static int from = -1;
int main(int argc, char **argv)
{
    start_pes(0);
    shmem_int_p(&from, _my_pe(), (_my_pe() + 1) % _num_pes());
    shmem_barrier_all();
    printf("PE %d of %d, next to %d, %s\n", shmem_my_pe(), shmem_n_pes(), from, argv[argc - 1]);
    return 0;
}
C
cat >"$work/generic.c" <<'C'
#include <shmem.h>
static long x;
static double y[3];
int main(void)
{
    shmem_init();
    shmem_atomic_inc(&x, 0);
    shmem_p(SHMEM_CTX_DEFAULT, &y[1], 2.0, shmem_my_pe());
    shmem_sync(SHMEM_TEAM_WORLD);
    int bad = shmem_g(&x, 0) != shmem_n_pes() || y[1] != 2.0;
    shmem_finalize();
    return bad;
}
C
cat >"$work/plus.cc" <<'C'
#include <shmem.h>
static std::complex<double> from(1, 2), to;
int main()
{
    shmem_init();
    shmem_complexd_sum_reduce(SHMEM_TEAM_WORLD, &to, &from, 1);
    bool good = to == std::complex<double>(shmem_n_pes(), 2 * shmem_n_pes());
    shmem_finalize();
    return good ? 0 : 1;
}
C
cat >"$work/tool.c" <<'C'
#include <pshmem.h>
#include <stdio.h>
static int calls;
void shmem_long_p(long *dest, long value, int pe)
{
    calls++;
    pshmem_long_p(dest, value, pe);
}
static long x;
int main(void)
{
    shmem_init();
    shmem_long_p(&x, 5, 0);
    shmem_barrier_all();
    printf("%d call, %ld\n", calls, shmem_long_g(&x, 0));
    shmem_finalize();
    return 0;
}
C

# shellcheck disable=SC2086 # nothing, or one option
{
    oshcc -std=c99 -Wall -Werror $sanitize -c "$work/hello.c" -o "$work/hello.o"
    oshcc $sanitize "$work/hello.o" -o "$work/hello"
    oshcc -std=c11 -Wall -Wextra -Werror -pedantic $sanitize "$work/generic.c" -o "$work/generic"
    oshc++ -std=c++11 -Wall -Werror $sanitize "$work/plus.cc" -o "$work/plus"
    oshcc $sanitize -DSHMEM_NO_GENERIC "$work/tool.c" -o "$work/tool"
}
oshcc --showme a.c | grep -q -- '-I.*include a.c -L.* -lweft$' || { echo "--showme"; exit 1; }

same() { # same WHAT A B
    [ "$2" = "$3" ] || { printf '%s:\n%s\nnot:\n%s\n' "$1" "$2" "$3"; exit 1; }
}
oshcc -showme:compile | grep -qx -- '-I.*include' || { echo "-showme:compile"; exit 1; }
oshcc -showme:link | grep -qx -- '-L.* -lweft' || { echo "-showme:link"; exit 1; }
oshcc --version >/dev/null # links nothing
oshcc -v 2>/dev/null

for option in -np -n; do
    same "oshrun $option" "$(oshrun $option 3 "$work/hello" -np | sort)" "PE 0 of 3, next to 2, -np
PE 1 of 3, next to 0, -np
PE 2 of 3, next to 1, -np"
done
same "no launcher" "$("$work/hello" alone)" "PE 0 of 1, next to 0, alone"
oshrun -np 4 "$work/generic"
oshrun -np 3 "$work/plus"
same profiling "$(oshrun -np 1 "$work/tool")" "1 call, 5"

# variables of the specification
SHMEM_VERSION=1 "$work/hello" x | grep -q 'OpenSHMEM 1.5' || { echo SHMEM_VERSION; exit 1; }
SMA_SYMMETRIC_SIZE=3.1M SHMEM_INFO=1 "$work/hello" x | grep -q 'now 3.1M (3250586)' ||
    { echo SHMEM_INFO; exit 1; }
SHMEM_DEBUG=1 "$work/hello" x 2>&1 | grep -q 'heap of 536870912 bytes' || { echo SHMEM_DEBUG; exit 1; }
same "one word" "$(oshrun -np2 "$work/hello" x | wc -l) $(oshrun --np=2 "$work/hello" x | wc -l)" "2 2"
cat >"$work/wrong.c" <<'C'
#include <shmem.h>
#include <stdio.h>
int main(void)
{
    shmem_init();
    shmem_barrier_all();
    if (shmem_my_pe() == 2) {
        fprintf(stderr, "PE 2 has a wrong result\n");
        shmem_global_exit(5);
    }
    shmem_barrier_all();
    return 0;
}
C
oshcc $sanitize -o "$work/wrong" "$work/wrong.c"
for try in 1 2 3; do
    status=0
    oshrun -np 4 "$work/wrong" 2>"$work/err" || status=$?
    same "status of a PE that ends all" $status 5
    grep -q '^oshrun: PE 2 (pid [0-9]*) exited with status 5' "$work/err" || { echo "another was blamed:"; cat "$work/err"; exit 1; }
    ! grep -q 'weft run\|rank' "$work/err" || { echo "not the words of oshrun:"; cat "$work/err"; exit 1; }
done
status=0
oshrun -np 2 --nope "$work/hello" 2>"$work/err" || status=$?
same "status of a wrong option" $status 2
grep -q "^oshrun: " "$work/err" || { cat "$work/err"; exit 1; }
status=0
oshrun -np 0 "$work/hello" 2>"$work/err" || status=$?
same "status of no PEs" $status 2
grep -q "^oshrun: " "$work/err" || { cat "$work/err"; exit 1; }
oshrun --version | grep -q '^weft ' || { echo "oshrun --version"; exit 1; }
status=0
oshrun "$work/hello" 2>/dev/null || status=$?
same "status of oshrun without -np" $status 2
