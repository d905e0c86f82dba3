#include "bench/advise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "bench/pair.h"
#include "bench/samples.h"
#include "comm/comm.h"
#include "device/device.h"

#define SIZES_MOST 24
#define FIRST 64
#define LAST (1 << 20)

typedef struct sizes {
    size_t bytes[SIZES_MOST];
    int count;
} sizes_t;

/* One operation with one number of ranks: the faster one-sided way there is, against the other. */
typedef struct advice {
    const char *operation, *other;
    int ranks;
    double ratio[SIZES_MOST]; /* by size; above 1: one-sided is faster; 0: not measured */
} advice_t;

static sizes_t sizes_of(const weft_bench_t *bench)
{
    sizes_t sizes = {.count = 0};
    size_t bytes = bench->min ? bench->min : FIRST, last = bench->max ? bench->max : LAST;
    bytes = bytes > last && !bench->min ? last : bytes;
    last = bytes > last ? bytes : last;
    while (bytes <= last && sizes.count < SIZES_MOST) {
        sizes.bytes[sizes.count++] = bytes;
        bytes = (size_t)ceil((double)bytes * bench->factor);
    }
    return sizes;
}

static void show_size(size_t bytes, char text[32])
{
    if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) {
        snprintf(text, 32, "%zuM", bytes >> 20);
    } else if (bytes >= (1 << 10) && bytes % (1 << 10) == 0) {
        snprintf(text, 32, "%zuK", bytes >> 10);
    } else {
        snprintf(text, 32, "%zu", bytes);
    }
}

/* ---- measuring -------------------------------------------------------------------------- */

static weft_status_t measure(const weft_bench_t *bench, const weft_pair_t *pair, weft_comm_h comm,
                             const sizes_t *sizes, advice_t *a, size_t *wrong_p)
{
    weft_pair_plan_t plan;
    WEFT_TRY(weft__pair_plan(bench, comm, &plan));
    for (int i = 0; i < sizes->count; i++) {
        size_t bytes = sizes->bytes[i];
        weft_pair_row_t row;
        /* Sizes that nobody asked for are left out where the pair itself would not take them. */
        if ((bytes < pair->min && !bench->min) || (bytes > pair->max && !bench->max)) {
            continue;
        }
        WEFT_TRY(weft__pair_measure(&plan, pair, comm, bytes, &row));
        for (int way = 1; way < weft__pair_ways(pair); way++) {
            double ratio = weft__pair_ratio(&row, way);
            a->ratio[i] = ratio > a->ratio[i] ? ratio : a->ratio[i]; /* the best of them counts */
        }
        *wrong_p += row.wrong;
    }
    return WEFT_OK;
}

/* ---- what follows ----------------------------------------------------------------------- */

/* One size from which on the winner changes, so that single outliers do not: the cut that gains
 * most, adding up what each size gains (the logarithm of its ratio). *small_p: one-sided is for the
 * sizes below it, else for those from it on. */
static int cut(const advice_t *a, int count, bool *small_p)
{
    double best = 0;
    int at = 0;
    *small_p = true;
    for (int way = 0; way < 2; way++) {
        double gain = 0;
        for (int i = 0; way == 1 && i < count; i++) {
            gain += a->ratio[i] > 0 ? log(a->ratio[i]) : 0;
        }
        for (int i = 0; i < count;
             i++) { /* one-sided below (way 0), or above (way 1), size i + 1 */
            double ratio = a->ratio[i] > 0 ? log(a->ratio[i]) : 0;
            gain += way == 0 ? ratio : -ratio;
            if (gain > best * 1.001 && (way == 0 || i < count - 1)) {
                best = gain;
                at = i + 1;
                *small_p = way == 0;
            }
        }
    }
    return at;
}

static void conclude(const advice_t *a, const sizes_t *sizes, char *text, size_t room)
{
    bool small, above = false, below = false;
    char size[32] = "";
    int at = cut(a, sizes->count, &small);
    for (int i = 0; i < sizes->count; i++) {
        below = below || (i < at && a->ratio[i] > 0);
        above = above || (i >= at && a->ratio[i] > 0);
        if (i >= at && a->ratio[i] > 0 && size[0] == '\0') {
            show_size(sizes->bytes[i], size);
        }
    }
    const char *first = small ? "one-sided" : a->other, *then = small ? a->other : "one-sided";
    if (below && above) {
        snprintf(text, room, "%s below %s, then %s", first, size, then);
    } else {
        snprintf(text, room, "%s", below ? first : then);
    }
}

