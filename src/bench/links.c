#include "bench/links.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "bench/links/findings.h"
#include "bench/samples.h"
#include "comm/comm.h"
#include "device/device.h"

#define BYTES ((size_t)256 << 10)     /* virtual GPUs: a transfer of a program */
#define BYTES_CUDA ((size_t)64 << 20) /* long enough that starting it does not count */
#define CLEAR 1.15                    /* times of a link that stands out */
#define AREA ((size_t)8 << 20)        /* of a rank's memory that others write */

/* ---- profiles --------------------------------------------------------------------------- */

typedef struct profile {
    const char *name;
    int sweeps;
    double seconds;
    double together;
    int repeats;
} profile_t;

#define PROFILE(name, sweeps, seconds, together, repeats)                                          \
    {name, sweeps, seconds, together, repeats},
static const profile_t profiles[] = {WEFT_LINKS_PROFILES(PROFILE)};
#undef PROFILE
#define PROFILES ((int)(sizeof(profiles) / sizeof(profiles[0])))

const char *weft__links_profile_name(int row)
{
    return row < PROFILES ? profiles[row].name : NULL;
}

int weft__links_profile(const char *name)
{
    int row = 0;
    while (row < PROFILES && strcmp(profiles[row].name, name) != 0) {
        row++;
    }
    return row < PROFILES ? row : -1;
}

void weft__links_read_machine(weft_links_t *links)
{
    /* Where this fails, links get plainer names; what is measured is the same. */
    if (links->cores.of == NULL && weft__core_map_read(&links->cores) != WEFT_OK) {
        links->cores = (weft_core_map_t){.cores = 0};
    }
    if (weft__device_is_cuda() && links->gpus.gpus == NULL &&
        weft__gpus_read(&links->gpus) != WEFT_OK) {
        links->gpus = (weft_gpus_t){.count = 0};
    }
}

void weft__links_cleanup(weft_links_t *links)
{
    weft__core_map_cleanup(&links->cores);
    weft__gpus_cleanup(&links->gpus);
}

/* ---- judging, on rank 0 ----------------------------------------------------------------- */

static bool is_below(const weft_links_results_t *results, const weft_judge_t *judge, int i)
{
    const weft_link_t *link = &results->links[i];
    return weft__links_expects(results, link) &&
           (double)results->bytes / judge->ns[i] < link->info.expected_gbs;
}

static void note_times(weft_links_results_t *results, const weft_judge_t *first,
                       const weft_judge_t *second)
{
    for (int i = 0; i < results->size * results->size; i++) {
        double ns = first->ns[i];
        if (ns > 0) {
            ns = second->ns ? sqrt(ns * second->ns[i]) : ns;
            results->links[i].one_way_gbs = (double)results->bytes / ns;
        }
    }
}

/* What both measurements say. */
static void decide(weft_links_results_t *results, const weft_judge_t *first,
                   const weft_judge_t *second, weft_links_verdict_t *verdict)
{
    int n = results->size;
    for (int i = 0; i < n * n; i++) {
        unsigned char both = first->slow[i] & second->slow[i];
        verdict->likely_ns[i] = sqrt(first->likely[i] * second->likely[i]);
        verdict->sends[i / n] |= (both & WEFT_JUDGE_SENDS) != 0;
        verdict->receives[i % n] |= (both & WEFT_JUDGE_RECEIVES) != 0;
        bool below = is_below(results, first, i) && is_below(results, second, i);
        verdict->slow[i] = (unsigned char)(below                      ? WEFT_SLOW_BELOW
                                           : (both & WEFT_JUDGE_LINK) ? WEFT_SLOW_LINK
                                           : both                     ? WEFT_SLOW_RANK
                                                                      : WEFT_SLOW_NOT);
        results->links[i].slow = verdict->slow[i] != WEFT_SLOW_NOT;
    }
}

