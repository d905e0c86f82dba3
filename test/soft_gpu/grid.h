/* Grids of threads on a CPU, for kernels that were written for a GPU.
 *
 * Every block has a thread of the operating system, and its GPU threads take turns on it, each with
 * a stack of its own. One runs until it ends or has to wait: at a barrier, in a warp's exchange, or
 * because what it polls for is not there. So blocks run side by side, of one grid and of several,
 * as those of a GPU that holds all of them do. */
#ifndef WEFT_TEST_SOFT_GPU_GRID_H
#define WEFT_TEST_SOFT_GPU_GRID_H

#include <cstdint>
#include <functional>

struct soft_dim {
    unsigned x;
};

/* What a GPU thread knows of its place. */
struct soft_place {
    soft_dim thread, block, threads, blocks;
};

/* Run the kernel with all threads of all blocks; returns when they have ended. */
void soft_run_grid(unsigned blocks, unsigned threads, const std::function<void()> &kernel);

/* ---- for kernels -------------------------------------------------------------------------- */

/* Of the thread that runs. */
extern __thread const soft_place *soft_self;

static inline const soft_place &soft_here()
{
    return *soft_self;
}

/* All threads of the block that have not ended. */
void soft_sync_block();

/* All 32 threads of a warp give a value; each gets that of lane `from`, or whether any is not 0. */
uint64_t soft_shuffle(uint64_t value, unsigned from);
bool soft_any(bool value);

/* What is polled for is not there: let others go on. */
void soft_poll();

#endif
