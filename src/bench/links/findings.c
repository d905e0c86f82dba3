/* What was found, in sentences: what was measured, what is usual, what to do. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/median.h"
#include "bench/links/findings.h"

#define LINKS_NAMED 16 /* of one reason; the rest is counted */

static weft_status_t add(weft_links_results_t *results, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static weft_status_t add(weft_links_results_t *results, const char *format, ...)
{
    weft_links_finding_t *finding = calloc(1, sizeof(*finding));
    va_list args;
    if (!finding) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a finding");
    }
    va_start(args, format);
    vsnprintf(finding->text, sizeof(finding->text), format, args);
    va_end(args);
    while (*results->findings_end) {
        results->findings_end = &(*results->findings_end)->next;
    }
    *results->findings_end = finding;
    results->finding_count++;
    return WEFT_OK;
}

/* What to do about a link of this kind. */
static const char *advice(const weft_link_info_t *info)
{
    static const struct {
        const char *begin, *text;
    } all[] = {
        {"NV", "Look for links that are down or repeat data (nvidia-smi nvlink -s, -e), then at "
               "cables and seats."},
        {"PCIe", "Compare generation and width of both GPUs with what they can (weft topo), and "
                 "look at IOMMU and ACS."},
        {"network", "Compare the rates of both ports (ibstat, ethtool) and look at cables and "
                    "the interface that is used."},
        {"same GPU", "See what else runs on that GPU (nvidia-smi)."},
        {"other GPU", "See how the two GPUs are connected (weft topo)."},
        {"unbound", "Bind the ranks to cores (--bind core) and measure again."},
        {"", "See what else runs on the cores of both (top), and how ranks are bound (weft topo "
             "-n)."},
    };
    int i = 0;
    while (strncmp(info->text, all[i].begin, strlen(all[i].begin)) != 0) {
        i++;
    }
    return all[i].text;
}

static double median_of_kind(const weft_links_results_t *results, int kind, double *room,
                             int *count_p)
{
    int count = 0;
    for (int i = 0; i < results->size * results->size; i++) {
        if (results->links[i].kind == kind) {
            room[count++] = results->links[i].one_way_gbs;
        }
    }
    *count_p = count;
    return weft__median(room, (size_t)count);
}

/* ---- links ------------------------------------------------------------------------------ */

static weft_status_t add_slow(weft_links_results_t *results, const weft_links_verdict_t *verdict,
                              int from, int to, double *room)
{
    const weft_link_t *link = weft__links_at(results, from, to);
    int count;
    double median = median_of_kind(results, link->kind, room, &count);
    double likely = verdict->likely_ns[(size_t)from * (size_t)results->size + (size_t)to];
    return add(results,
               "The link from rank %d to rank %d (%s) is slow: %.4g GB/s one way, in two "
               "measurements, where the other links of both ranks suggest %.4g and the %d links of "
               "its kind have %.4g. %s",
               from, to, link->info.text, link->one_way_gbs, (double)results->bytes / likely, count,
               median, advice(&link->info));
}

static weft_status_t add_below(weft_links_results_t *results, int from, int to)
{
    const weft_link_t *link = weft__links_at(results, from, to);
    const weft_link_info_t *info = &link->info;
    if (strcmp(info->source, WEFT_LINKS_MIN) == 0) {
        return add(results,
                   "The link from rank %d to rank %d (%s) is slow: %.4g GB/s one way, in two "
                   "measurements, below the %.4g of --min. %s",
                   from, to, info->text, link->one_way_gbs, info->expected_gbs, advice(info));
    }
    return add(results,
               "The link from rank %d to rank %d (%s) is slow: %.4g GB/s one way, in two "
               "measurements, below the %.4g that such a link should reach (%s). %s",
               from, to, info->text, link->one_way_gbs, info->expected_gbs, info->source,
               advice(info));
}

static weft_status_t add_rank(weft_links_results_t *results, int rank, bool sends)
{
    const weft_link_t *link = weft__links_at(results, sends ? rank : rank == 0,
                                             sends ? rank == 0 : rank);
    return add(results,
               "Every link %s rank %d is slow, in two measurements: as %.4g GB/s %s rank %d (%s). "
               "%s",
               sends ? "from" : "to", rank, link->one_way_gbs, sends ? "to" : "from",
               rank == 0 ? 1 : 0, link->info.text, advice(&link->info));
}

