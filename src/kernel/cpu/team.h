/* The threads that carry out a kernel together.
 *
 * Every thread that computes has a team of its own, made when it first runs something: itself and
 * size - 1 workers, which sleep while there is nothing to do and end with their thread. So ranks
 * that are threads of one process do not wait for each other's kernels.
 *
 * Work is a number of independent tasks. Each thread starts with its own range of them, the same
 * for the same number of tasks, so that neighbouring rows stay in one core's cache from kernel to
 * kernel; who is done early helps the others. A task must not depend on who runs it: results are
 * then the same however tasks were spread. */
#ifndef WEFT_KERNEL_CPU_TEAM_H
#define WEFT_KERNEL_CPU_TEAM_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

/* `scratch` is as large as was asked for, aligned to 64 bytes, the thread's own, contents
 * undefined. */
typedef void (*weft_task_fn)(const void *arg, int64_t task, void *scratch);

/* Run fn(arg, 0 .. tasks - 1) on the calling thread's team and return when all are done. Fails only
 * without memory for scratch, before the first task. */
weft_status_t weft__team_run(int64_t tasks, size_t scratch, weft_task_fn fn, const void *arg);

/* How many threads the calling thread's team has. */
int weft__team_size(void);

/* Set or ask for the number that weft__compute_threads set for the calling thread; 0: default. */
void weft__team_set(int count);
int weft__team_get(void);

/* Memory of the caller's team for results that tasks share, kept until the next call of this
 * function with more bytes. NULL, with a sentence, if there is none. */
void *weft__team_memory(size_t bytes);

#endif
