/* The training loop of one rank.
 *
 * A step: fetch tokens, and have a worker (parallel/worker.h) do forward and backward over the
 * micro-batches, exchange of gradients, norm and clip, AdamW. The host only queues work; what it
 * must know about a step (loss, norm) it reads while the next one runs, so a GPU never waits for
 * it. Every step all ranks tell each other their losses, whether somebody wants to stop, and the
 * norm of their gradients, which must be the same everywhere: a rank whose memory or arithmetic
 * went wrong is named.
 *
 * The loss curve depends on the seed, the data and the global batch, and not on the number of ranks
 * but for rounding. A run that is resumed goes on bit for bit as if it had not been stopped. */
#ifndef WEFT_TRAIN_LOOP_H
#define WEFT_TRAIN_LOOP_H

#include <stdio.h>

#include <weft/comm.h>

#include "train/setup.h"

typedef struct weft_train_result {
    uint64_t step; /* steps done, those before a resume included */
    double loss;   /* of the last one, over all ranks */
    double eval_loss;
    int signal;     /* of weft__train_interrupt, here or on another rank; 0: it was not called */
    uint64_t saved; /* rank 0: the last step of which this run has written a checkpoint; 0: none */
    bool diverged;  /* its numbers are not finite, and would not be the next time */
    bool told;      /* all ranks failed for the same reason: one sentence is enough */
} weft_train_result_t;

/* Train as `setup` says, with the ranks of `comm`; collective. Rank 0 writes: progress to `out`
 * (NULL: none), metrics and checkpoints to the run folder. The setup's data is opened here.
 * Failures: a rank that died, a disk that is full, a loss that is not a number; the sentence says
 * which. The communicator should then be aborted, so that ranks that do not know yet learn it. */
weft_status_t weft__train_run(weft_setup_t *setup, weft_comm_h comm, FILE *out,
                              weft_train_result_t *result_p);

/* Ask for a stop, because of this signal: the step under way is finished, a checkpoint is written
 * if there is a run folder. One rank is enough. *text_p then says that ("finishing step 7, ..."),
 * on rank 0; NULL the second time. false if no step has begun yet, so that there is nothing to
 * finish. For signal handlers. */
bool weft__train_interrupt(int signal, const char **text_p);

#endif
