/* A grid laid over a machine's links: see places.h. */
#include "parallel/places.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Groups of `size` ranks each, one behind the other; being merged, some are used up. */
typedef struct groups {
    int count, size;
    const int *ranks;
    bool *used;
    const uint8_t *near;
    int all; /* ranks */
} groups_t;

/* The slowest link between members of the same index: those are the ones that will talk. */
static int nearness(const groups_t *g, int a, int b)
{
    int least = WEFT_NEAR_SAME;
    for (int i = 0; i < g->size; i++) {
        size_t from = (size_t)g->ranks[a * g->size + i], to = (size_t)g->ranks[b * g->size + i];
        int here = g->near[from * (size_t)g->all + to];
        least = here < least ? here : least;
    }
    return least;
}

static int first_left(const groups_t *g)
{
    int i = 0;
    while (i < g->count && g->used[i]) {
        i++;
    }
    return i;
}

/* Of those that are left, the nearest to all of `members`: by its slowest link, then by all of
 * them, then the first. */
static int nearest_left(const groups_t *g, const int *members, int count)
{
    int best = -1, best_least = -1;
    int64_t best_sum = -1;
    for (int i = 0; i < g->count; i++) {
        int least = WEFT_NEAR_SAME;
        int64_t sum = 0;
        for (int m = 0; m < count && !g->used[i]; m++) {
            int here = nearness(g, members[m], i);
            least = here < least ? here : least;
            sum += here;
        }
        bool nearer = least > best_least || (least == best_least && sum > best_sum);
        if (!g->used[i] && nearer) {
            best = i;
            best_least = least;
            best_sum = sum;
        }
    }
    return best;
}

/* Merge groups `per` at a time into `out`. `chain`: each of them must be near to the one before it,
 * and not to all. */
static void merge(groups_t *g, int per, bool chain, int *members, int *out)
{
    size_t bytes = (size_t)g->size * sizeof(int);
    memset(g->used, 0, (size_t)g->count * sizeof(bool));
    for (int done = 0; done < g->count; done += per) {
        for (int m = 0; m < per; m++) {
            int from = chain && m > 0 ? m - 1 : 0;
            members[m] = m == 0 ? first_left(g) : nearest_left(g, members + from, m - from);
            g->used[members[m]] = true;
            memcpy(out + (size_t)(done + m) * (size_t)g->size,
                   g->ranks + (size_t)members[m] * (size_t)g->size, bytes);
        }
    }
}

weft_status_t weft__places_arrange(const weft_plan_t *plan, int size, const uint8_t *near,
                                   int *ranks)
{
    int *rows = calloc(2 * (size_t)size, sizeof(int)), *members = rows + size;
    bool *used = calloc((size_t)size, sizeof(bool));
    if (rows == NULL || used == NULL) {
        free(rows);
        free(used);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to arrange %d ranks", size);
    }
    for (int i = 0, inner = 1; i < WEFT_AXES; i++) {
        weft_axis_t axis = weft__axis_order[i];
        groups_t groups = {size / inner, inner, ranks, used, near, size};
        merge(&groups, plan->size[axis], weft__axes[axis].chain, members, rows);
        memcpy(ranks, rows, (size_t)size * sizeof(int));
        inner *= plan->size[axis];
    }
    free(rows);
    free(used);
    return WEFT_OK;
}

const char *weft__near_text(uint8_t near, char *text, size_t room)
{
    static const char *const texts[] = {
#define WEFT_NEAR_TEXT(name, text) text,
        WEFT_NEAR_TABLE(WEFT_NEAR_TEXT)
#undef WEFT_NEAR_TEXT
    };
    if (near == WEFT_NEAR_SAME) {
        snprintf(text, room, "one GPU");
    } else if (near >= WEFT_NEAR_NVLINK) {
        snprintf(text, room, "%s (%d)", texts[WEFT_NEAR_NVLINK], near - WEFT_NEAR_NVLINK + 1);
    } else {
        snprintf(text, room, "%s", texts[near]);
    }
    return text;
}
