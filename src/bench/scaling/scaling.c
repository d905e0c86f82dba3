/* How training scales: see bench/scaling.h. */
#include "bench/scaling.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "bench/samples.h"
#include "bench/scaling/points.h"

typedef struct run {
    const weft_scaling_t *scaling;
    weft_comm_h comm;
    int rank, size, number;
    weft_points_t points;
    weft_points_t tried; /* remedies, behind what they are for */
    weft_result_t result;
} run_t;

static weft_status_t open_result(run_t *run)
{
    weft_result_head_t head = weft__samples_head(run->size, false);
    head.kind = "scaling";
    head.path = run->scaling->json;
    head.command = run->scaling->command;
    head.machine = &run->scaling->base->machine;
    WEFT_TRY(weft__result_open(&run->result, &head));
    weft__samples_print_head(&head);
    fflush(stdout);
    return WEFT_OK;
}

/* The point of all ranks in which communication takes the largest share, if that is above the
 * limit; -1: there is none. */
static int32_t find_worst(const run_t *run, bool other_plan)
{
    int32_t index = -1;
    double most = run->scaling->limit;
    for (int i = 0; i < run->points.count; i++) {
        const weft_point_t *point = &run->points.list[i];
        double share = weft__point_communication(point);
        if (share > most && point->ranks == run->size && point->other_plan == other_plan) {
            most = share;
            index = i;
        }
    }
    return index;
}

/* What remedies are for: plain data parallelism before other plans, which are a remedy themselves.
 * Rank 0 has measured, and tells. */
static weft_status_t choose(run_t *run, int *index_p)
{
    int32_t index = run->rank == 0 ? find_worst(run, false) : -1;
    index = run->rank == 0 && index < 0 ? find_worst(run, true) : index;
    WEFT_TRY(weft_broadcast(&index, &index, 1, WEFT_I32, 0, run->comm, NULL));
    *index_p = index;
    return WEFT_OK;
}

static weft_status_t try_remedies(run_t *run)
{
    int index;
    WEFT_TRY(choose(run, &index));
    if (index < 0) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__points_remedies(run->scaling, &run->points.list[index], &run->tried));
    WEFT_TRY(weft__points_measure(run->scaling, run->comm, &run->tried, &run->number));
    if (run->rank == 0) {
        weft__scaling_print_remedies(run->scaling, &run->tried);
    }
    return WEFT_OK;
}

static weft_status_t measure(run_t *run)
{
    WEFT_TRY(weft__points_make(run->scaling, run->size, &run->points));
    WEFT_TRY(weft__points_measure(run->scaling, run->comm, &run->points, &run->number));
    if (run->rank == 0) {
        weft__scaling_print(run->scaling, &run->points);
    }
    WEFT_TRY(run->scaling->remedies ? try_remedies(run) : WEFT_OK);
    if (run->result.file != NULL) {
        weft__scaling_write(run->scaling, &run->points, &run->tried, &run->result.json);
    }
    return WEFT_OK;
}

weft_status_t weft__scaling_run(const weft_scaling_t *scaling, weft_comm_h comm)
{
    run_t *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the points of scaling");
    }
    run->scaling = scaling;
    run->comm = comm;
    weft_status_t status = weft_comm_rank(comm, &run->rank);
    status = status == WEFT_OK ? weft_comm_size(comm, &run->size) : status;
    if (status == WEFT_OK && run->rank == 0) {
        status = open_result(run);
    }
    status = status == WEFT_OK ? measure(run) : status;
    status = weft__result_close(&run->result, status);
    free(run);
    return status;
}
