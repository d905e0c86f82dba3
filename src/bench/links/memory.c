/* Memory side by side: of the device, of a peer, of the host.
 *
 *   write   from the device's memory into it
 *   read    from it into the device's memory
 *   copy    from one place in it to another
 *
 * by the rank that owns the device, alone at work. Of the device's own memory all three are the
 * same copy, which stands once. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/median.h"
#include "bench/links/expected.h"
#include "bench/links/judge.h"
#include "comm/comm.h"
#include "device/device.h"

#define LOOP_NS 1e6
#define LOOP_MOST 64
#define REPEATS_MOST 16

enum { LOCAL_COPY, PEER_COPY, PEER_READ, PEER_WRITE, HOST_COPY, HOST_READ, HOST_WRITE };

static const char *const names[WEFT_LINKS_MEMORY][2] = {
    [LOCAL_COPY] = {"local", "copy"}, [PEER_COPY] = {"peer", "copy"},
    [PEER_READ] = {"peer", "read"},   [PEER_WRITE] = {"peer", "write"},
    [HOST_COPY] = {"host", "copy"},   [HOST_READ] = {"host", "read"},
    [HOST_WRITE] = {"host", "write"},
};

typedef struct memory {
    size_t bytes;
    int repeats;
    char *device[2], *host[2], *peer[2]; /* peer: NULL if ranks exchange messages, or is alone */
    double gbs[WEFT_LINKS_MEMORY];       /* 0: not measured */
} memory_t;

static void ends_of(const memory_t *memory, int row, char **dst_p, char **src_p)
{
    char *const ends[WEFT_LINKS_MEMORY][2] = {
        [LOCAL_COPY] = {memory->device[1], memory->device[0]},
        [PEER_COPY] = {memory->peer[1], memory->peer[0]},
        [PEER_READ] = {memory->device[1], memory->peer[0]},
        [PEER_WRITE] = {memory->peer[0], memory->device[0]},
        [HOST_COPY] = {memory->host[1], memory->host[0]},
        [HOST_READ] = {memory->device[1], memory->host[0]},
        [HOST_WRITE] = {memory->host[0], memory->device[0]},
    };
    *dst_p = ends[row][0];
    *src_p = ends[row][1];
}

/* The median of loops; the best of them is what a quiet machine does, and no more honest. */
static weft_status_t measure_row(weft_links_run_t *run, memory_t *memory, int row)
{
    char *dst, *src;
    double ns, loops[REPEATS_MOST];
    int repeats = memory->repeats > REPEATS_MOST ? REPEATS_MOST : memory->repeats;
    ends_of(memory, row, &dst, &src);
    if (!dst || !src) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__links_copy(run, dst, src, memory->bytes, 1, &ns));
    WEFT_TRY(weft__links_copy(run, dst, src, memory->bytes, 2, &ns));
    double fit = ns > 0 ? LOOP_NS / ns : LOOP_MOST;
    int iters = fit < 1 ? 1 : fit > LOOP_MOST ? LOOP_MOST : (int)fit;
    for (int i = 0; i < repeats; i++) {
        WEFT_TRY(weft__links_copy(run, dst, src, memory->bytes, iters, &loops[i]));
    }
    memory->gbs[row] = (double)memory->bytes / weft__median(loops, (size_t)repeats);
    return WEFT_OK;
}

/* Buffers live as long as a rank's turn: with many ranks there is not room for all of them. */
static weft_status_t allocate(weft_links_run_t *run, memory_t *memory)
{
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft_malloc((void **)&memory->device[i], memory->bytes));
        WEFT_TRY(weft_host_malloc((void **)&memory->host[i], memory->bytes));
        memset(memory->host[i], i + 1, memory->bytes);
        WEFT_TRY(weft_memset(memory->device[i], i + 1, memory->bytes, NULL));
        if (run->symm && run->size > 1) {
            memory->peer[i] = weft_symm_ptr(run->symm, run->dst + (size_t)i * memory->bytes,
                                            (run->rank + 1) % run->size);
        }
    }
    return WEFT_OK;
}

static weft_status_t measure_rank(weft_links_run_t *run, const weft_links_step_t *step)
{
    memory_t *memory = step->ctx;
    weft_status_t status = allocate(run, memory);
    for (int row = 0; row < WEFT_LINKS_MEMORY && status == WEFT_OK; row++) {
        status = measure_row(run, memory, row);
    }
    for (int i = 0; i < 2; i++) {
        weft_free(memory->device[i]);
        weft_host_free(memory->host[i]);
    }
    return status;
}

/* What copies between this rank's GPU and the host should reach; 0: not known. */
static double expected_of_host(const weft_links_run_t *run)
{
    const weft_gpus_t *gpus = &run->links->gpus;
    int index = run->stream ? weft__gpu_of_rank(gpus, run->comm->device) : -1;
    if (index < 0) {
        return 0;
    }
    const weft_gpu_t *gpu = &gpus->gpus[index];
    return weft__link_expected(WEFT_LINK_PCIE, gpu->pcie_generation_max, gpu->pcie_width_max, NULL);
}

/* all: [rank][row], and what the host's row should reach */
static void sum_up(const weft_links_run_t *run, const double *all, double *room,
                   weft_links_results_t *results)
{
    const size_t columns = WEFT_LINKS_MEMORY + 1;
    for (int row = 0; row < WEFT_LINKS_MEMORY; row++) {
        weft_links_memory_t *out = &results->memory[results->memories];
        int least = 0;
        for (int rank = 0; rank < run->size; rank++) {
            room[rank] = all[(size_t)rank * columns + (size_t)row];
            least = room[rank] < room[least] ? rank : least;
        }
        if (room[least] <= 0) {
            continue;
        }
        *out = (weft_links_memory_t){names[row][0], names[row][1], 0, room[least], least, 0};
        if (row == HOST_READ || row == HOST_WRITE) {
            out->expected_gbs = all[(size_t)least * columns + WEFT_LINKS_MEMORY];
        }
        out->gbs = weft__median(room, (size_t)run->size);
        results->memories++;
    }
}

weft_status_t weft__links_memory(weft_links_run_t *run, int repeats, weft_links_results_t *results)
{
    const size_t columns = WEFT_LINKS_MEMORY + 1;
    memory_t memory = {.bytes = run->slots / 2 * run->bytes, .repeats = repeats};
    double mine[WEFT_LINKS_MEMORY + 1];
    double *all = calloc((columns + 1) * (size_t)run->size, sizeof(*all));
    weft_status_t status = all ? weft__links_meet(run)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                                            run->size);
    for (int rank = 0; rank < run->size && status == WEFT_OK; rank++) {
        weft_links_step_t step = {rank, -1,           rank + 1 < run->size ? rank + 1 : -1,
                                  0,    measure_rank, &memory};
        status = weft__links_step(run, &step);
    }
    memcpy(mine, memory.gbs, sizeof(memory.gbs));
    mine[WEFT_LINKS_MEMORY] = expected_of_host(run);
    status = status == WEFT_OK ? weft__links_gather(run, mine, all, sizeof(mine)) : status;
    if (status == WEFT_OK) {
        sum_up(run, all, all + columns * (size_t)run->size, results);
    }
    free(all);
    return status;
}
