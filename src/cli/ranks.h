/* The ranks of a command that measures: threads of this process, processes that it starts itself,
 * or those of the launcher that started it (weft run, mpirun, torchrun, srun).
 *
 *     const weft_ranks_t ranks = {.name = "weft links", .ranks = 8, .typed = typed,
 *                                 .prepare = read_machine, .run = measure, .ctx = &options};
 *     return weft__ranks_run(&ranks);
 */
#ifndef WEFT_CLI_RANKS_H
#define WEFT_CLI_RANKS_H

#include <stdbool.h>

#include <weft/weft.h>

#include "base/output.h"

typedef struct weft_ranks {
    const char *name; /* "weft bench"; begins every sentence */
    int ranks;        /* to start, unless a launcher did */
    int asked;        /* -n of the command line, which must fit a launcher's; 0: none */
    bool threads;     /* of this process */
    bool bind;        /* processes that are started are bound to cores */
    const char *algo; /* forced on the communicator; NULL: the tuner chooses */
    /* Files that are written, or must not be: two that are the same are wrong use; before ranks are
     * started, one that cannot be written is a failure. The first without an option ends them. */
    weft_output_name_t outputs[4];
    char **typed; /* the command line from the command's own name on, ended by NULL */

    /* Optional. Before ranks are started, by the process that starts them: what every rank would
     * find, and say. 0, or the exit status. */
    int (*look_ahead)(void *ctx);

    /* Optional. In the process of rank 0, before ranks are at work: reading the machine, say. */
    void (*prepare)(void *ctx);

    /* Required, called by every rank. *exit_p is 0 before: the exit status of the command if all
     * went well. It must be the same on all ranks: 1 for wrong results, 2 for wrong use, 3 for a
     * problem that was found. */
    weft_status_t (*run)(void *ctx, weft_comm_h comm, int *exit_p);
    void *ctx;
} weft_ranks_t;

/* Returns the exit status of the command; what went wrong has been said. */
int weft__ranks_run(const weft_ranks_t *ranks);

#endif
