/* The ranks of a job as a grid: see mesh.h. */
#include "parallel/mesh.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "parallel/places.h"

/* ---- who stands where -------------------------------------------------------------------------- */

int weft__mesh_place(const weft_mesh_t *mesh, int rank)
{
    int place = 0;
    while (place < mesh->size && mesh->rank_at[place] != rank) {
        place++;
    }
    return place;
}

weft_status_t weft__mesh_arrange(const weft_plan_t *plan, int rank, int size, const int *rank_at,
                                 weft_mesh_t *mesh_p)
{
    weft_mesh_t mesh = {.dp = plan->dp, .pp = plan->pp, .tp = plan->tp, .rank = rank, .size = size};
    mesh.rank_at = calloc((size_t)size, sizeof(int));
    if (mesh.rank_at == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to arrange %d ranks", size);
    }
    for (int place = 0; place < size; place++) {
        mesh.rank_at[place] = rank_at != NULL ? rank_at[place] : place;
    }
    int place = weft__mesh_place(&mesh, rank);
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

/* The slowest link between ranks that are `step` places apart, in rows of `count` such. */
static uint8_t slowest(const weft_mesh_t *mesh, const uint8_t *near, int step, int count,
                       bool chain)
{
    int least = WEFT_NEAR_SAME;
    for (int a = 0; a < mesh->size; a++) {
        int index = a / step % count, last = chain && index + 1 < count ? index + 1 : count - 1;
        for (int other = index + 1; other <= last; other++) {
            size_t from = (size_t)mesh->rank_at[a];
            size_t to = (size_t)mesh->rank_at[a + (other - index) * step];
            int here = near[from * (size_t)mesh->size + to];
            least = here < least ? here : least;
        }
    }
    return (uint8_t)least;
}

static void note_links(weft_mesh_t *mesh, const uint8_t *near)
{
    mesh->tp_near = slowest(mesh, near, 1, mesh->tp, false);
    mesh->dp_near = slowest(mesh, near, mesh->tp, mesh->dp, false);
    mesh->pp_near = slowest(mesh, near, mesh->tp * mesh->dp, mesh->pp, true);
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
    int *ranks = calloc((size_t)size, sizeof(int));
    uint8_t *near = calloc((size_t)size, (size_t)size);
    weft_status_t status = ranks != NULL && near != NULL
                               ? weft__places_find(world, size, ranks, near)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to arrange %d ranks",
                                            size);
    if (status == WEFT_OK && plan->dp < size) { /* one row has no better order */
        status = weft__places_arrange(plan, size, near, ranks);
    }
    status = status == WEFT_OK
                 ? weft__mesh_arrange(plan, rank, size, plan->dp < size ? ranks : NULL, mesh_p)
                 : status;
    if (status == WEFT_OK) {
        note_links(mesh_p, near);
    }
    free(ranks);
    free(near);
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
    bool spreads = plan->zero > 0 && plan->dp > 1;
    if (mesh->dp == mesh->size && !spreads) {
        mesh->dp_comm = mesh->world; /* nothing runs beside it */
        return WEFT_OK;
    }
    WEFT_TRY(
        weft_comm_split(mesh->world, place / mesh->tp, mesh->tp_index, &mesh->tp_comm, &crowded));
    WEFT_TRY(weft_comm_split(mesh->world, dp_row, mesh->dp_index, &mesh->dp_comm, &crowded));
    if (spreads) {
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
        if (groups[i].comm == mesh->world) {
            continue; /* its owner's */
        }
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
            return groups[i].comm == mesh->world ? weft__fail(status, "%s", sentence)
                                                 : fail_group(mesh, &groups[i], status, sentence);
        }
    }
    return WEFT_OK;
}

/* ---- picture ----------------------------------------------------------------------------------- */

static void append_links(const weft_mesh_t *mesh, char *text, size_t room, size_t *used)
{
    const struct {
        const char *name;
        int size;
        uint8_t near;
    } ways[] = {{"tp", mesh->tp, mesh->tp_near},
                {"dp", mesh->dp, mesh->dp_near},
                {"pp", mesh->pp, mesh->pp_near}};
    bool any = false;
    for (int i = 0; i < 3; i++) {
        char link[64];
        if (ways[i].size > 1 && ways[i].near != WEFT_NEAR_UNKNOWN) {
            append(text, room, used, "%s%s over %s", any ? ", " : "  ", ways[i].name,
                   weft__near_text(ways[i].near, link, sizeof(link)));
            any = true;
        }
    }
    append(text, room, used, any ? "\n" : "");
}

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
    append_links(mesh, text, room, &used);
    return text;
}