static void print_head(const sizes_t *sizes)
{
    printf("# one-sided or collective, on this machine: time of the collective / time one-sided\n"
           "%-19s %5s",
           "# operation", "ranks");
    for (int i = 0; i < sizes->count; i++) {
        char size[32];
        show_size(sizes->bytes[i], size);
        printf(" %6s", size);
    }
    printf("  use\n");
}

static void print_advice(const advice_t *a, const sizes_t *sizes)
{
    char text[128];
    conclude(a, sizes, text, sizeof(text));
    printf("%-19s %5d", a->operation, a->ranks);
    for (int i = 0; i < sizes->count; i++) {
        if (a->ratio[i] > 0) {
            printf(" %6.*f", a->ratio[i] < 100 ? 2 : 0, a->ratio[i]);
        } else {
            printf(" %6s", "-");
        }
    }
    printf("  %s\n", text);
    fflush(stdout);
}

static void json_advice(weft_json_t *json, const advice_t *a, const sizes_t *sizes)
{
    char text[128];
    conclude(a, sizes, text, sizeof(text));
    weft__json_object(json, NULL);
    weft__json_string(json, "operation", a->operation);
    weft__json_string(json, "other", a->other);
    weft__json_int(json, "ranks", a->ranks);
    weft__json_string(json, "use", text);
    weft__json_array(json, "ratios");
    for (int i = 0; i < sizes->count; i++) {
        if (a->ratio[i] > 0) {
            weft__json_object(json, NULL);
            weft__json_uint(json, "bytes", sizes->bytes[i]);
            weft__json_double(json, "ratio", a->ratio[i]);
            weft__json_end(json);
        }
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

/* One operation: all pairs that stand for it, measured by the ranks of `comm`. */
static weft_status_t advise_on(const weft_bench_t *bench, const weft_pair_t *const *at,
                               weft_comm_h comm, bool prints, weft_result_t *result,
                               size_t *wrong_p)
{
    const sizes_t sizes = sizes_of(bench);
    advice_t a = {.operation = (*at)->advise, .other = (*at)->ways[0].name, .ranks = comm->size};
    for (; *at; at++) {
        if (suits(*at, comm->size) && strcmp((*at)->advise, a.operation) == 0) {
            WEFT_TRY(measure(bench, *at, comm, &sizes, &a, wrong_p));
        }
    }
    if (prints) {
        print_advice(&a, &sizes);
    }
    if (prints && result->file) {
        json_advice(&result->json, &a, &sizes);
    }
    return WEFT_OK;
}

/* The first `ranks` of `comm` go to work. The others meet them after every operation, so that
 * nobody waits for so long that it is worth a warning. */
static weft_status_t advise_some(const weft_bench_t *bench, weft_comm_h comm, int ranks,
                                 weft_result_t *result, size_t *wrong_p)
{
    weft_comm_h some = NULL;
    weft_status_t status = weft_comm_split(comm, comm->rank < ranks ? 0 : -1, comm->rank, &some,
                                           NULL);
    for (const weft_pair_t *const *at = weft__pairs; *at && status == WEFT_OK; at++) {
        if (!suits(*at, ranks) || !leads(at)) {
            continue;
        }
        if (some) {
            status = advise_on(bench, at, some, comm->rank == 0, result, wrong_p);
        }
        status = status == WEFT_OK ? weft_barrier(comm, NULL) : status;
    }
    weft_comm_destroy(some);
    return status;
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
        WEFT_TRY(weft__samples_open(&result, bench, comm->size));
        const sizes_t sizes = sizes_of(bench);
        print_head(&sizes);
    }
    for (int ranks = 2; status == WEFT_OK;
         ranks = ranks * 2 < comm->size ? ranks * 2 : comm->size) {
        status = advise_some(bench, comm, ranks, &result, wrong_p);
        if (ranks == comm->size) {
            break;
        }
    }
    if (comm->rank == 0) {
        if (status == WEFT_OK) {
            printf("# wrong results: %zu %s\n", *wrong_p, *wrong_p ? "FAILED" : "(all verified)");
        }
        return weft__samples_close(&result, status, *wrong_p);
    }
    return status;
}
