#!/bin/bash
# ctest: timeout=60 plain
# weft run --as-nccl: a program that is linked with another libnccl.so.2 runs on Weft's; and Weft's own
# use of NCCL does not load itself. Labelled plain: a sanitizer would have to be loaded first.
. "$WEFT_SOURCE/test/cli/lib.sh" || exit 1
err=

# A library of that name that can do nothing, for the program to be linked with.
cat >other.c <<'END'
int ncclGetVersion(int *version) { return *version = 1, 0; }
int ncclGetUniqueId(void *id) { return (void)id, 3; }
int ncclCommInitRank(void) { return 3; }
int ncclAllReduce(void) { return 3; }
int ncclCommDestroy(void) { return 3; }
const char *ncclGetLastError(void *comm) { return (void)comm, "the other library"; }
END
mkdir other
cc -shared -fPIC -Wl,-soname,libnccl.so.2 other.c -o other/libnccl.so.2 || exit 1

cat >prog.c <<'END'
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank = atoi(getenv("RANK")), size = atoi(getenv("WORLD_SIZE")), version = 0;
    ncclUniqueId id;
    ncclComm_t comm;
    float x = (float)(rank + 1);
    char part[200];
    ncclGetVersion(&version);
    if (argc < 2) {
        return printf("version %d\n", version) < 0;
    }
    snprintf(part, sizeof(part), "%s.part", argv[1]);
    if (rank == 0) { /* the id goes through a file */
        FILE *file = fopen(part, "w");
        if (ncclGetUniqueId(&id) || !file || fwrite(&id, sizeof(id), 1, file) != 1) {
            return fprintf(stderr, "%s\n", ncclGetLastError(NULL)), 1;
        }
        fclose(file);
        rename(part, argv[1]);
    }
    FILE *file = NULL;
    while (!(file = fopen(argv[1], "r"))) {
        usleep(1000);
    }
    if (fread(&id, sizeof(id), 1, file) != 1) {
        return 1;
    }
    fclose(file);
    if (ncclCommInitRank(&comm, size, id, rank) || ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, NULL)) {
        return fprintf(stderr, "%s\n", ncclGetLastError(NULL)), 1;
    }
    printf("sum %g\n", x);
    return ncclCommDestroy(comm);
}
END
cc -I"$WEFT_SOURCE/include/weft/nccl" prog.c -o prog -Lother -l:libnccl.so.2 -Wl,-rpath,"$PWD/other" || exit 1

name="without it, the other library"
expect_in "$(RANK=0 WORLD_SIZE=1 ./prog)" "version 1"

name="with it, Weft's"
for size in 1 3; do
    rm -f id
    out=$("$weft" run --as-nccl -n $size ./prog id 2>&1)
    status=$?
    expect_status 0
    [ "$(grep -c "sum $((size * (size + 1) / 2))\$" <<<"$out")" = $size ] || fail "$size ranks: $out"
done

name="times of calls are reported"
rm -f id
out=$(WEFT_NCCL_REPORT=report "$weft" run --as-nccl -n 2 ./prog id 2>&1)
status=$?
expect_status 0
for rank in 0 1; do
    grep -qE "^  AllReduce +7 +1 " report/summary-$rank.txt || fail "no all-reduce of 4 bytes: $(cat report/*)"
    [ "$(grep -c '"ph":"X"' report/trace-$rank.json)" = 1 ] && grep -q '"AllReduce".*"bytes":4}' report/trace-$rank.json ||
        fail "the trace: $(cat report/trace-$rank.json)"
    "$weft" report report/trace-$rank.json -o page.html >said 2>&1 || fail "no trace: $(cat said)"
done
rm -f id
out=$(WEFT_NCCL_REPORT=/dev/null/x "$weft" run --as-nccl -n 1 ./prog id 2>&1)
status=$?
expect_status 0
expect_in "$out" "cannot make /dev/null/x"

name="beside what is preloaded already"
out=$(LD_PRELOAD=$PWD/other/libnccl.so.2 "$weft" run --as-nccl -n 1 ./prog 2>&1)
expect_in "$out" "version 23203"

name="a rank that fails ends the job"
cat >differ.sh <<'END'
[ "$RANK" = 1 ] && exit 7
exec ./prog id
END
rm -f id
out=$("$weft" run --as-nccl -n 2 sh differ.sh 2>&1)
status=$?
expect_status 7

name="Weft does not take its own library for NVIDIA's"
library=$WEFT_BUILD/nccl/libnccl.so.2
expect_in "$(WEFT_NCCL=$library "$weft" info 2>&1)" "Weft's own library"

[ $failures = 0 ] || exit 1
