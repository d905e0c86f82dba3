/* Teams and contexts.
 *
 * A team has a slot in the control parts of its members, which holds its ring (group.h). To make a
 * team, the members of the parent tell each other which slots they have free, and all come to the
 * same choice: for each new team the lowest slot that all its members have free. Its calls are
 * numbered from the highest number on that any member has used in that slot. So what earlier teams
 * left there is never mistaken for news, and a member of theirs that has not quite left yet is not
 * disturbed.
 *
 * Every team is start, stride and size in the world: a strided part of a strided part is one. */
#include "symm/shmem/team.h"
#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "symm/shmem/group.h"

#define WORLD_SLOT 0
#define SHARED_SLOT 1

_Static_assert(WEFT_SHMEM_TEAMS == 64, "free slots are the bits of a word");

HIDDEN weft_shmem_team_t weft__shmem_world, weft__shmem_shared;
HIDDEN weft_shmem_team_t weft__shmem_teams[WEFT_SHMEM_TEAMS];

/* The slots of a PE, as it tells the others. */
typedef struct slots {
    uint64_t free;                   /* a bit each */
    uint64_t last[WEFT_SHMEM_TEAMS]; /* the highest number used in each */
} slots_t;

_Static_assert(sizeof(slots_t) <= WEFT_SHMEM_BULK, "can be said in a call");

static slots_t slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of slots, teams and lists of contexts */

void weft__shmem_teams_init(void)
{
    const weft_shmem_state_t *s = &weft__shmem;
    weft__shmem_world = (weft_shmem_team_t){
        .stride = 1, .size = s->pes, .me = s->me, .slot = WORLD_SLOT};
    weft__shmem_shared = weft__shmem_world;
    weft__shmem_shared.slot = SHARED_SLOT;
    slots.free = ~UINT64_C(0) << (SHARED_SLOT + 1);
}

/* ---- contexts ----------------------------------------------------------------------------- */

static int create_ctx(weft_shmem_team_t *team, long options, shmem_ctx_t *ctx_p)
{
    weft_shmem_ctx_t *ctx = calloc(1, sizeof(*ctx));
    *ctx_p = SHMEM_CTX_INVALID;
    if (ctx == NULL) {
        return 1;
    }
    ctx->magic = WEFT_SHMEM_CTX_MAGIC;
    ctx->options = options;
    ctx->team = team;
    pthread_mutex_lock(&lock);
    ctx->next = team->contexts;
    team->contexts = ctx;
    pthread_mutex_unlock(&lock);
    *ctx_p = ctx;
    return 0;
}

static void free_contexts(weft_shmem_team_t *team)
{
    while (team->contexts != NULL) {
        weft_shmem_ctx_t *ctx = team->contexts;
        team->contexts = ctx->next;
        ctx->magic = 0;
        free(ctx);
    }
}

DEFINE(int, ctx_create, long options, shmem_ctx_t *ctx)
{
    return create_ctx(weft__shmem_team(SHMEM_TEAM_WORLD, CALL), options, ctx);
}

DEFINE(int, team_create_ctx, shmem_team_t team, long options, shmem_ctx_t *ctx)
{
    if (team == SHMEM_TEAM_INVALID) {
        *ctx = SHMEM_CTX_INVALID;
        return 1;
    }
    return create_ctx(weft__shmem_team(team, CALL), options, ctx);
}

DEFINE(void, ctx_destroy, shmem_ctx_t ctx)
{
    if (ctx == SHMEM_CTX_INVALID) {
        return;
    }
    if (ctx == SHMEM_CTX_DEFAULT || ctx->magic != WEFT_SHMEM_CTX_MAGIC) {
        weft__shmem_bad_ctx(CALL, ctx);
    }
    atomic_thread_fence(memory_order_seq_cst); /* an implicit quiet */
    pthread_mutex_lock(&lock);
    weft_shmem_ctx_t **at = &ctx->team->contexts;
    while (*at != ctx) {
        at = &(*at)->next;
    }
    *at = ctx->next;
    pthread_mutex_unlock(&lock);
    ctx->magic = 0;
    free(ctx);
}

