/* Calls: the same work, asked for in another way.
 *
 *   small-calls   many all-reduces one by one, in a group, or as a graph that was recorded
 *   registered    an all-reduce of memory of the program's own, registered, or from weft_malloc
 *   pinned        copies to the device and back from memory of malloc, or from weft_host_malloc */
#include <stdlib.h>
#include <string.h>

#include "bench/graph.h"
#include "bench/ways/ways.h"
#include "comm/comm.h"
#include "device/cuda.h"
#include "device/device.h"

/* ---- many small calls ------------------------------------------------------------------- */

#define CALLS 16

typedef struct calls {
    char *src, *dst; /* CALLS blocks of run->bytes */
    float *host;
    void *graph; /* all of them; NULL on virtual GPUs */
} calls_t;

static weft_status_t call_all(const weft_pair_run_t *run)
{
    const calls_t *c = run->ctx;
    for (size_t i = 0; i < CALLS; i++) {
        WEFT_TRY(weft_allreduce(c->src + i * run->bytes, c->dst + i * run->bytes,
                                run->bytes / sizeof(float), WEFT_F32, WEFT_SUM, run->comm,
                                run->stream));
    }
    return WEFT_OK;
}

static weft_status_t record(weft_pair_run_t *run)
{
    calls_t *c = run->ctx;
    WEFT_TRY(call_all(run)); /* what is to be loaded and mapped is, before it is recorded */
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_barrier(run->comm, NULL));
    WEFT_TRY(weft__bench_record(run->stream));
    weft_status_t status = call_all(run);
    weft_status_t ended = weft__bench_recorded(run->stream, &c->graph);
    return status == WEFT_OK ? ended : status;
}

static weft_status_t open_calls(weft_pair_run_t *run)
{
    calls_t *c;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*c), (void **)&c));
    WEFT_TRY(weft__pair_device(run, CALLS * run->bytes, (void **)&c->src));
    WEFT_TRY(weft__pair_device(run, CALLS * run->bytes, (void **)&c->dst));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&c->host));
    WEFT_TRY(weft_memset(c->src, 0, CALLS * run->bytes, NULL));
    return run->stream ? record(run) : WEFT_OK;
}

static void close_calls(weft_pair_run_t *run)
{
    calls_t *c = run->ctx;
    if (c->graph) {
        weft__bench_forget(c->graph, run->stream);
    }
}

static weft_status_t one_by_one(weft_pair_run_t *run, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(call_all(run));
    }
    return WEFT_OK;
}

static weft_status_t grouped(weft_pair_run_t *run, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_group_start());
        weft_status_t status = call_all(run);
        weft_status_t ended = weft_group_end();
        WEFT_TRY(status == WEFT_OK ? ended : status);
    }
    return WEFT_OK;
}

static weft_status_t as_graph(weft_pair_run_t *run, int rounds)
{
    const calls_t *c = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft__bench_replay(c->graph, run->stream));
    }
    return WEFT_OK;
}

static const char *no_graph(const weft_pair_run_t *run)
{
    return run->stream ? NULL : "graphs need a GPU";
}

static weft_status_t check_calls(weft_pair_run_t *run, size_t *wrong_p)
{
    calls_t *c = run->ctx;
    for (int way = 0; way < (run->stream ? 3 : 2); way++) {
        uint64_t first = run->seed + 1;
        for (size_t i = 0; i < CALLS; i++) {
            WEFT_TRY(weft__ways_fill(run, c->src + i * run->bytes, c->host, first + i));
        }
        run->seed += CALLS;
        WEFT_TRY(weft_memset(c->dst, 0xFF, CALLS * run->bytes, NULL));
        WEFT_TRY(run->pair->ways[way].loop(run, 1));
        for (size_t i = 0; i < CALLS; i++) {
            WEFT_TRY(
                weft__ways_compare(run, c->dst + i * run->bytes, c->host, first + i, -1, wrong_p));
        }
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_small_calls = {
    .target = "small-calls",
    .group = "calls",
    .text = "16 all-reduces of so many bytes each",
    .ways = {{"one by one", one_by_one}, {"grouped", grouped}, {"graph", as_graph}},
    .absent = {[2] = no_graph},
    .min = 64,
    .max = 64 << 10,
    .unit = 4,
    .ranks = 2,
    .gpu = true,
    .open = open_calls,
    .close = close_calls,
    .check = check_calls,
};

/* ---- whose memory ----------------------------------------------------------------------- */

#define MEMORY_MOST (16 << 20)

typedef struct memory {
    char *buffers[3]; /* by way: source and destination, behind each other */
    float *host;
} memory_t;

/* Memory of the GPU that is not Weft's: as much as any size needs, once, and for good. It cannot be
 * freed while a communicator is open (weft_register in weft/device.h), and there always is one. */
static weft_status_t gpu_memory(const weft_pair_run_t *run, int way, char **memory_p)
{
    static _Thread_local void *kept[2];
    int gpu = weft__cuda_gpu(run->comm->device);
    if (!kept[way]) {
        WEFT_TRY(weft__cuda_status(weft__cuda()->alloc(gpu, &kept[way], 2 * MEMORY_MOST),
                                   "memory of the GPU"));
        if (way == 1) {
            WEFT_TRY(weft_register(kept[way], 2 * MEMORY_MOST));
        }
    }
    *memory_p = kept[way];
    return WEFT_OK;
}

static weft_status_t open_memory(weft_pair_run_t *run)
{
    memory_t *m;
    size_t bytes = 2 * run->bytes;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*m), (void **)&m));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&m->host));
    if (run->stream && run->bytes > MEMORY_MOST) {
        return weft__fail(WEFT_ERR_INVALID, "registered takes %d bytes at most on GPUs",
                          MEMORY_MOST);
    }
    for (int way = 0; way < 2; way++) {
        WEFT_TRY(run->stream ? gpu_memory(run, way, &m->buffers[way])
                             : weft__pair_private(run, bytes, (void **)&m->buffers[way]));
    }
    WEFT_TRY(weft__pair_device(run, bytes, (void **)&m->buffers[2]));
    for (int way = 0; way < 3; way++) {
        WEFT_TRY(weft_memset(m->buffers[way], 0, bytes, NULL));
    }
    return WEFT_OK;
}

