/* The ranks of a job as a grid: see mesh.h. */
#include "parallel/mesh.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/try.h"

/* ---- who stands where -------------------------------------------------------------------------- */

weft_status_t weft__mesh_arrange(const weft_plan_t *plan, int rank, int size, const int *places,
                                 weft_mesh_t *mesh_p)
{
    weft_mesh_t mesh = {.dp = plan->dp, .pp = plan->pp, .tp = plan->tp, .rank = rank, .size = size};
    mesh.rank_at = calloc((size_t)size, sizeof(int));
    if (mesh.rank_at == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to arrange %d ranks", size);
    }
    for (int r = 0; r < size; r++) {
        mesh.rank_at[places != NULL ? places[r] : r] = r;
    }
    int place = places != NULL ? places[rank] : rank;
    mesh.tp_index = place % plan->tp;
    mesh.dp_index = place / plan->tp % plan->dp;
    mesh.pp_index = place / plan->tp / plan->dp;
    *mesh_p = mesh;
    return WEFT_OK;
}

int weft__mesh_rank(const weft_mesh_t *mesh, int dp_index, int pp_index, int tp_index)
{
    return mesh->rank_at[(pp_index * mesh->dp + dp_index) * mesh->tp + tp_index];
}

/* What a rank tells about where it is. */
typedef struct seat {
    uint64_t host;
    int64_t device;
} seat_t;

static uint64_t hash_of_host(void)
{
    char name[256] = "";
    uint64_t hash = 0xcbf29ce484222325u;
    gethostname(name, sizeof(name) - 1);
    for (const char *at = name; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    }
    return hash;
}

/* Hosts in the order of their first ranks, ranks of a host by device, then by rank. */
static bool sits_before(const seat_t *seats, const int *host, int a, int b)
{
    if (host[a] != host[b]) {
        return host[a] < host[b];
    }
    return seats[a].device != seats[b].device ? seats[a].device < seats[b].device : a < b;
}

static void order_seats(const seat_t *seats, int size, int *host, int *places)
{
    for (int r = 0; r < size; r++) {
        host[r] = r;
        for (int before = 0; before < r && host[r] == r; before++) {
            host[r] = seats[before].host == seats[r].host ? host[before] : r;
        }
    }
    for (int r = 0; r < size; r++) {
        places[r] = 0;
        for (int other = 0; other < size; other++) {
            places[r] += other != r && sits_before(seats, host, other, r);
        }
    }
}

static weft_status_t find_places(weft_comm_h world, int size, int *places, int *host, seat_t *seats)
{
    int device;
    WEFT_TRY(weft_comm_device(world, &device));
    seat_t mine = {hash_of_host(), device};
    WEFT_TRY(weft_allgather(&mine, seats, sizeof(mine), WEFT_U8, world, NULL));
    order_seats(seats, size, host, places);
    return WEFT_OK;
}

static weft_status_t arrange(const weft_plan_t *plan, weft_comm_h world, weft_mesh_t *mesh_p)
{
    int rank, size;
    WEFT_TRY(weft_comm_rank(world, &rank));
    WEFT_TRY(weft_comm_size(world, &size));
    if (plan->dp * plan->pp * plan->tp != size) {
        return weft__fail(WEFT_ERR_INVALID, "dp %d x pp %d x tp %d does not make %d ranks",
                          plan->dp, plan->pp, plan->tp, size);
    }
    int *places = calloc(2 * (size_t)size, sizeof(int));
    seat_t *seats = calloc((size_t)size, sizeof(*seats));
    weft_status_t status = places != NULL && seats != NULL
                               ? find_places(world, size, places, places + size, seats)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to arrange %d ranks",
                                            size);
    if (status == WEFT_OK) {
        status = weft__mesh_arrange(plan, rank, size, places, mesh_p);
    }
    free(places);
    free(seats);
    return status;
}

/* ---- communicators ----------------------------------------------------------------------------- */

/* A rank has up to eight, all of which may have a call in progress: tp, dp, weights, ends, and two for
 * each edge. Twice that, because a matrix product beside them may need multiprocessors to itself: half
 * of the GPU is never taken by calls that wait. */
