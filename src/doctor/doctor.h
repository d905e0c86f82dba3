/* Looking for what makes a machine, a job's environment or a run slow or wrong, and saying how to
 * fix it. Nothing is changed, and no rights are needed beyond the user's.
 *
 *     weft_doctor_t doctor;
 *     weft__doctor_init(&doctor, &asked);       where to look; tests give a folder in place of /
 *     weft__doctor_look(&doctor);               runs the checks of its level (checks.h)
 *     weft__doctor_print(&doctor, verbose, stdout);
 *     weft__doctor_cleanup(&doctor);
 *
 * What the kernel tells is read below `root`, variables come from `environment`, GPUs from `gpus`;
 * the few facts that only a call can tell are in weft_doctor_facts_t. So every check can be given a
 * machine that we do not have. */
#ifndef WEFT_DOCTOR_DOCTOR_H
#define WEFT_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <weft/status.h>

#include "base/json.h"
#include "topo/gpu.h"

/* How long it may look: quick under a second, standard under a minute. */
typedef enum weft_doctor_level {
    WEFT_DOCTOR_QUICK,
    WEFT_DOCTOR_STANDARD,
    WEFT_DOCTOR_THOROUGH
} weft_doctor_level_t;

typedef enum weft_finding_level {
    WEFT_FINDING_OK,
    WEFT_FINDING_NOTE,    /* worth knowing; nothing has to be done */
    WEFT_FINDING_WARNING, /* costs time, or fails under conditions */
    WEFT_FINDING_ERROR    /* does not work */
} weft_finding_level_t;

/* Texts belong to the doctor. `evidence`, `cost` and `fix` are "" where there is none. */
typedef struct weft_finding {
    const char *check, *subject;
    weft_finding_level_t level;
    bool skipped; /* OK, because there was nothing to look at: `evidence` says why */
    const char *what, *evidence, *cost, *fix;
} weft_finding_t;

/* A line for the shell: export NAME=VALUE, and why. */
typedef struct weft_doctor_export {
    const char *name, *value, *why;
} weft_doctor_export_t;

/* What only calls can tell. -1: unknown, or not asked. */
typedef struct weft_doctor_facts {
    int64_t shm_bytes, shm_free; /* of /dev/shm */
    int clock_synchronised;      /* 1, 0 */
    int name_resolves;           /* 1, 0: the own host name, by the resolver */
    int module_cuda;             /* the CUDA module was built with; 13000: 13.0; 0: no module */
    const char *nccl;            /* "2.27.3"; "": there is none; NULL: unknown */
    const char *host;            /* own name; NULL: unknown */
} weft_doctor_facts_t;

#define WEFT_DOCTOR_CPUS 4096 /* most CPUs that are told apart */
#define WEFT_DOCTOR_WORDS (WEFT_DOCTOR_CPUS / (8 * (int)sizeof(unsigned long)))

/* The CPUs as the kernel describes them; 0 where it does not. */
typedef struct weft_doctor_cpus {
    unsigned long online[WEFT_DOCTOR_WORDS], allowed[WEFT_DOCTOR_WORDS];
    int online_count, allowed_count;
    int online_cores, allowed_cores; /* with CPUs that are online, that this process may use */
    int nodes;                       /* NUMA nodes with CPUs */
    bool launchers;                  /* `allowed` is the launcher's, which bound this rank */
} weft_doctor_cpus_t;

struct weft_doctor_run; /* run.h */
struct weft_trial;      /* trial.h */

/* Where to look. */
typedef struct weft_doctor_asked {
    const char *root;         /* put before /proc and /sys: "" for the real ones */
    char *const *environment; /* NAME=VALUE, ended by NULL */
    weft_doctor_level_t level;
    int ranks;         /* that a job is to have on this host; 0: as many as fit */
    int hosts;         /* that a job is to have */
    int launcher;      /* the process that started this one as a rank of its job; 0: none did */
    const char *run;   /* a run folder; NULL: none */
    const char *self;  /* the program `weft`, to start ranks with; NULL: none are started */
    bool machine;      /* look at the machine, and not at the run alone */
    weft_gpus_t *gpus; /* with their health */
    weft_doctor_facts_t facts;
} weft_doctor_asked_t;

typedef struct weft_doctor {
    weft_doctor_asked_t asked;
    int ranks;    /* asked.ranks, or as many as fit */
    bool on_gpus; /* ranks use GPUs */
    weft_doctor_cpus_t cpus;
    struct weft_doctor_run *run;
    struct weft_trial *trials; /* of backends that worked */
    int trial_count;

    weft_finding_t *findings;
    int count, room;
    weft_doctor_export_t *exports;
    int export_count, export_room;
    char **texts; /* owned */
    int text_count, text_room;
    bool no_memory;
    const char *check, *subject; /* that is at work */
} weft_doctor_t;

/* Reads what most checks need. `asked` and what it points to must outlive it; on failure there is
 * nothing to clean up. WEFT_ERR_NOT_FOUND or WEFT_ERR_INVALID with a sentence if `run` is no run
 * folder. */
weft_status_t weft__doctor_init(weft_doctor_t *doctor, const weft_doctor_asked_t *asked);
void weft__doctor_cleanup(weft_doctor_t *doctor);

/* Run the checks of its level, then collect the lines to export. WEFT_ERR_NO_MEMORY. */
weft_status_t weft__doctor_look(weft_doctor_t *doctor);

int weft__doctor_count(const weft_doctor_t *doctor, weft_finding_level_t level);

/* ---- for people and for machines ------------------------------------------------------------ */

void weft__doctor_print(const weft_doctor_t *doctor, bool verbose, FILE *out);
void weft__doctor_print_exports(const weft_doctor_t *doctor, FILE *out);

/* Every check there is: name, level, what it looks at. */
void weft__doctor_list(FILE *out);

/* "findings": [...], "exports": [...] of the object that is open. */
void weft__doctor_json(const weft_doctor_t *doctor, weft_json_t *json);

/* "quick", "standard", "thorough"; false if it is none of them. */
bool weft__doctor_level(const char *word, weft_doctor_level_t *level_p);

/* The word of level i; NULL after the last. */
const char *weft__doctor_level_word(int i);

#endif
