/* ctest: timeout=120 serial */
/* weft bench --tune: what it keeps of times that are given, by whom, and what of a failure. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings.h"
#include "bench/tune.h"
#include "comm/cuda/cuda.h"
#include "gpu/gpu.h"

#include <cmocka.h>

enum { LL_FASTER = 8192, NCCL_FASTER = 1 << 20, FAILS_AT = 1 << 16 };

static char file[64];

/* Times of rank 0: LL wins up to LL_FASTER, NCCL from NCCL_FASTER on. For others never. */
typedef struct clock_game {
    weft_comm_h comm;
    bool fails;
    int calls;
} clock_game_t;

static weft_status_t tell_time(void *ctx, size_t bytes, double *us_p)
{
    clock_game_t *game = ctx;
    const weft_cuda_t *cuda = game->comm->ctx;
    bool ll = game->comm->tuner.forced[WEFT_COLL_ALLREDUCE] == WEFT_ALGO_ONESHOT;
    bool nccl = cuda->tune.nccl_min[WEFT_COLL_ALLREDUCE] == 0;
    game->calls++;
    CHECK(!ll || bytes <= weft__cuda_ll_bytes(cuda));
    CHECK(!nccl || cuda->nccl);
    if (game->fails && bytes >= FAILS_AT) {
        return WEFT_ERR_SYSTEM;
    }
    bool first = game->comm->rank == 0;
    *us_p = ll     ? (first && bytes <= LL_FASTER ? 1 : 10)
            : nccl ? (first && bytes >= NCCL_FASTER ? 2 : 20)
                   : 5;
    return WEFT_OK;
}

/* The only line of the file says so. */
static void check_file(const weft_cuda_t *cuda)
{
    char *text, wanted[64];
    uint64_t most = 1;
    for (uint64_t bytes = 1024; bytes <= LL_FASTER && bytes <= weft__cuda_ll_bytes(cuda);
         bytes *= 2) {
        most = bytes;
    }
    CHECK_OK(weft__file_read(file, &text, NULL));
    snprintf(wanted, sizeof(wanted), " allreduce ll %" PRIu64 " nccl %d\n", most,
             cuda->nccl ? NCCL_FASTER : 0);
    CHECK(strstr(text, wanted));
    CHECK_EQ(strchr(text, '\n') - text, (long)strlen(text) - 1);
    free(text);
}

static void tune(team_t *team)
{
    clock_game_t game = {.comm = team->comm};
    weft_cuda_t *cuda = team->comm->ctx;
    weft_algo_t forced = team->comm->tuner.forced[WEFT_COLL_ALLREDUCE];
    uint64_t nccl_min = cuda->tune.nccl_min[WEFT_COLL_ALLREDUCE];
    for (int rank = 0; rank < team->size; rank++) { /* one after the other: who keeps what? */
        if (rank == team->rank) {
            CHECK_OK(weft__bench_tune(team->comm, WEFT_COLL_ALLREDUCE, tell_time, &game));
            CHECK(game.calls >= 17);
            check_file(cuda);
        }
        team_meet(team);
    }
    if (team->rank == 0) {
        unlink(file);
    }
    team_meet(team);
    game.fails = true;
    CHECK_STATUS(weft__bench_tune(team->comm, WEFT_COLL_ALLREDUCE, tell_time, &game),
                 WEFT_ERR_SYSTEM);
    team_meet(team);
    CHECK(access(file, F_OK) != 0);
    CHECK_EQ(team->comm->tuner.forced[WEFT_COLL_ALLREDUCE], forced);
    CHECK_EQ(cuda->tune.nccl_min[WEFT_COLL_ALLREDUCE], nccl_min);
}

static void rank_0_keeps_what_it_measured(void **state)
{
    (void)state;
    if (gpu_virtual()) {
        print_message("virtual GPUs are not tuned, so that this is not run with them\n");
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1}, tune));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_keeps_what_it_measured),
    };
    snprintf(file, sizeof(file), "/tmp/weft-test-tune-%d", (int)getpid());
    gpu_start(argc, argv, false); /* before any setting is read: it says which device */
    weft__settings_set("WEFT_TUNE_FILE", file);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