static const weft_comm_config_t crowded = {
    .size = sizeof(weft_comm_config_t), .timeout_ms = -1, .crowd = 16};

/* Edge e leads from stage e to e + 1; the last one leads around, which interleaved pipelines use. A
 * rank has two edges, so they are split off in turns, in each of which a rank has one at most. */
static int turn_of(int edge, int stages, bool around)
{
    return around && stages % 2 == 1 && edge == stages - 1 ? 2 : edge % 2;
}

static weft_status_t split_edge(weft_mesh_t *mesh, int turn, bool around, bool backward)
{
    int row = mesh->dp_index * mesh->tp + mesh->tp_index, stages = mesh->pp;
    int edges = around ? stages : stages - 1, mine = -1;
    bool first = false;
    for (int e = 0; e < edges; e++) {
        bool from = e == mesh->pp_index, to = (e + 1) % stages == mesh->pp_index;
        if ((from || to) && turn_of(e, stages, around) == turn) {
            mine = e;
            first = from;
        }
    }
    weft_edge_t *edge = first ? &mesh->after : &mesh->before;
    weft_comm_h comm = NULL;
    WEFT_TRY(weft_comm_split(mesh->world, mine < 0 ? -1 : row * stages + mine, first ? 0 : 1, &comm,
                             &crowded));
    if (mine >= 0) {
        *(backward ? &edge->backward : &edge->forward) = comm;
    }
    return WEFT_OK;
}

static weft_status_t split_edges(weft_mesh_t *mesh, bool around)
{
    int turns = mesh->pp == 1 ? 0 : around && mesh->pp % 2 == 1 ? 3 : 2;
    for (int turn = 0; turn < turns; turn++) {
        WEFT_TRY(split_edge(mesh, turn, around, false));
        WEFT_TRY(split_edge(mesh, turn, around, true));
    }
    return WEFT_OK;
}

static weft_status_t split_all(weft_mesh_t *mesh, const weft_plan_t *plan, bool tied)
{
    int place = (mesh->pp_index * mesh->dp + mesh->dp_index) * mesh->tp + mesh->tp_index;
    int dp_row = mesh->pp_index * mesh->tp + mesh->tp_index;
    bool end = mesh->pp_index == 0 || mesh->pp_index == mesh->pp - 1;
    WEFT_TRY(
        weft_comm_split(mesh->world, place / mesh->tp, mesh->tp_index, &mesh->tp_comm, &crowded));
    WEFT_TRY(weft_comm_split(mesh->world, dp_row, mesh->dp_index, &mesh->dp_comm, &crowded));
    if (plan->zero > 0 && plan->dp > 1) {
        WEFT_TRY(
            weft_comm_split(mesh->world, dp_row, mesh->dp_index, &mesh->weights_comm, &crowded));
    }
    if (tied && mesh->pp > 1) {
        WEFT_TRY(weft_comm_split(mesh->world, end ? mesh->dp_index * mesh->tp + mesh->tp_index : -1,
                                 mesh->pp_index, &mesh->ends_comm, &crowded));
    }
    return split_edges(mesh, plan->schedule == WEFT_INTERLEAVED);
}

weft_status_t weft__mesh_create(const weft_plan_t *plan, bool tied, weft_comm_h world,
                                weft_mesh_t *mesh_p)
{
    weft_mesh_t mesh = {0};
    WEFT_TRY(arrange(plan, world, &mesh));
    mesh.world = world;
    weft_status_t status = split_all(&mesh, plan, tied);
    if (status != WEFT_OK) {
        weft__mesh_destroy(&mesh, true);
        return status;
    }
    *mesh_p = mesh;
    return WEFT_OK;
}

/* ---- all of them --------------------------------------------------------------------------------- */

enum { COMMS = 8 };

/* A communicator, and who is in it: ranks that differ from this one in one index only. */
typedef struct group {
    weft_comm_h comm;
    const char *name;
    enum { ALONG_TP, ALONG_DP, ALONG_PP } along;
    int first, step, count; /* indices of its ranks in that direction */
} group_t;