/* Links for one reason, up to LINKS_NAMED; the rest in one sentence. */
static weft_status_t add_links(weft_links_results_t *results, const weft_links_verdict_t *verdict,
                               unsigned char reason, double *room)
{
    int n = results->size, named = 0, count = 0;
    for (int i = 0; i < n * n; i++) {
        bool is = verdict->slow[i] == reason;
        count += is;
        if (is && named < LINKS_NAMED) {
            named++;
            WEFT_TRY(reason == WEFT_SLOW_BELOW ? add_below(results, i / n, i % n)
                                               : add_slow(results, verdict, i / n, i % n, room));
        }
    }
    return count == named ? WEFT_OK
                          : add(results,
                                "%d more links are slow for the same reason; the file of "
                                "--json has all of them.",
                                count - named);
}

/* ---- data and memory -------------------------------------------------------------------- */

static weft_status_t add_wrong(weft_links_results_t *results)
{
    int n = results->size;
    for (int i = 0; i < n * n; i++) {
        if (results->links[i].wrong > 0) {
            WEFT_TRY(add(results,
                         "The link from rank %d to rank %d (%s) corrupts data: %llu of %zu bytes "
                         "arrived wrong. Do not train over it; test both devices and what is "
                         "between them.",
                         i / n, i % n, results->links[i].info.text,
                         (unsigned long long)results->links[i].wrong, results->verified));
        }
    }
    if (results->alltoall_wrong > 0) {
        WEFT_TRY(add(results,
                     "An all-to-all left %llu wrong bytes: weft bench alltoall tells more.",
                     (unsigned long long)results->alltoall_wrong));
    }
    for (int i = 0; i < results->reduces; i++) {
        const weft_links_reduce_t *row = &results->reduce[i];
        if (row->wrong > 0) {
            WEFT_TRY(add(results,
                         "An all-reduce of %zu bytes (%s) left %llu wrong sums: weft bench "
                         "allreduce --algo %s tells more.",
                         row->bytes, row->algo, (unsigned long long)row->wrong, row->algo));
        }
    }
    return WEFT_OK;
}

static weft_status_t add_memory(weft_links_results_t *results)
{
    for (int i = 0; i < results->memories; i++) {
        const weft_links_memory_t *row = &results->memory[i];
        if (row->expected_gbs > 0 && row->least_gbs < row->expected_gbs) {
            WEFT_TRY(add(results,
                         "Rank %d %ss memory of the host at %.4g GB/s, below the %.4g that its "
                         "GPU's PCIe link should reach. Compare generation and width of the link "
                         "with what the GPU can (weft topo), and bind the rank near it.",
                         row->least_rank, row->what, row->least_gbs, row->expected_gbs));
        }
    }
    return WEFT_OK;
}

weft_status_t weft__links_judged(weft_links_results_t *results, const weft_links_verdict_t *verdict)
{
    int n = results->size;
    double *room = calloc((size_t)n * (size_t)n, sizeof(*room));
    weft_status_t status = room ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no memory");
    for (int rank = 0; rank < n && status == WEFT_OK && verdict; rank++) {
        status = verdict->sends[rank] ? add_rank(results, rank, true) : WEFT_OK;
        if (status == WEFT_OK && verdict->receives[rank]) {
            status = add_rank(results, rank, false);
        }
    }
    if (verdict) {
        status = status == WEFT_OK ? add_links(results, verdict, WEFT_SLOW_LINK, room) : status;
        status = status == WEFT_OK ? add_links(results, verdict, WEFT_SLOW_BELOW, room) : status;
    }
    status = status == WEFT_OK ? add_wrong(results) : status;
    status = status == WEFT_OK ? add_memory(results) : status;
    free(room);
    return status;
}

void weft__links_forget(weft_links_results_t *results)
{
    while (results->findings) {
        weft_links_finding_t *next = results->findings->next;
        free(results->findings);
        results->findings = next;
    }
    free(results->links);
    free(results->permutations);
    free(results->alltoall);
}
