#include "bench/advise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "bench/pair.h"
#include "bench/result.h"
#include "comm/comm.h"
#include "device/device.h"

#define SIZES_MOST 16
#define CLEAR 1.05 /* a lead of less is a draw */

/* One operation with one number of ranks: the faster one-sided way there is, against the collective. */
typedef struct advice {
    const char *operation, *other;
    int ranks, sizes;
    size_t bytes[SIZES_MOST];
    double ratio[SIZES_MOST]; /* above 1: one-sided is faster */
} advice_t;

static void show_size(size_t bytes, char text[32])
{
    if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) {
        snprintf(text, 32, "%zu MiB", bytes >> 20);
    } else if (bytes >= (1 << 10) && bytes % (1 << 10) == 0) {
        snprintf(text, 32, "%zu KiB", bytes >> 10);
    } else {
        snprintf(text, 32, "%zu B", bytes);
    }
}

/* ---- measuring -------------------------------------------------------------------------- */

static void keep(advice_t *a, size_t asked, double ratio)
{
    int at = 0;
    while (at < a->sizes && a->bytes[at] != asked) {
        at++;
    }
    if (at == a->sizes && a->sizes < SIZES_MOST) {
        a->sizes++;
        a->bytes[at] = asked;
        a->ratio[at] = 0;
    }
    if (at < SIZES_MOST && ratio > a->ratio[at]) {
        a->ratio[at] = ratio; /* of several one-sided ways the best counts */
    }
}

static weft_status_t measure(const weft_bench_t *bench, const weft_pair_t *pair, weft_comm_h comm,
                             advice_t *a, size_t *wrong_p)
{
    size_t bytes, last;
    weft__pair_range(bench, pair, &bytes, &last);
    for (int i = 0; i < SIZES_MOST && bytes <= last; i++) {
        weft_pair_row_t row;
        WEFT_PAIR_TRY(weft__pair_measure(bench, pair, comm, bytes, &row));
        double us = weft__sample_median(&row.one_sided);
        keep(a, bytes, us > 0 ? weft__sample_median(&row.two_sided) / us : 0);
        *wrong_p += row.wrong;
        bytes = (size_t)ceil((double)bytes * bench->factor);
    }
    return WEFT_OK;
}

/* ---- what follows ----------------------------------------------------------------------- */

/* Sizes at which the winner changes, as a sentence: "one-sided to 4 KiB (1.8x), then all-reduce". */
static void conclude(const advice_t *a, char *text, size_t room)
{
    size_t used = 0;
    const char *last = NULL;
    text[0] = '\0';
    for (int i = 0; i < a->sizes; i++) {
        double r = a->ratio[i];
        const char *winner = r > CLEAR ? "one-sided" : r * CLEAR < 1 ? a->other : "either";
        if (last && strcmp(winner, last) == 0) {
            continue;
        }
        char size[32];
        show_size(a->bytes[i], size);
        int n = snprintf(text + used, room - used, "%s%s%s%s", last ? "; from " : "",
                         last ? size : "", last ? " " : "", winner);
        used += n > 0 && (size_t)n < room - used ? (size_t)n : 0;
        last = winner;
    }
}

static void print_advice(const advice_t *a)
{
    char text[256];
    conclude(a, text, sizeof(text));
    printf("%-35s %5d  ", a->operation, a->ranks);
    for (int i = 0; i < a->sizes; i++) {
        char size[32];
        show_size(a->bytes[i], size);
        printf("%s%s %.2f", i ? ", " : "", size, a->ratio[i]);
    }
    printf("\n%-35s %5s  use %s\n", "", "", text);
    fflush(stdout);
}

