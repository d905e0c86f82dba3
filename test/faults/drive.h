/* What the parts of the driver of faults share: paths, points, and how one ended. */
#ifndef WEFT_TEST_FAULTS_DRIVE_H
#define WEFT_TEST_FAULTS_DRIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "faults/faults.h"

#define MOST_ARGS 48
#define TEXT_BYTES 65536

/* One thing that Weft does, in seconds, as a command. */
typedef struct {
    const char *name;
    const char *who; /* processes to strike, in words: "launcher 0 1" */
    const char *args[MOST_ARGS];
    bool trains;  /* into a run folder: judged by its checkpoints, not by what it prints */
    bool resumes; /* the folder has a checkpoint of step 2 at first */
    char *expected, *listing; /* of an undisturbed run: its lines, sorted, and its files */
} path_t;

typedef struct {
    const path_t *path;
    const char *who, *how;
    int op, k; /* op < 0: nothing fails */
} point_t;

/* What a command did. */
typedef struct {
    int status;     /* as a shell's: 128 + signal */
    bool hung;      /* it reached the limit */
    bool struck;    /* the fault itself killed it */
    char left[512]; /* processes that it left, in words; "": none */
    double seconds;
    char out[TEXT_BYTES], err[TEXT_BYTES];
} ended_t;

extern const char *const fault_op_names[FAULT_OP_COUNT];

/* run.c: a folder for runs, entered, perhaps in memory: fsync is most of the time of a short run;
 * what runs there, and with which fault (NULL: with none). */
void fault_folder(const char *path, bool in_memory);
void fault_command(const char *const *args, const point_t *fault, fault_state_t *state_p,
                   ended_t *ended);
/* Whether /dev/shm is our own, and empty when nothing is left behind. */
bool fault_own_shm(void);

/* judge.c: try `point`, and say into `why` (of `size` bytes) what is wrong with how it ended; true:
 * nothing. *fired_p: it was reached. state_p: counts. */
bool fault_try(const point_t *point, fault_state_t *state_p, bool *fired_p, double *seconds_p,
               char *why, size_t size);
/* Undisturbed runs, which others are compared with; false, with a sentence on stderr: they fail. */
bool fault_reference(path_t *path);

#endif
