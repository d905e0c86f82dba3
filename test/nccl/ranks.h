/* Ranks as threads of a test that speaks NCCL's interface alone, as a program of somebody else's
 * does. */
#ifndef TEST_NCCL_RANKS_H
#define TEST_NCCL_RANKS_H

#include <weft/nccl/nccl.h>

typedef struct nccl_rank {
    int rank, size;
    ncclComm_t comm;
    cudaStream_t stream;
    void *arg;
    ncclUniqueId id;
} nccl_rank_t;

/* Run fn on `size` threads, each with a communicator and a stream, and destroy both. A failed
 * expectation ends the program. */
void run_ranks(int size, void (*fn)(nccl_rank_t *rank), void *arg);

/* The same without a communicator: fn finds the id of one in rank->id. */
void run_ranks_bare(int size, void (*fn)(nccl_rank_t *rank), void *arg);

void expect_(int holds, const char *what, const char *file, int line);
#define EXPECT(condition) expect_(condition, #condition, __FILE__, __LINE__)

/* EXPECT that a call of NCCL's returns `result`, and print its sentence if not. */
void expect_result_(ncclResult_t result, ncclResult_t expected, const char *what, const char *file,
                    int line);
#define EXPECT_RESULT(call, result) expect_result_(call, result, #call, __FILE__, __LINE__)
#define EXPECT_OK(call) EXPECT_RESULT(call, ncclSuccess)

/* Wait for what is queued on the stream. */
void await_stream(cudaStream_t stream);

#endif
