/* Algorithms of all-reduce, forced one by one: each has a communicator of its own. */
#include "bench/ways/ways.h"

typedef struct algorithms {
    float *src, *dst, *host;
    weft_comm_h comms[WEFT_PAIR_WAYS]; /* by way */
} algorithms_t;

static weft_status_t open_with(weft_pair_run_t *run, const char *const *names, int count)
{
    algorithms_t *a;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*a), (void **)&a));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&a->src));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&a->dst));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&a->host));
    WEFT_TRY(weft_memset(a->src, 0, run->bytes, NULL));
    for (int i = 0; i < count; i++) {
        weft_comm_config_t config = WEFT_COMM_CONFIG_INIT;
        config.algo = names[i];
        WEFT_TRY(weft_comm_split(run->comm, 0, run->rank, &a->comms[i], &config));
    }
    return WEFT_OK;
}

static weft_status_t open_algorithms(weft_pair_run_t *run)
{
    static const char *const names[] = {"allreduce:ring", "allreduce:tree", "allreduce:direct"};
    return open_with(run, names, 3);
}

static weft_status_t open_one_shot(weft_pair_run_t *run)
{
    static const char *const names[] = {"allreduce:direct", "allreduce:oneshot"};
    return open_with(run, names, 2);
}

static void close_algorithms(weft_pair_run_t *run)
{
    algorithms_t *a = run->ctx;
    for (int i = 0; i < WEFT_PAIR_WAYS; i++) {
        weft_comm_destroy(a->comms[i]);
    }
}

static weft_status_t sum_by(weft_pair_run_t *run, int rounds, int way)
{
    const algorithms_t *a = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_allreduce(a->src, a->dst, run->bytes / sizeof(float), WEFT_F32, WEFT_SUM,
                                a->comms[way], run->stream));
    }
    return WEFT_OK;
}

static weft_status_t by_first(weft_pair_run_t *run, int rounds)
{
    return sum_by(run, rounds, 0);
}

static weft_status_t by_second(weft_pair_run_t *run, int rounds)
{
    return sum_by(run, rounds, 1);
}

static weft_status_t by_third(weft_pair_run_t *run, int rounds)
{
    return sum_by(run, rounds, 2);
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    algorithms_t *a = run->ctx;
    for (int way = 0; way < weft__pair_ways(run->pair); way++) {
        WEFT_TRY(weft__ways_fill(run, a->src, a->host, ++run->seed));
        WEFT_TRY(weft_memset(a->dst, 0xFF, run->bytes, NULL));
        WEFT_TRY(run->pair->ways[way].loop(run, 1));
        WEFT_TRY(weft__ways_compare(run, a->dst, a->host, run->seed, -1, wrong_p));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_algorithms = {
    .target = "algorithms",
    .group = "links",
    .text = "an all-reduce by a forced algorithm; which is best depends on the size",
    .ways = {{"ring", by_first}, {"tree", by_second}, {"direct", by_third}},
    .min = 1 << 10,
    .max = 16 << 20,
    .unit = 4,
    .ranks = 2,
    .open = open_algorithms,
    .close = close_algorithms,
    .check = check,
};

const weft_pair_t weft__pair_one_shot = {
    .target = "one-shot",
    .group = "links",
    .text = "a small all-reduce: data behind its announcement, or together with it",
    .ways = {{"direct", by_first}, {"one-shot", by_second}},
    .min = 64,
    .max = 16 << 10,
    .unit = 4,
    .ranks = 2,
    .gpu = true,
    .open = open_one_shot,
    .close = close_algorithms,
    .check = check,
};