/* Is there anything to look at again? Rank 0 knows, and tells. */
static weft_status_t find_suspects(const weft_links_run_t *run, const weft_links_results_t *results,
                                   const weft_judge_t *first, int *suspects_p)
{
    int suspects = 0;
    for (int i = 0; i < run->size * run->size && run->rank == 0; i++) {
        suspects += first->slow[i] != 0 || is_below(results, first, i);
    }
    *suspects_p = suspects;
    return weft_broadcast(suspects_p, suspects_p, 1, WEFT_I32, 0, run->comm, NULL);
}

/* Samples of one measurement; a busy machine needs more of them than a quiet one. */
typedef struct samples {
    double *ns;
    int sweeps;
} samples_t;

static weft_status_t add_sweeps(weft_links_run_t *run, int sweeps, samples_t *samples)
{
    size_t links = (size_t)run->size * (size_t)run->size;
    double *more, *grown;
    WEFT_TRY(weft__links_one_way(run, sweeps, &more));
    grown = realloc(samples->ns, (size_t)(samples->sweeps + sweeps) * links * sizeof(*grown));
    if (!grown) {
        free(more);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d sweeps", samples->sweeps + sweeps);
    }
    memcpy(grown + (size_t)samples->sweeps * links, more, (size_t)sweeps * links * sizeof(*more));
    free(more);
    samples->ns = grown;
    samples->sweeps += sweeps;
    return WEFT_OK;
}

/* One measurement of all links, judged on rank 0: again and again, until a link that takes 15%
 * longer would stand out of the noise, or there is no more time. */
static weft_status_t look(weft_links_run_t *run, const int *kinds, int sweeps, double margin,
                          weft_judge_t *judge)
{
    double seconds = profiles[run->links->profile].seconds;
    uint64_t began = weft__now_ns();
    samples_t samples = {NULL, 0};
    weft_status_t status;
    int again;
    do {
        again = 0;
        weft__judge_cleanup(judge);
        status = add_sweeps(run, sweeps, &samples);
        if (status == WEFT_OK && run->rank == 0) {
            status = weft__judge(run->size, kinds, samples.sweeps, samples.ns, margin, judge);
            again = status == WEFT_OK && judge->limit > log(CLEAR) &&
                    (double)(weft__now_ns() - began) < seconds * 1e9;
        }
        status = status == WEFT_OK ? weft_broadcast(&again, &again, 1, WEFT_I32, 0, run->comm, NULL)
                                   : status;
    } while (status == WEFT_OK && again);
    free(samples.ns);
    return status;
}

static weft_status_t measure_one_way(weft_links_run_t *run, weft_links_results_t *results,
                                     const int *kinds, weft_links_verdict_t *verdict)
{
    const profile_t *profile = &profiles[run->links->profile];
    weft_judge_t first = {.size = 0}, second = {.size = 0};
    int sweeps, suspects = 0;
    WEFT_TRY(weft__links_plan(run, profile->seconds, profile->sweeps, &sweeps));
    weft_status_t status = look(run, kinds, sweeps, WEFT_JUDGE_SUSPECT, &first);
    status = status == WEFT_OK ? find_suspects(run, results, &first, &suspects) : status;
    if (status == WEFT_OK && suspects > 0) {
        status = look(run, kinds, sweeps, WEFT_JUDGE_SLOW, &second);
    }
    if (status == WEFT_OK && run->rank == 0) {
        note_times(results, &first, &second);
        if (suspects > 0) {
            decide(results, &first, &second, verdict);
        }
    }
    weft__judge_cleanup(&first);
    weft__judge_cleanup(&second);
    return status;
}

/* ---- all of it -------------------------------------------------------------------------- */

static weft_status_t allocate(weft_links_results_t *results, weft_links_verdict_t *verdict,
                              int **kinds_p)
{
    size_t n = (size_t)results->size;
    results->links = calloc(n * n, sizeof(*results->links));
    results->permutations = calloc(n, sizeof(double));
    results->alltoall = calloc(n, sizeof(double));
    verdict->slow = calloc(n * n, 1);
    verdict->likely_ns = calloc(n * n, sizeof(double));
    verdict->sends = calloc(n, 1);
    verdict->receives = calloc(n, 1);
    *kinds_p = calloc(n * n, sizeof(int));
    return results->links && results->permutations && results->alltoall && verdict->slow &&
                   verdict->likely_ns && verdict->sends && verdict->receives && *kinds_p
               ? WEFT_OK
               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the links of %zu ranks", n);
}

