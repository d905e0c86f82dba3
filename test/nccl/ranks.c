#include "nccl/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <weft/weft.h>

void expect_(int holds, const char *what, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
        fflush(stderr);
        _Exit(1);
    }
}

void expect_result_(ncclResult_t result, ncclResult_t expected, const char *what, const char *file,
                    int line)
{
    if (result != expected) {
        fprintf(stderr, "%s:%d: %s: %s, not %s (%s)\n", file, line, what,
                ncclGetErrorString(result), ncclGetErrorString(expected), ncclGetLastError(NULL));
        fflush(stderr);
        _Exit(1);
    }
}

void await_stream(cudaStream_t stream)
{
    weft_status_t status = weft_stream_synchronize((weft_stream_h)(void *)stream);
    if (status != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
    }
    EXPECT(status == WEFT_OK);
}

typedef struct task {
    nccl_rank_t rank;
    void (*fn)(nccl_rank_t *rank);
    int bare;
} task_t;

static void *run(void *arg)
{
    task_t *task = arg;
    nccl_rank_t *rank = &task->rank;
    weft_stream_h stream;
    EXPECT(weft_device_set(rank->rank) == WEFT_OK);
    EXPECT(weft_stream_create(&stream) == WEFT_OK);
    rank->stream = (cudaStream_t)(void *)stream;
    if (!task->bare) {
        EXPECT_OK(ncclCommInitRank(&rank->comm, rank->size, rank->id, rank->rank));
    }
    task->fn(rank);
    if (!task->bare && rank->comm) {
        EXPECT_OK(ncclCommDestroy(rank->comm));
    }
    EXPECT(weft_stream_destroy(stream) == WEFT_OK);
    return NULL;
}

static void run_all(int size, void (*fn)(nccl_rank_t *rank), void *arg, int bare)
{
    task_t *tasks = calloc((size_t)size, sizeof(*tasks));
    pthread_t threads[64];
    ncclUniqueId id;
    EXPECT_OK(ncclGetUniqueId(&id));
    for (int i = 0; i < size; i++) {
        tasks[i] = (task_t){.rank = {i, size, NULL, NULL, arg, id}, .fn = fn, .bare = bare};
        EXPECT(pthread_create(&threads[i], NULL, run, &tasks[i]) == 0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
    }
    free(tasks);
}

void run_ranks(int size, void (*fn)(nccl_rank_t *rank), void *arg)
{
    run_all(size, fn, arg, 0);
}

void run_ranks_bare(int size, void (*fn)(nccl_rank_t *rank), void *arg)
{
    run_all(size, fn, arg, 1);
}
