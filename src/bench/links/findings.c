/* What was found, in sentences: what was measured, what is usual, what to do. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/median.h"
#include "bench/links/findings.h"

#define PAIRS_NAMED 16 /* of one reason; the rest is counted */

static weft_status_t add(weft_links_found_t *found, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static weft_status_t add(weft_links_found_t *found, const char *format, ...)
{
    weft_links_finding_t *finding = calloc(1, sizeof(*finding));
    va_list args;
    if (!finding) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a finding");
    }
    va_start(args, format);
    vsnprintf(finding->text, sizeof(finding->text), format, args);
    va_end(args);
    while (*found->findings_end) {
        found->findings_end = &(*found->findings_end)->next;
    }
    *found->findings_end = finding;
    found->finding_count++;
    return WEFT_OK;
}

/* What to do about a link of this kind. */
static const char *advice(const weft_link_t *link)
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
    while (strncmp(link->text, all[i].begin, strlen(all[i].begin)) != 0) {
        i++;
    }
    return all[i].text;
}

static double median_of_kind(const weft_links_found_t *found, int kind, double *room, int *count_p)
{
    int count = 0;
    for (int i = 0; i < found->size * found->size; i++) {
        if (found->pairs[i].kind == kind) {
            room[count++] = found->pairs[i].one_way_gbs;
        }
    }
    *count_p = count;
    return weft__median(room, (size_t)count);
}

/* ---- pairs ------------------------------------------------------------------------------ */

static weft_status_t add_slow(weft_links_found_t *found, const weft_links_verdict_t *verdict,
                              int from, int to, double *room)
{
    const weft_links_pair_t *pair = weft__links_pair(found, from, to);
    int count;
    double median = median_of_kind(found, pair->kind, room, &count);
    double likely = verdict->likely_ns[(size_t)from * (size_t)found->size + (size_t)to];
    return add(found,
               "The link from rank %d to rank %d (%s) is slow: %.4g GB/s one way, in two "
               "measurements, where the other links of both ranks suggest %.4g and the %d links of "
               "its kind have %.4g. %s",
               from, to, pair->link.text, pair->one_way_gbs, (double)found->bytes / likely, count,
               median, advice(&pair->link));
}

static weft_status_t add_below(weft_links_found_t *found, int from, int to)
{
    const weft_links_pair_t *pair = weft__links_pair(found, from, to);
    const weft_link_t *link = &pair->link;
    if (strcmp(link->source, WEFT_LINKS_MIN) == 0) {
        return add(found,
                   "The link from rank %d to rank %d (%s) is slow: %.4g GB/s one way, in two "
                   "measurements, below the %.4g of --min. %s",
                   from, to, link->text, pair->one_way_gbs, link->expected_gbs, advice(link));
    }
    return add(found,
               "The link from rank %d to rank %d (%s) is slow: %.4g GB/s one way, in two "
               "measurements, below the %.4g that such a link should reach (%s). %s",
               from, to, link->text, pair->one_way_gbs, link->expected_gbs, link->source,
               advice(link));
}

static weft_status_t add_rank(weft_links_found_t *found, int rank, bool sends)
{
    const weft_links_pair_t *pair = weft__links_pair(found, sends ? rank : rank == 0,
                                                     sends ? rank == 0 : rank);
    return add(found,
               "Every link %s rank %d is slow, in two measurements: as %.4g GB/s %s rank %d (%s). "
               "%s",
               sends ? "from" : "to", rank, pair->one_way_gbs, sends ? "to" : "from",
               rank == 0 ? 1 : 0, pair->link.text, advice(&pair->link));
}

/* Pairs for one reason, up to PAIRS_NAMED; the rest in one sentence. */
static weft_status_t add_pairs(weft_links_found_t *found, const weft_links_verdict_t *verdict,
                               unsigned char reason, double *room)
{
    int n = found->size, named = 0, count = 0;
    for (int i = 0; i < n * n; i++) {
        bool is = verdict->slow[i] == reason;
        count += is;
        if (is && named < PAIRS_NAMED) {
            named++;
            WEFT_TRY(reason == WEFT_SLOW_BELOW ? add_below(found, i / n, i % n)
                                               : add_slow(found, verdict, i / n, i % n, room));
        }
    }
    return count == named ? WEFT_OK
                          : add(found,
                                "%d more links are slow for the same reason; the file of "
                                "--json has all of them.",
                                count - named);
}

/* ---- data and memory -------------------------------------------------------------------- */

static weft_status_t add_wrong(weft_links_found_t *found)
{
    int n = found->size;
    for (int i = 0; i < n * n; i++) {
        if (found->pairs[i].wrong > 0) {
            WEFT_TRY(add(found,
                         "The link from rank %d to rank %d (%s) corrupts data: %llu of %zu bytes "
                         "arrived wrong. Do not train over it; test both devices and what is "
                         "between them.",
                         i / n, i % n, found->pairs[i].link.text,
                         (unsigned long long)found->pairs[i].wrong, found->verified));
        }
    }
    if (found->alltoall_wrong > 0) {
        WEFT_TRY(add(found, "An all-to-all left %llu wrong bytes: weft bench alltoall tells more.",
                     (unsigned long long)found->alltoall_wrong));
    }
    for (int i = 0; i < found->reduces; i++) {
        const weft_links_reduce_t *row = &found->reduce[i];
        if (row->wrong > 0) {
            WEFT_TRY(add(found,
                         "An all-reduce of %zu bytes (%s) left %llu wrong sums: weft bench "
                         "allreduce --algo %s tells more.",
                         row->bytes, row->algo, (unsigned long long)row->wrong, row->algo));
        }
    }
    return WEFT_OK;
}

static weft_status_t add_memory(weft_links_found_t *found)
{
    for (int i = 0; i < found->memories; i++) {
        const weft_links_memory_t *row = &found->memory[i];
        if (row->expected_gbs > 0 && row->least_gbs < row->expected_gbs) {
            WEFT_TRY(add(found,
                         "Rank %d %ss memory of the host at %.4g GB/s, below the %.4g that its "
                         "GPU's PCIe link should reach. Compare generation and width of the link "
                         "with what the GPU can (weft topo), and bind the rank near it.",
                         row->least_rank, row->what, row->least_gbs, row->expected_gbs));
        }
    }
    return WEFT_OK;
}

weft_status_t weft__links_judged(weft_links_found_t *found, const weft_links_verdict_t *verdict)
{
    int n = found->size;
    double *room = calloc((size_t)n * (size_t)n, sizeof(*room));
    weft_status_t status = room ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no memory");
    for (int rank = 0; rank < n && status == WEFT_OK && verdict; rank++) {
        status = verdict->sends[rank] ? add_rank(found, rank, true) : WEFT_OK;
        if (status == WEFT_OK && verdict->receives[rank]) {
            status = add_rank(found, rank, false);
        }
    }
    if (verdict) {
        status = status == WEFT_OK ? add_pairs(found, verdict, WEFT_SLOW_PAIR, room) : status;
        status = status == WEFT_OK ? add_pairs(found, verdict, WEFT_SLOW_BELOW, room) : status;
    }
    status = status == WEFT_OK ? add_wrong(found) : status;
    status = status == WEFT_OK ? add_memory(found) : status;
    free(room);
    return status;
}

void weft__links_forget(weft_links_found_t *found)
{
    while (found->findings) {
        weft_links_finding_t *next = found->findings->next;
        free(found->findings);
        found->findings = next;
    }
    free(found->pairs);
    free(found->permutations);
    free(found->alltoall);
}
