/* What connects two ranks: GPUs by NVLink or PCIe, cores by what they share, hosts by a network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "bench/links/expected.h"
#include "comm/comm.h"
#include "device/cuda.h"
#include "topo/host.h"
#include "topo/network.h"

/* ---- expectations ----------------------------------------------------------------------- */

typedef struct row {
    weft_link_kind_t kind;
    int generation, count;
    double one_way, both_ways;
    const char *source;
} row_t;

double weft__link_expected(weft_link_kind_t kind, int generation, int count, const char **source_p)
{
#define ROW(name, generation, count, one_way, both_ways, source)                                   \
    {WEFT_LINK_##name, generation, count, one_way, both_ways, source},
    static const row_t rows[] = {WEFT_LINK_EXPECTATIONS(ROW)};
#undef ROW
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].kind == kind && rows[i].generation == generation) {
            if (source_p) {
                *source_p = rows[i].source;
            }
            return rows[i].one_way * count / rows[i].count;
        }
    }
    return 0;
}

static void expect(weft_link_info_t *link, double gbs, const char *source)
{
    link->expected_gbs = gbs;
    snprintf(link->source, sizeof(link->source), "%s", gbs > 0 ? source : "");
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static double share_of(weft_gpu_path_t path)
{
#define SHARE(name, share) [name] = share,
    static const double shares[] = {WEFT_LINK_PATH_SHARES(SHARE)};
#undef SHARE
    return path < 0 ? 0 : shares[path];
}

void weft__link_of_gpus(const weft_gpus_t *gpus, int from, int to, weft_link_info_t *link)
{
    const char *source = "";
    double gbs;
    snprintf(link->text, sizeof(link->text), "other GPU");
    if (from < 0 || to < 0) {
        return;
    }
    const weft_gpu_pair_t *pair = weft__gpu_pair(gpus, from, to);
    if (pair->links > 0) {
        int generation = pair->link_version / 10;
        snprintf(link->text, sizeof(link->text),
                 pair->link_version > 0 ? "NV%d (NVLink %d)" : "NV%d", pair->links, generation);
        gbs = weft__link_expected(WEFT_LINK_NVLINK, generation, pair->links, &source);
        expect(link, gbs, source);
        return;
    }
    if (pair->path < 0) {
        return;
    }
    const weft_gpu_t *a = &gpus->gpus[from], *b = &gpus->gpus[to];
    snprintf(link->text, sizeof(link->text), "PCIe %s", weft__gpu_path_letters(pair->path));
    gbs = weft__link_expected(WEFT_LINK_PCIE, least(a->pcie_generation_max, b->pcie_generation_max),
                              least(a->pcie_width_max, b->pcie_width_max), &source);
    expect(link, gbs > 0 ? gbs * share_of(pair->path) : 0, source);
}

void weft__link_of_network(bool infiniband, int rate, weft_link_info_t *link)
{
    const char *source = "";
    if (rate <= 0) {
        snprintf(link->text, sizeof(link->text), "network");
        return;
    }
    snprintf(link->text, sizeof(link->text), "network (%s %d)",
             infiniband ? "InfiniBand" : "Ethernet", rate);
    weft_link_kind_t kind = infiniband ? WEFT_LINK_INFINIBAND : WEFT_LINK_ETHERNET;
    double gbs = weft__link_expected(kind, rate, 1, &source);
    expect(link, gbs, source);
}

/* ---- where ranks are -------------------------------------------------------------------- */

typedef struct position {
    uint64_t host;
    int device, cuda;
    int rate, infiniband; /* of the host's network */
    uint8_t gpu[16];      /* UUID */
    unsigned long cpus[WEFT_CORE_MASK_WORDS];
} position_t;

static weft_status_t find_position(const weft_links_run_t *run, position_t *position)
{
    bool infiniband;
    memset(position, 0, sizeof(*position));
    position->device = run->comm->device;
    position->cuda = weft__device_is_cuda();
    position->rate = weft__network_rate("", &infiniband);
    position->infiniband = infiniband;
    if (position->cuda) {
        memcpy(position->gpu, weft__cuda_props(weft__cuda_gpu(run->comm->device))->uuid,
               sizeof(position->gpu));
    }
    WEFT_TRY(weft__host_id(&position->host));
    return weft__core_mask_here(position->cpus);
}

static void name_link(const weft_links_run_t *run, const position_t *from, const position_t *to,
                      weft_link_info_t *link)
{
    const weft_gpus_t *gpus = &run->links->gpus;
    if (from->host != to->host) {
        weft__link_of_network(from->infiniband && to->infiniband, least(from->rate, to->rate),
                              link);
    } else if (!from->cuda) {
        weft_core_link_t near = weft__core_link(&run->links->cores, from->cpus, to->cpus);
        snprintf(link->text, sizeof(link->text), "%s", weft__core_link_text(near));
    } else if (memcmp(from->gpu, to->gpu, sizeof(from->gpu)) == 0) {
        snprintf(link->text, sizeof(link->text), "same GPU");
    } else {
        weft__link_of_gpus(gpus, weft__gpu_of_rank(gpus, from->device),
                           weft__gpu_of_rank(gpus, to->device), link);
    }
}

/* Links of the same name are of one kind; `first` has room for a number a link. */
static void number_kinds(weft_links_results_t *results, int *first)
{
    int n = results->size;
    results->kinds = 0;
    for (int i = 0; i < n * n; i++) {
        weft_link_t *link = &results->links[i];
        link->kind = i % n == i / n ? -1 : 0;
        while (link->kind >= 0 && link->kind < results->kinds &&
               strcmp(results->links[first[link->kind]].info.text, link->info.text) != 0) {
            link->kind++;
        }
        if (link->kind == results->kinds) {
            first[results->kinds++] = i;
        }
    }
}

weft_status_t weft__links_kinds(weft_links_run_t *run, weft_links_results_t *results)
{
    size_t n = (size_t)run->size;
    position_t mine, *positions = calloc(n, sizeof(*positions));
    weft_link_info_t *row = calloc(n, sizeof(*row)), *rows = calloc(n * n, sizeof(*rows));
    int *first = calloc(n * n, sizeof(*first));
    weft_status_t status = positions && row && rows && first
                               ? find_position(run, &mine)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu ranks", n);
    status = status == WEFT_OK ? weft__links_gather(run, &mine, positions, sizeof(mine)) : status;
    for (size_t to = 0; to < n && status == WEFT_OK; to++) {
        if ((int)to != run->rank) {
            name_link(run, &mine, &positions[to], &row[to]);
        }
    }
    /* every rank knows its own host */
    status = status == WEFT_OK ? weft__links_gather(run, row, rows, n * sizeof(*row)) : status;
    for (size_t i = 0; i < n * n && status == WEFT_OK; i++) {
        results->links[i].info = rows[i];
        if (run->links->min_gbs > 0) {
            results->links[i].info.expected_gbs = run->links->min_gbs;
            snprintf(results->links[i].info.source, sizeof(results->links[i].info.source),
                     WEFT_LINKS_MIN);
        }
    }
    if (status == WEFT_OK) {
        number_kinds(results, first);
    }
    free(positions);
    free(row);
    free(rows);
    free(first);
    return status;
}
