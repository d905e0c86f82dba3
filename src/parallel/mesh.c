/* The ranks of a job as a grid: see mesh.h. */
#include "parallel/mesh.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "parallel/places.h"

/* ---- who stands where --------------------------------------------------------------------- */

int weft__mesh_place(const weft_mesh_t *mesh, int rank)
{
    int place = 0;
    while (place < mesh->ranks && mesh->rank_at[place] != rank) {
        place++;
    }
    return place;
}

weft_status_t weft__mesh_arrange(const weft_plan_t *plan, int rank, int size, const int *rank_at,
                                 weft_mesh_t *mesh_p)
{
    weft_mesh_t mesh = {.rank = rank, .ranks = size};
    memcpy(mesh.size, plan->size, sizeof(mesh.size));
    mesh.rank_at = calloc((size_t)size, sizeof(int));
    if (mesh.rank_at == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to arrange %d ranks", size);
    }
    for (int place = 0; place < size; place++) {
        mesh.rank_at[place] = rank_at != NULL ? rank_at[place] : place;
    }
    weft__mesh_index(&mesh, weft__mesh_place(&mesh, rank), mesh.index);
    *mesh_p = mesh;
    return WEFT_OK;
}

void weft__mesh_index(const weft_mesh_t *mesh, int place, int index[WEFT_AXES])
{
    for (int i = 0; i < WEFT_AXES; i++) {
        weft_axis_t axis = weft__axis_order[i];
        index[axis] = place % mesh->size[axis];
        place /= mesh->size[axis];
    }
}

int weft__mesh_rank(const weft_mesh_t *mesh, const int index[WEFT_AXES])
{
    int place = 0;
    for (int i = WEFT_AXES - 1; i >= 0; i--) {
        weft_axis_t axis = weft__axis_order[i];
        place = place * mesh->size[axis] + index[axis];
    }
    return mesh->rank_at[place];
}

/* How many places neighbours along an axis are apart. */
static int step_of(const weft_mesh_t *mesh, weft_axis_t axis)
{
    int step = 1;
    for (int i = 0; weft__axis_order[i] != axis; i++) {
        step *= mesh->size[weft__axis_order[i]];
    }
    return step;
}

/* The number of this rank's row along an axis, among all rows along it. */
static int row_of(const weft_mesh_t *mesh, weft_axis_t axis)
{
    int step = step_of(mesh, axis), place = weft__mesh_place(mesh, mesh->rank);
    return place / (step * mesh->size[axis]) * step + place % step;
}

/* The slowest link that an axis uses. */
static uint8_t slowest(const weft_mesh_t *mesh, const uint8_t *near, weft_axis_t axis)
{
    int step = step_of(mesh, axis), count = mesh->size[axis], least = WEFT_NEAR_SAME;
    bool chain = weft__axes[axis].chain;
    for (int a = 0; a < mesh->ranks; a++) {
        int index = a / step % count, last = chain && index + 1 < count ? index + 1 : count - 1;
        for (int other = index + 1; other <= last; other++) {
            size_t from = (size_t)mesh->rank_at[a];
            size_t to = (size_t)mesh->rank_at[a + (other - index) * step];
            int here = near[from * (size_t)mesh->ranks + to];
            least = here < least ? here : least;
        }
    }
    return (uint8_t)least;
}

