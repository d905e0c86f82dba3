/* Does communication work at all? Ranks compute sums and move data of every size class, compare all
 * of it, and tell each other what they are. */
#ifndef WEFT_DOCTOR_TRIAL_H
#define WEFT_DOCTOR_TRIAL_H

#include <weft/weft.h>

#include "base/json.h"
#include "base/json_read.h"
#include "doctor/doctor.h"

/* What a rank says of itself. Fixed size: it travels as bytes. */
typedef struct weft_trial_rank {
    uint64_t host;    /* topo/host.h */
    int64_t clock_us; /* the host's clock, right after a barrier */
    char name[64];    /* of the host */
    char weft[48];    /* version and commit */
    char driver[32];  /* NVIDIA's; "" if there is none */
    char nccl[32];    /* "" if there is none */
} weft_trial_rank_t;

typedef struct weft_trial {
    char backend[16];
    bool threads; /* ranks are threads of one process */
    int ranks;
    int64_t tests, wrong; /* elements compared, and wrong ones, over all ranks */
    char first[64];       /* the first call with wrong ones: "allreduce of 1000 f32" */
    weft_trial_rank_t *list;
} weft_trial_t;

/* Collective; every rank gets the same. `thorough`: larger sizes too. `threads` is told, not
 * found. */
weft_status_t weft__trial_run(weft_comm_h comm, bool threads, bool thorough, weft_trial_t *trial_p);
void weft__trial_free(weft_trial_t *trial);

/* As JSON, inside an object that is open, and back. */
void weft__trial_write(const weft_trial_t *trial, weft_json_t *json);
weft_status_t weft__trial_read(const weft_json_value_t *object, weft_trial_t *trial_p);

/* Keep it with the doctor, which frees it; checks judge it later. */
weft_status_t weft__trial_keep(weft_doctor_t *doctor, const weft_trial_t *trial);

#endif