DEFINE(int, ctx_get_team, shmem_ctx_t ctx, shmem_team_t *team)
{
    *team = SHMEM_TEAM_INVALID;
    if (ctx == SHMEM_CTX_INVALID) {
        return 1;
    }
    if (ctx != SHMEM_CTX_DEFAULT && ctx->magic != WEFT_SHMEM_CTX_MAGIC) {
        weft__shmem_bad_ctx(CALL, ctx);
    }
    if (ctx == SHMEM_CTX_DEFAULT || ctx->team == &weft__shmem_world) {
        *team = SHMEM_TEAM_WORLD;
    } else if (ctx->team == &weft__shmem_shared) {
        *team = SHMEM_TEAM_SHARED;
    } else {
        *team = ctx->team;
    }
    return 0;
}

/* ---- queries ------------------------------------------------------------------------------ */

DEFINE(int, team_my_pe, shmem_team_t team)
{
    return team == SHMEM_TEAM_INVALID ? -1 : weft__shmem_team(team, CALL)->me;
}

DEFINE(int, team_n_pes, shmem_team_t team)
{
    return team == SHMEM_TEAM_INVALID ? -1 : weft__shmem_team(team, CALL)->size;
}

DEFINE(int, team_get_config, shmem_team_t team, long config_mask, shmem_team_config_t *config)
{
    if (team == SHMEM_TEAM_INVALID) {
        return 1;
    }
    if (config_mask & SHMEM_TEAM_NUM_CONTEXTS) {
        config->num_contexts = weft__shmem_team(team, CALL)->config.num_contexts;
    }
    return 0;
}

/* The number in `team` of a PE of the world; -1: not in it. */
static int number_in(const weft_shmem_team_t *team, int pe)
{
    int distance = pe - team->start;
    if (team->stride == 0) {
        return distance == 0 ? 0 : -1;
    }
    int i = distance / team->stride;
    return distance % team->stride == 0 && i >= 0 && i < team->size ? i : -1;
}

DEFINE(int, team_translate_pe, shmem_team_t src_team, int src_pe, shmem_team_t dest_team)
{
    if (src_team == SHMEM_TEAM_INVALID || dest_team == SHMEM_TEAM_INVALID) {
        return -1;
    }
    const weft_shmem_team_t *from = weft__shmem_team(src_team, CALL);
    if (src_pe < 0 || src_pe >= from->size) {
        return -1;
    }
    return number_in(weft__shmem_team(dest_team, CALL), weft__shmem_member(from, src_pe));
}

DEFINE(void *, team_ptr, shmem_team_t team, const void *dest, int pe)
{
    if (team == SHMEM_TEAM_INVALID) {
        return NULL;
    }
    const weft_shmem_team_t *t = weft__shmem_team(team, CALL);
    return pe < 0 || pe >= t->size ? NULL : pshmem_ptr(dest, weft__shmem_member(t, pe));
}

/* ---- making ------------------------------------------------------------------------------- */

/* A part of the parent, in the parent's numbers. */
typedef struct part {
    int start, stride, size;
} part_t;

/* What is chosen for a part. */
typedef struct choice {
    int slot;       /* -1: none */
    uint64_t calls; /* the number that counting starts from */
} choice_t;

/* The lowest slot that all members of a part have free, taken from `all`. */
static choice_t take_slot(slots_t *all, const part_t *part)
{
    uint64_t common = ~UINT64_C(0);
    choice_t choice = {.slot = -1};
    for (int i = 0; i < part->size; i++) {
        common &= all[part->start + i * part->stride].free;
    }
    if (common == 0) {
        return choice;
    }
    choice.slot = __builtin_ctzll(common);
    for (int i = 0; i < part->size; i++) {
        slots_t *theirs = &all[part->start + i * part->stride];
        uint64_t last = theirs->last[choice.slot];
        choice.calls = last > choice.calls ? last : choice.calls;
        theirs->free &= ~(UINT64_C(1) << choice.slot);
    }
    return choice;
}

