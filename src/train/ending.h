/* How a run ends before its last step: a signal asks for it, and the ranks agree on it.
 *
 * A signal only sets a flag. Ranks tell each other with the statistics of every step whether theirs
 * is set (weft_step_stats_t), and after what comes between steps: validation, text, a checkpoint.
 * On virtual GPUs a step is over when it has been queued, so the one under way when the signal
 * comes is the last: at most one step passes, or whatever was going on between two. On GPUs the
 * host is a step ahead, so it may be two. Then the state is saved.
 *
 * How long that may take follows from what it took so far. Rank 0 tells the launcher, which kills
 * nobody before; after every time that was longer it says so again. */
#ifndef WEFT_TRAIN_ENDING_H
#define WEFT_TRAIN_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "train/config.h"

typedef struct weft_ending {
    const weft_train_config_t *config;
    bool reports; /* rank 0: to the launcher, and in sentences */
    bool saves;   /* there is a run folder, and checkpoints are wanted */
    int steps;    /* that may pass after a signal, at most */
    uint64_t looked_ns;
    double longest; /* seconds between two looks whether to end; 0: there was only one */
    double saving;  /* seconds that a checkpoint took, at most; until there is one, a guess */
    double asked;   /* seconds that the launcher was asked for */
} weft_ending_t;

/* Steps begin with this one, counted from 1: signals are from now on for weft__train_interrupt.
 * `weights`: of the model. */
void weft__ending_begin(weft_ending_t *ending, uint64_t step, uint64_t weights);
/* This step, counted from 1, begins. */
void weft__ending_step(weft_ending_t *ending, uint64_t step);
/* All steps are done, and what is left is being written. */
void weft__ending_finish(weft_ending_t *ending);

/* The signal that asked this rank to end; 0: none did. */
int weft__ending_signal(void);
/* The ranks have told each other: note how long that had not happened. */
void weft__ending_looked(weft_ending_t *ending);
/* A checkpoint took so long, from the moment the loop began to wait for it. */
void weft__ending_saved(weft_ending_t *ending, double seconds);

#endif