static weft_status_t sum_in(const weft_pair_run_t *run, int way, int rounds)
{
    const memory_t *m = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_allreduce(m->buffers[way], m->buffers[way] + run->bytes,
                                run->bytes / sizeof(float), WEFT_F32, WEFT_SUM, run->comm,
                                run->stream));
    }
    return WEFT_OK;
}

static weft_status_t plain(weft_pair_run_t *run, int rounds)
{
    return sum_in(run, 0, rounds);
}

static weft_status_t registered(weft_pair_run_t *run, int rounds)
{
    return sum_in(run, 1, rounds);
}

static weft_status_t from_pool(weft_pair_run_t *run, int rounds)
{
    return sum_in(run, 2, rounds);
}

static const char *no_registering(const weft_pair_run_t *run)
{
    return run->stream ? NULL : "on virtual GPUs registering changes nothing";
}

static weft_status_t check_memory(weft_pair_run_t *run, size_t *wrong_p)
{
    memory_t *m = run->ctx;
    for (int way = 0; way < 3; way++) {
        WEFT_TRY(weft__ways_fill(run, m->buffers[way], m->host, ++run->seed));
        WEFT_TRY(weft_memset(m->buffers[way] + run->bytes, 0xFF, run->bytes, NULL));
        WEFT_TRY(sum_in(run, way, 1));
        WEFT_TRY(
            weft__ways_compare(run, m->buffers[way] + run->bytes, m->host, run->seed, -1, wrong_p));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_registered = {
    .target = "registered",
    .group = "calls",
    .text = "an all-reduce of memory of the program's own, registered, or from weft_malloc",
    .ways = {{"plain", plain}, {"registered", registered}, {"weft_malloc", from_pool}},
    .absent = {[1] = no_registering},
    .min = 4 << 10,
    .max = MEMORY_MOST,
    .unit = 4,
    .ranks = 2,
    .gpu = true,
    .open = open_memory,
    .check = check_memory,
};

/* ---- pinned memory ---------------------------------------------------------------------- */

typedef struct pinned {
    float *device;
    float *hosts[2]; /* by way */
} pinned_t;

static weft_status_t open_pinned(weft_pair_run_t *run)
{
    pinned_t *p;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*p), (void **)&p));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&p->device));
    WEFT_TRY(weft__pair_private(run, run->bytes, (void **)&p->hosts[0]));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&p->hosts[1]));
    memset(p->hosts[1], 0, run->bytes);
    return weft_memset(p->device, 0, run->bytes, NULL);
}

static weft_status_t there_and_back(const weft_pair_run_t *run, int way, int rounds)
{
    const pinned_t *p = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_memcpy(p->device, p->hosts[way], run->bytes, run->stream));
        WEFT_TRY(weft_memcpy(p->hosts[way], p->device, run->bytes, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t pageable(weft_pair_run_t *run, int rounds)
{
    return there_and_back(run, 0, rounds);
}

static weft_status_t pinned(weft_pair_run_t *run, int rounds)
{
    return there_and_back(run, 1, rounds);
}

static weft_status_t check_pinned(weft_pair_run_t *run, size_t *wrong_p)
{
    pinned_t *p = run->ctx;
    size_t count = run->bytes / sizeof(float);
    for (int way = 0; way < 2; way++) {
        weft__pair_fill(p->hosts[way], ++run->seed, run->rank, count);
        WEFT_TRY(weft_memset(p->device, 0xFF, run->bytes, NULL));
        WEFT_TRY(weft_memcpy(p->device, p->hosts[way], run->bytes, run->stream));
        WEFT_TRY(weft__pair_settle(run));
        memset(p->hosts[way], 0xFF, run->bytes);
        WEFT_TRY(weft_memcpy(p->hosts[way], p->device, run->bytes, run->stream));
        WEFT_TRY(weft__pair_settle(run));
        for (size_t i = 0; i < count; i++) {
            *wrong_p += p->hosts[way][i] != weft__pair_value(run->seed, run->rank, i);
        }
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_pinned = {
    .target = "pinned",
    .group = "calls",
    .text = "a copy to the device and back; on virtual GPUs all memory is alike",
    .ways = {{"pageable", pageable}, {"pinned", pinned}},
    .min = 4 << 10,
    .max = 64 << 20,
    .unit = 4,
    .gpu = true,
    .open = open_pinned,
    .check = check_pinned,
};