/* The slots of all members of the parent. NULL: no memory. */
static slots_t *exchange_slots(weft_shmem_team_t *parent, const char *call)
{
    slots_t *all = calloc((size_t)parent->size, sizeof(*all));
    slots_t mine;
    pthread_mutex_lock(&lock);
    mine = slots;
    pthread_mutex_unlock(&lock);
    if (all == NULL) {
        weft__warn("%s: no memory to ask the %d members of the parent", call, parent->size);
        mine.free = 0;
    }
    weft__shmem_enter(parent, &mine, sizeof(mine), call);
    weft__shmem_await_all(parent, call);
    for (int i = 0; all != NULL && i < parent->size; i++) {
        memcpy(&all[i], weft__shmem_said(parent, i, sizeof(mine)), sizeof(mine));
    }
    return all;
}

/* The team of `part` with us as member `me`. */
static weft_shmem_team_t *make_team(const weft_shmem_team_t *parent, const part_t *part,
                                    const choice_t *choice, int me,
                                    const shmem_team_config_t *config, long mask)
{
    weft_shmem_team_t *team = &weft__shmem_teams[choice->slot];
    pthread_mutex_lock(&lock);
    slots.free &= ~(UINT64_C(1) << choice->slot);
    *team = (weft_shmem_team_t){.start = weft__shmem_member(parent, part->start),
                                .stride = part->stride * parent->stride,
                                .size = part->size,
                                .me = me,
                                .slot = choice->slot,
                                .calls = choice->calls,
                                .seen = choice->calls};
    if (config != NULL && (mask & SHMEM_TEAM_NUM_CONTEXTS)) {
        team->config.num_contexts = config->num_contexts;
    }
    pthread_mutex_unlock(&lock);
    return team;
}

static void free_team(weft_shmem_team_t *team)
{
    pthread_mutex_lock(&lock);
    slots.free |= UINT64_C(1) << team->slot;
    slots.last[team->slot] = team->calls;
    free_contexts(team);
    *team = (weft_shmem_team_t){0};
    pthread_mutex_unlock(&lock);
}

/* All members of the parent hear whether all others could. */
static bool all_could(weft_shmem_team_t *parent, bool could, const char *call)
{
    uint64_t mine = could;
    weft__shmem_enter(parent, &mine, sizeof(mine), call);
    weft__shmem_await_all(parent, call);
    for (int i = 0; i < parent->size; i++) {
        uint64_t theirs;
        memcpy(&theirs, weft__shmem_said(parent, i, sizeof(theirs)), sizeof(theirs));
        could = could && theirs;
    }
    return could;
}

static int my_place(const weft_shmem_team_t *parent, const part_t *part)
{
    const weft_shmem_team_t in_parent = {
        .start = part->start, .stride = part->stride, .size = part->size};
    return number_in(&in_parent, parent->me);
}

static bool is_part(const weft_shmem_team_t *parent, const part_t *part)
{
    int64_t last = part->start + (int64_t)(part->size - 1) * part->stride;
    return part->size > 0 && part->start >= 0 && part->start < parent->size && last >= 0 &&
           last < parent->size && (part->stride != 0 || part->size == 1);
}

DEFINE(int, team_split_strided, shmem_team_t parent_team, int start, int stride, int size,
       const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team)
{
    const part_t part = {start, stride, size};
    weft_shmem_team_t *team = NULL;
    *new_team = SHMEM_TEAM_INVALID;
    if (parent_team == SHMEM_TEAM_INVALID) {
        return 1;
    }
    weft_shmem_team_t *parent = weft__shmem_team(parent_team, CALL);
    if (!is_part(parent, &part)) {
        return 1; /* all members come to the same conclusion */
    }
    slots_t *all = exchange_slots(parent, CALL);
    choice_t choice = all != NULL ? take_slot(all, &part) : (choice_t){.slot = -1};
    int me = my_place(parent, &part);
    if (choice.slot >= 0 && me >= 0) {
        team = make_team(parent, &part, &choice, me, config, config_mask);
    }
    bool done = all_could(parent, choice.slot >= 0 && (me < 0 || team != NULL), CALL);
    if (!done && team != NULL) {
        free_team(team);
    } else if (team != NULL) {
        *new_team = team;
    }
    free(all);
    return done ? 0 : 1;
}