static void list_groups(const weft_mesh_t *m, group_t groups[COMMS])
{
    int here = m->pp_index;
    int before = here > 0 ? here - 1 : m->pp - 1, after = here + 1 < m->pp ? here + 1 : 0;
    const group_t all[COMMS] = {
        {m->tp_comm, "tensor-parallel", ALONG_TP, 0, 1, m->tp},
        {m->dp_comm, "data-parallel", ALONG_DP, 0, 1, m->dp},
        {m->weights_comm, "data-parallel", ALONG_DP, 0, 1, m->dp},
        {m->ends_comm, "first and last stage", ALONG_PP, 0, m->pp - 1, 2},
        {m->before.forward, "neighbouring stages", ALONG_PP, before, here - before, 2},
        {m->before.backward, "neighbouring stages", ALONG_PP, before, here - before, 2},
        {m->after.forward, "neighbouring stages", ALONG_PP, here, after - here, 2},
        {m->after.backward, "neighbouring stages", ALONG_PP, here, after - here, 2}};
    memcpy(groups, all, sizeof(all));
}

void weft__mesh_destroy(weft_mesh_t *mesh, bool broken)
{
    group_t groups[COMMS];
    list_groups(mesh, groups);
    for (int i = 0; i < COMMS; i++) {
        if (groups[i].comm != NULL && broken) {
            weft_comm_abort(groups[i].comm);
        } else {
            weft_comm_destroy(groups[i].comm);
        }
    }
    free(mesh->rank_at);
    *mesh = (weft_mesh_t){0};
}

__attribute__((format(printf, 4, 5))) static void append(char *text, size_t room, size_t *used,
                                                         const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (*used < room) {
        int more = vsnprintf(text + *used, room - *used, format, list);
        *used += more > 0 ? (size_t)more : 0;
    }
    va_end(list);
}

/* A group's sentence counts its own ranks; say which of the job they are. */
static weft_status_t fail_group(const weft_mesh_t *m, const group_t *group, weft_status_t status,
                                const char *sentence)
{
    char ranks[128] = "";
    size_t used = 0;
    for (int i = 0; i < group->count; i++) {
        int index = group->first + i * group->step;
        int dp = group->along == ALONG_DP ? index : m->dp_index;
        int pp = group->along == ALONG_PP ? index : m->pp_index;
        int tp = group->along == ALONG_TP ? index : m->tp_index;
        append(ranks, sizeof(ranks), &used, "%s%d", i > 0 ? " " : "",
               weft__mesh_rank(m, dp, pp, tp));
    }
    return weft__fail(status, "%s (ranks of a group, %s: %s of the job, in this order)", sentence,
                      group->name, ranks);
}

weft_status_t weft__mesh_error(const weft_mesh_t *mesh)
{
    group_t groups[COMMS];
    list_groups(mesh, groups);
    for (int i = 0; i < COMMS; i++) {
        const char *sentence;
        weft_status_t status = groups[i].comm != NULL ? weft_comm_error(groups[i].comm, &sentence)
                                                      : WEFT_OK;
        if (status != WEFT_OK) {
            return fail_group(mesh, &groups[i], status, sentence);
        }
    }
    return WEFT_OK;
}

/* ---- picture ----------------------------------------------------------------------------------- */

const char *weft__mesh_picture(const weft_mesh_t *mesh, char *text, size_t room)
{
    size_t used = 0;
    int digits = mesh->size > 100 ? 3 : mesh->size > 10 ? 2 : 1;
    append(text, room, &used, "%d ranks: dp %d x pp %d x tp %d\n", mesh->size, mesh->dp, mesh->pp,
           mesh->tp);
    for (int p = 0; p < mesh->pp; p++) {
        append(text, room, &used, "  stage %d ", p);
        for (int d = 0; d < mesh->dp; d++) {
            append(text, room, &used, " [");
            for (int t = 0; t < mesh->tp; t++) {
                append(text, room, &used, "%s%*d", t > 0 ? " " : "", digits,
                       weft__mesh_rank(mesh, d, p, t));
            }
            append(text, room, &used, "]");
        }
        append(text, room, &used, "\n");
    }
    return text;
}