static weft_status_t measure(weft_links_run_t *run, weft_links_results_t *results,
                             weft_links_verdict_t *verdict, int *kinds)
{
    const profile_t *profile = &profiles[run->links->profile];
    int repeats = profile->repeats;
    WEFT_TRY(weft__links_open(run));
    results->messages = run->symm == NULL;
    if (run->size > 1) {
        WEFT_TRY(weft__links_kinds(run, results));
        for (int i = 0; i < run->size * run->size; i++) {
            kinds[i] = results->links[i].kind;
        }
        WEFT_TRY(weft__links_verify(run, results));
        WEFT_TRY(measure_one_way(run, results, kinds, verdict));
        WEFT_TRY(weft__links_exchange(run, repeats, results));
        WEFT_TRY(weft__links_together(run, repeats, profile->together, results));
    }
    WEFT_TRY(weft__links_memory(run, repeats, results));
    return run->rank == 0 ? weft__links_judged(results, run->size > 1 ? verdict : NULL) : WEFT_OK;
}

static weft_status_t report(const weft_links_t *links, const weft_links_results_t *results)
{
    weft_result_head_t head = weft__samples_head(results->size, links->threads);
    weft_result_t result;
    head.kind = "links";
    head.path = links->json;
    head.command = links->command;
    head.machine = &links->machine;
    WEFT_TRY(weft__result_open(&result, &head));
    weft__samples_print_head(&head);
    weft__links_show(links, results);
    if (result.file) {
        weft__links_write(&result.json, results);
    }
    return weft__result_close(&result, WEFT_OK);
}

static size_t fit_slots(size_t bytes)
{
    size_t slots = AREA / bytes;
    return slots < 2 ? 2 : slots;
}

weft_status_t weft__links_run(const weft_links_t *links, weft_comm_h comm, int *findings_p)
{
    size_t bytes = links->bytes ? links->bytes : weft__device_is_cuda() ? BYTES_CUDA : BYTES;
    weft_links_run_t run = {.links = links,
                            .comm = comm,
                            .rank = comm->rank,
                            .size = comm->size,
                            .bytes = bytes,
                            .slots = fit_slots(bytes)};
    weft_links_results_t results = {.size = comm->size, .bytes = bytes};
    weft_links_verdict_t verdict = {.slow = NULL};
    char why[WEFT_ERROR_TEXT];
    int *kinds = NULL;
    results.findings_end = &results.findings;
    weft_status_t status = allocate(&results, &verdict, &kinds);
    status = status == WEFT_OK ? measure(&run, &results, &verdict, kinds) : status;
    snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
    if (status != WEFT_OK) {
        weft__comm_break(comm); /* others wait for this rank, and closing would wait for them */
    }
    weft__links_close(&run);
    int findings = results.finding_count;
    weft_status_t reported = WEFT_OK;
    if (status == WEFT_OK && comm->rank == 0) {
        reported = report(links, &results);
        snprintf(why, sizeof(why), "%s", reported == WEFT_OK ? "" : weft_last_error());
    }
    if (status == WEFT_OK) { /* also if rank 0 could not report: the others wait for its word */
        status = weft_broadcast(&findings, &findings, 1, WEFT_I32, 0, comm, NULL);
        status = reported == WEFT_OK ? status : reported;
    }
    *findings_p = findings;
    weft__links_forget(&results);
    free(verdict.slow);
    free(verdict.likely_ns);
    free(verdict.sends);
    free(verdict.receives);
    free(kinds);
    return status == WEFT_OK || why[0] == '\0' ? status : weft__fail(status, "%s", why);
}
