/* Which rank gets which cores.
 *
 * Every rank wants some cores: those near to what it uses, or all if nothing is known. Ranks that
 * want the same ones share them evenly. Those who want few choose first, and whoever comes later
 * takes what is left as long as that is a core for each of them. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "topo/cores.h"
#include "topo/topo.h"

#define WORD_BITS (8 * sizeof(unsigned long))

typedef struct plan {
    int cores;
    unsigned long *masks; /* CPUs of each core, bind->words each */
    unsigned char *taken; /* a byte a core */
    unsigned char *wants; /* a byte a core, for each rank */
    bool *placed;         /* each rank */
    weft_bind_t *bind;
} plan_t;

static unsigned long *mask_of(unsigned long *masks, size_t words, int index)
{
    return masks + (size_t)index * words;
}

static unsigned char *wants_of(const plan_t *plan, int rank)
{
    return plan->wants + (size_t)rank * (size_t)plan->cores;
}

static int count(const unsigned char *cores, int length)
{
    int sum = 0;
    for (int i = 0; i < length; i++) {
        sum += cores[i];
    }
    return sum;
}

/* ---- what ranks want ---------------------------------------------------------------------- */

static bool overlap(const unsigned long *a, size_t a_words, const unsigned long *b, size_t b_words)
{
    for (size_t i = 0; i < a_words && i < b_words; i++) {
        if ((a[i] & b[i]) != 0) {
            return true;
        }
    }
    return false;
}

static void ask_ranks(const plan_t *plan, const weft_bind_t *near)
{
    const weft_bind_t *bind = plan->bind;
    for (int rank = 0; rank < bind->ranks; rank++) {
        unsigned char *wants = wants_of(plan, rank);
        for (int core = 0; near != NULL && core < plan->cores; core++) {
            wants[core] = overlap(mask_of(plan->masks, bind->words, core), bind->words,
                                  mask_of(near->masks, near->words, rank), near->words);
        }
        if (count(wants, plan->cores) == 0) {
            memset(wants, 1, (size_t)plan->cores);
        }
    }
}

/* ---- who gets what ------------------------------------------------------------------------ */

/* Is the core at `place` of `cores` for the rank at `turn` of `ranks`? */
static bool is_share(int place, int cores, int turn, int ranks)
{
    if (ranks > cores) {
        return turn % cores == place;
    }
    return place >= (int)((int64_t)turn * cores / ranks) &&
           place < (int)((int64_t)(turn + 1) * cores / ranks);
}

/* Share the cores that `first` wants among all ranks that want the same. `pool` has room for a
 * byte a core. */
static void place_alike(const plan_t *plan, int first, unsigned char *pool)
{
    const weft_bind_t *bind = plan->bind;
    const unsigned char *wants = wants_of(plan, first);
    size_t length = (size_t)plan->cores;
    int ranks = 0, turn = 0;
    for (int rank = first; rank < bind->ranks; rank++) {
        ranks += !plan->placed[rank] && memcmp(wants_of(plan, rank), wants, length) == 0;
    }
    for (int core = 0; core < plan->cores; core++) {
        pool[core] = wants[core] && !plan->taken[core];
    }
    if (count(pool, plan->cores) < ranks) {
        memcpy(pool, wants, length);
    }
    int cores = count(pool, plan->cores);
    for (int rank = first; rank < bind->ranks; rank++) {
        if (plan->placed[rank] || memcmp(wants_of(plan, rank), wants, length) != 0) {
            continue;
        }
        for (int core = 0, place = 0; core < plan->cores; place += pool[core++]) {
            if (!pool[core] || !is_share(place, cores, turn, ranks)) {
                continue;
            }
            plan->taken[core] = 1;
            for (size_t i = 0; i < bind->words; i++) {
                mask_of(bind->masks, bind->words, rank)[i] |= mask_of(plan->masks, bind->words,
                                                                      core)[i];
            }
        }
        plan->placed[rank] = true;
        turn++;
    }
}