/* Row y and column x of a parent that is laid out `width` wide. */
static part_t row(const weft_shmem_team_t *parent, int width, int y)
{
    int left = parent->size - y * width;
    return (part_t){y * width, 1, left < width ? left : width};
}

static part_t column(const weft_shmem_team_t *parent, int width, int x)
{
    return (part_t){x, width, (parent->size - x + width - 1) / width};
}

/* Choose for all rows and all columns, as everybody does; *x_p and *y_p are our own. False: there
 * is no slot for one of the teams. */
static bool take_grid(const weft_shmem_team_t *parent, slots_t *all, int width, choice_t *x_p,
                      choice_t *y_p)
{
    for (int y = 0; y * width < parent->size; y++) {
        part_t part = row(parent, width, y);
        choice_t choice = take_slot(all, &part);
        if (choice.slot < 0) {
            return false;
        }
        *x_p = y == parent->me / width ? choice : *x_p;
    }
    for (int x = 0; x < width; x++) {
        part_t part = column(parent, width, x);
        choice_t choice = take_slot(all, &part);
        if (choice.slot < 0) {
            return false;
        }
        *y_p = x == parent->me % width ? choice : *y_p;
    }
    return true;
}

DEFINE(int, team_split_2d, shmem_team_t parent_team, int xrange,
       const shmem_team_config_t *xaxis_config, long xaxis_mask, shmem_team_t *xaxis_team,
       const shmem_team_config_t *yaxis_config, long yaxis_mask, shmem_team_t *yaxis_team)
{
    weft_shmem_team_t *x_team = NULL, *y_team = NULL;
    choice_t x_choice = {.slot = -1}, y_choice = {.slot = -1};
    *xaxis_team = *yaxis_team = SHMEM_TEAM_INVALID;
    if (parent_team == SHMEM_TEAM_INVALID || xrange < 1) {
        return 1;
    }
    weft_shmem_team_t *parent = weft__shmem_team(parent_team, CALL);
    int width = xrange < parent->size ? xrange : parent->size;
    int x = parent->me % width, y = parent->me / width;
    slots_t *all = exchange_slots(parent, CALL);
    if (all != NULL && take_grid(parent, all, width, &x_choice, &y_choice)) {
        part_t mine_x = row(parent, width, y), mine_y = column(parent, width, x);
        x_team = make_team(parent, &mine_x, &x_choice, x, xaxis_config, xaxis_mask);
        y_team = make_team(parent, &mine_y, &y_choice, y, yaxis_config, yaxis_mask);
    }
    bool done = all_could(parent, x_team != NULL && y_team != NULL, CALL);
    if (done) {
        *xaxis_team = x_team;
        *yaxis_team = y_team;
    } else {
        if (x_team != NULL) {
            free_team(x_team);
        }
        if (y_team != NULL) {
            free_team(y_team);
        }
    }
    free(all);
    return done ? 0 : 1;
}

DEFINE(void, team_destroy, shmem_team_t team)
{
    if (team == SHMEM_TEAM_INVALID) {
        return;
    }
    weft_shmem_team_t *t = weft__shmem_team(team, CALL);
    if (t == &weft__shmem_world || t == &weft__shmem_shared) {
        weft__shmem_die("%s on PE %d: a predefined team cannot be destroyed", CALL, weft__shmem.me);
    }
    weft__shmem_sync(t, CALL);
    free_team(t);
}

void weft__shmem_teams_cleanup(void)
{
    for (int slot = SHARED_SLOT + 1; slot < WEFT_SHMEM_TEAMS; slot++) {
        if (weft__shmem_teams[slot].size > 0) {
            free_team(&weft__shmem_teams[slot]);
        }
    }
    free_contexts(&weft__shmem_world);
    free_contexts(&weft__shmem_shared);
}