static weft_status_t arrange(const weft_plan_t *plan, weft_comm_h world, weft_mesh_t *mesh_p)
{
    int rank, size;
    WEFT_TRY(weft_comm_rank(world, &rank));
    WEFT_TRY(weft_comm_size(world, &size));
    if (weft__axes_ranks(plan->size) != size) {
        char text[96];
        return weft__fail(WEFT_ERR_INVALID, "%s does not make %d ranks",
                          weft__axes_text(plan->size, text, sizeof(text)), size);
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
    for (int a = 0; a < WEFT_AXES && status == WEFT_OK; a++) {
        mesh_p->near[a] = slowest(mesh_p, near, (weft_axis_t)a);
    }
    free(ranks);
    free(near);
    return status;
}

/* ---- communicators ------------------------------------------------------------------------ */

/* A rank has up to eight, all of which may have a call in progress: tp, dp, weights, ends, and two
 * for each edge. Twice that, because a matrix product beside them may need multiprocessors to
 * itself: half of the GPU is never taken by calls that wait. */
static const weft_comm_config_t oversubscribed = {
    .size = sizeof(weft_comm_config_t), .timeout_ms = -1, .concurrent_comms = 16};

/* Edge e leads from stage e to e + 1; the last one leads around, which interleaved pipelines use. A
 * rank has two edges, so they are split off in turns, in each of which a rank has one at most. */
static int turn_of(int edge, int stages, bool around)
{
    return around && stages % 2 == 1 && edge == stages - 1 ? 2 : edge % 2;
}

static weft_status_t split_edge(weft_mesh_t *mesh, int turn, bool around, bool backward)
{
    int stages = mesh->size[WEFT_AXIS_PIPELINE], here = mesh->index[WEFT_AXIS_PIPELINE];
    int edges = around ? stages : stages - 1, mine = -1;
    bool first = false;
    for (int e = 0; e < edges; e++) {
        bool from = e == here, to = (e + 1) % stages == here;
        if ((from || to) && turn_of(e, stages, around) == turn) {
            mine = e;
            first = from;
        }
    }
    weft_edge_t *edge = first ? &mesh->after : &mesh->before;
    int color = mine < 0 ? -1 : row_of(mesh, WEFT_AXIS_PIPELINE) * stages + mine;
    weft_comm_h comm = NULL;
    WEFT_TRY(weft_comm_split(mesh->world, color, first ? 0 : 1, &comm, &oversubscribed));
    if (mine >= 0) {
        *(backward ? &edge->backward : &edge->forward) = comm;
    }
    return WEFT_OK;
}

static weft_status_t split_edges(weft_mesh_t *mesh, bool around)
{
    int stages = mesh->size[WEFT_AXIS_PIPELINE];
    int turns = stages == 1 ? 0 : around && stages % 2 == 1 ? 3 : 2;
    for (int turn = 0; turn < turns; turn++) {
        WEFT_TRY(split_edge(mesh, turn, around, false));
        WEFT_TRY(split_edge(mesh, turn, around, true));
    }
    return WEFT_OK;
}

/* The ranks of this rank's row along an axis. */
static weft_status_t split_axis(const weft_mesh_t *mesh, weft_axis_t axis, bool takes_part,
                                weft_comm_h *comm_p)
{
    return weft_comm_split(mesh->world, takes_part ? row_of(mesh, axis) : -1, mesh->index[axis],
                           comm_p, &oversubscribed);
}

static weft_status_t split_all(weft_mesh_t *mesh, const weft_plan_t *plan, bool tied)
{
    int stage = mesh->index[WEFT_AXIS_PIPELINE], stages = mesh->size[WEFT_AXIS_PIPELINE];
    bool spreads = plan->zero > 0 && plan->dp > 1;
    if (plan->dp == mesh->ranks && !spreads) {
        mesh->comm[WEFT_AXIS_DATA] = mesh->world; /* nothing runs beside it */
        return WEFT_OK;
    }
    for (int i = 0; i < WEFT_AXES; i++) {
        weft_axis_t axis = weft__axis_order[i];
        if (!weft__axes[axis].chain) {
            WEFT_TRY(split_axis(mesh, axis, true, &mesh->comm[axis]));
        }
    }
    if (spreads) {
        WEFT_TRY(split_axis(mesh, WEFT_AXIS_DATA, true, &mesh->weights_comm));
    }
    if (tied && stages > 1) {
        WEFT_TRY(split_axis(mesh, WEFT_AXIS_PIPELINE, stage == 0 || stage == stages - 1,
                            &mesh->ends_comm));
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

/* ---- all of them -------------------------------------------------------------------------- */

enum { COMMS = WEFT_AXES + 6 };

/* A communicator, and who is in it: ranks that differ from this one along one axis only. */
typedef struct group {
    weft_comm_h comm;
    const char *name;
    weft_axis_t axis;
    int first, step, count; /* indices of its ranks along that axis */
} group_t;

static void list_groups(const weft_mesh_t *m, group_t groups[COMMS])
{
    const weft_axis_t data = WEFT_AXIS_DATA, pipeline = WEFT_AXIS_PIPELINE;
    int here = m->index[pipeline], stages = m->size[pipeline];
    int before = here > 0 ? here - 1 : stages - 1, after = here + 1 < stages ? here + 1 : 0;
    const group_t more[COMMS - WEFT_AXES] = {
        {m->weights_comm, weft__axes[data].ranks, data, 0, 1, m->size[data]},
        {m->ends_comm, "first and last stage", pipeline, 0, stages - 1, 2},
        {m->before.forward, "neighbouring stages", pipeline, before, here - before, 2},
        {m->before.backward, "neighbouring stages", pipeline, before, here - before, 2},
        {m->after.forward, "neighbouring stages", pipeline, here, after - here, 2},
        {m->after.backward, "neighbouring stages", pipeline, here, after - here, 2}};
    for (int i = 0; i < WEFT_AXES; i++) {
        weft_axis_t axis = weft__axis_order[i];
        groups[i] = (group_t){m->comm[axis], weft__axes[axis].ranks, axis, 0, 1, m->size[axis]};
    }
    memcpy(groups + WEFT_AXES, more, sizeof(more));
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
    int index[WEFT_AXES];
    memcpy(index, m->index, sizeof(index));
    for (int i = 0; i < group->count; i++) {
        index[group->axis] = group->first + i * group->step;
        append(ranks, sizeof(ranks), &used, "%s%d", i > 0 ? " " : "", weft__mesh_rank(m, index));
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

/* ---- picture ------------------------------------------------------------------------------ */

static void append_links(const weft_mesh_t *mesh, char *text, size_t room, size_t *used)
{
    bool any = false;
    for (int i = 0; i < WEFT_AXES; i++) {
        char link[64];
        weft_axis_t axis = weft__axis_order[i];
        if (mesh->size[axis] > 1 && mesh->near[axis] != WEFT_NEAR_UNKNOWN) {
            append(text, room, used, "%s%s over %s", any ? ", " : "  ", weft__axes[axis].option,
                   weft__near_text(mesh->near[axis], link, sizeof(link)));
            any = true;
        }
    }
    append(text, room, used, any ? "\n" : "");
}

const char *weft__mesh_picture(const weft_mesh_t *mesh, char *text, size_t room)
{
    size_t used = 0;
    char axes[96];
    int digits = mesh->ranks > 100 ? 3 : mesh->ranks > 10 ? 2 : 1;
    append(text, room, &used, "%d ranks: %s\n", mesh->ranks,
           weft__axes_text(mesh->size, axes, sizeof(axes)));
    for (int p = 0; p < mesh->size[WEFT_AXIS_PIPELINE]; p++) {
        append(text, room, &used, "  stage %d ", p);
        for (int d = 0; d < mesh->size[WEFT_AXIS_DATA]; d++) {
            append(text, room, &used, " [");
            for (int t = 0; t < mesh->size[WEFT_AXIS_TENSOR]; t++) {
                const int index[WEFT_AXES] = {
                    [WEFT_AXIS_DATA] = d, [WEFT_AXIS_PIPELINE] = p, [WEFT_AXIS_TENSOR] = t};
                append(text, room, &used, "%s%*d", t > 0 ? " " : "", digits,
                       weft__mesh_rank(mesh, index));
            }
            append(text, room, &used, "]");
        }
        append(text, room, &used, "\n");
    }
    append_links(mesh, text, room, &used);
    return text;
}