/* The rank that wants fewest cores of those that have none yet; -1 if all have some. */
static int choose_next(const plan_t *plan)
{
    int next = -1, fewest = 0;
    for (int rank = 0; rank < plan->bind->ranks; rank++) {
        int cores = plan->placed[rank] ? 0 : count(wants_of(plan, rank), plan->cores);
        if (cores > 0 && (next < 0 || cores < fewest)) {
            next = rank;
            fewest = cores;
        }
    }
    return next;
}

/* ---- the plan ----------------------------------------------------------------------------- */

/* The usable CPUs of every core; *masks_p is freed by the caller. */
static weft_status_t read_cores(int *cores_p, size_t *words_p, unsigned long **masks_p)
{
    hwloc_topology_t topology;
    hwloc_obj_t core = NULL;
    weft_status_t status = weft__cores_load(false, &topology);
    if (status != WEFT_OK) {
        return status;
    }
    hwloc_bitmap_t usable = weft__cores_usable(topology);
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    int last = usable == NULL ? -1 : hwloc_bitmap_last(usable);
    if (cpus == NULL || last < 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "topo: there is no CPU that we may use");
        goto out;
    }
    int cores = weft__cores_count(topology, usable);
    size_t words = (size_t)last / WORD_BITS + 1;
    unsigned long *masks = calloc((size_t)cores * words, sizeof(unsigned long));
    if (masks == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory for the masks of %d cores", cores);
        goto out;
    }
    for (int i = 0; i < cores; i++) {
        core = weft__cores_next(topology, usable, core);
        hwloc_bitmap_and(cpus, core->cpuset, usable);
        for (size_t word = 0; word < words; word++) {
            mask_of(masks, words, i)[word] = hwloc_bitmap_to_ith_ulong(cpus, (unsigned)word);
        }
    }
    *cores_p = cores;
    *words_p = words;
    *masks_p = masks;
out:
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(usable);
    hwloc_topology_destroy(topology);
    return status;
}

weft_status_t weft__bind_plan(int ranks, const weft_bind_t *near, weft_bind_t *bind_p)
{
    weft_bind_t bind = {.ranks = ranks};
    plan_t plan = {.bind = &bind};
    weft_status_t status = read_cores(&plan.cores, &bind.words, &plan.masks);
    if (status != WEFT_OK) {
        return status;
    }
    size_t cores = (size_t)plan.cores;
    unsigned char *pool = calloc(cores, 1);
    plan.taken = calloc(cores, 1);
    plan.wants = calloc((size_t)ranks, cores);
    plan.placed = calloc((size_t)ranks, sizeof(bool));
    bind.masks = calloc((size_t)ranks * bind.words, sizeof(unsigned long));
    if (pool == NULL || plan.taken == NULL || plan.wants == NULL || plan.placed == NULL ||
        bind.masks == NULL) {
        weft__bind_cleanup(&bind);
        status = weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory for the masks of %d ranks", ranks);
        goto out;
    }
    ask_ranks(&plan, near);
    for (int rank; (rank = choose_next(&plan)) >= 0;) {
        place_alike(&plan, rank, pool);
    }
    *bind_p = bind;
out:
    free(plan.masks);
    free(plan.taken);
    free(plan.wants);
    free(plan.placed);
    free(pool);
    return status;
}

void weft__bind_cleanup(weft_bind_t *bind)
{
    free(bind->masks);
    memset(bind, 0, sizeof(*bind));
}

void weft__bind_print(const weft_bind_t *bind, int rank, char cpus[WEFT_TOPO_CPUS])
{
    hwloc_bitmap_t bitmap = hwloc_bitmap_alloc();
    cpus[0] = '\0';
    if (bitmap == NULL) {
        return;
    }
    for (size_t i = 0; i < bind->words; i++) {
        hwloc_bitmap_set_ith_ulong(bitmap, (unsigned)i, mask_of(bind->masks, bind->words, rank)[i]);
    }
    weft__cores_print(bitmap, cpus);
    hwloc_bitmap_free(bitmap);
}