static void json_advice(weft_json_t *json, const advice_t *a)
{
    char text[256];
    conclude(a, text, sizeof(text));
    weft__json_object(json);
    weft__json_key(json, "operation");
    weft__json_string(json, a->operation);
    weft__json_key(json, "other");
    weft__json_string(json, a->other);
    weft__json_key(json, "ranks");
    weft__json_int(json, a->ranks);
    weft__json_key(json, "use");
    weft__json_string(json, text);
    weft__json_key(json, "ratios");
    weft__json_array(json);
    for (int i = 0; i < a->sizes; i++) {
        weft__json_object(json);
        weft__json_key(json, "bytes");
        weft__json_uint(json, a->bytes[i]);
        weft__json_key(json, "ratio");
        weft__json_double(json, a->ratio[i]);
        weft__json_end(json);
    }
    weft__json_end(json);
    weft__json_end(json);
}

/* ---- all of it -------------------------------------------------------------------------- */

/* Is this the first pair that stands for its operation? The others are measured with it. */
static bool leads(const weft_pair_t *const *at)
{
    for (const weft_pair_t *const *earlier = weft__pairs; earlier < at; earlier++) {
        if ((*earlier)->advise && strcmp((*earlier)->advise, (*at)->advise) == 0) {
            return false;
        }
    }
    return true;
}

static bool suits(const weft_pair_t *pair, int ranks)
{
    return pair->advise && ranks >= pair->ranks && (pair->gpu || !weft__device_is_cuda());
}

static weft_status_t advise(const weft_bench_t *bench, weft_comm_h comm, bool prints,
                            weft_result_t *result, size_t *wrong_p)
{
    for (const weft_pair_t *const *at = weft__pairs; *at; at++) {
        if (!suits(*at, comm->size) || !leads(at)) {
            continue;
        }
        advice_t a = {.operation = (*at)->advise, .other = (*at)->other, .ranks = comm->size};
        for (const weft_pair_t *const *same = at; *same; same++) {
            if (suits(*same, comm->size) && strcmp((*same)->advise, a.operation) == 0) {
                WEFT_PAIR_TRY(measure(bench, *same, comm, &a, wrong_p));
            }
        }
        if (prints) {
            print_advice(&a);
        }
        if (prints && result->file) {
            json_advice(&result->json, &a);
        }
    }
    return WEFT_OK;
}

/* The first `ranks` of comm go to work, the rest wait for the next barrier. */
static weft_status_t advise_some(const weft_bench_t *bench, weft_comm_h comm, int ranks,
                                 weft_result_t *result, size_t *wrong_p)
{
    weft_comm_h some = NULL;
    WEFT_PAIR_TRY(weft_comm_split(comm, comm->rank < ranks ? 0 : -1, comm->rank, &some, NULL));
    weft_status_t status = WEFT_OK;
    if (some) {
        status = advise(bench, some, comm->rank == 0, result, wrong_p);
        weft_comm_destroy(some);
    }
    return status == WEFT_OK ? weft_barrier(comm, NULL) : status;
}

weft_status_t weft__bench_advise(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p)
{
    weft_result_t result = {.file = NULL};
    weft_status_t status = WEFT_OK;
    *wrong_p = 0;
    if (comm->size < 2) {
        return weft__fail(WEFT_ERR_INVALID, "advice needs 2 ranks or more: give -n 2");
    }
    if (comm->rank == 0) {
        WEFT_PAIR_TRY(weft__result_open(&result, bench, comm->size));
        printf("# one-sided or collective, on this machine: time of the collective / time "
               "one-sided, by size\n%-35s %5s\n",
               "# operation", "ranks");
    }
    for (int ranks = 2; status == WEFT_OK;
         ranks = ranks * 2 < comm->size ? ranks * 2 : comm->size) {
        status = advise_some(bench, comm, ranks, &result, wrong_p);
        if (ranks == comm->size) {
            break;
        }
    }
    if (comm->rank == 0) {
        char why[WEFT_ERROR_TEXT];
        snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
        printf("# wrong results: %zu %s\n", *wrong_p, *wrong_p ? "FAILED" : "(all verified)");
        weft_status_t closed = weft__result_close(&result, *wrong_p);
        return status == WEFT_OK ? closed : weft__fail(status, "%s", why);
    }
    return status;
}
