/* Chooses the inner loops: those of the same name as the reductions in force, or with AMX beside
 * AVX-512. */
#include "kernel/cpu/inner.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(WEFT_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/settings.h"
#include "kernel/cpu/cpu.h"

static const weft_inner_t *const tables[] = {
#if defined(__x86_64__)
    &weft__inner_avx512,
    &weft__inner_avx2,
#endif
    &weft__inner_none,
};

/* Set once in a race that all sides win alike; relaxed: the tables are constants. */
static _Atomic(const weft_inner_t *) in_force;

/* ---- AMX ------------------------------------------------------------------------------------ */

#if defined(WEFT_AMX)
static pthread_once_t asked = PTHREAD_ONCE_INIT;
static bool allowed;

/* A process has to ask for tiles, as its threads then take 8 KiB more at every switch, and signals
 * as much of their stacks. So only one that multiplies asks, and only once. Old kernels do not know
 * the question. */
static void ask_for_tiles(void)
{
    enum { ASK_FOR_STATE = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    allowed = weft__cpu_has_amx() && syscall(SYS_arch_prctl, ASK_FOR_STATE, TILES) == 0;
}

static const weft_inner_t *amx(void)
{
    pthread_once(&asked, ask_for_tiles);
    return allowed ? &weft__inner_amx : NULL;
}
#else
static const weft_inner_t *amx(void)
{
    return NULL;
}
#endif

/* ---- the table ------------------------------------------------------------------------------ */

const weft_inner_t *weft__inner_named(const char *name)
{
    if (strcmp(name, "amx") == 0) {
        return amx();
    }
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (strcmp(tables[i]->name, name) == 0 && weft__kernels_named(name) != NULL) {
            return tables[i];
        }
    }
    return NULL;
}

static const weft_inner_t *choose(void)
{
    const char *simd = weft__settings()->simd, *name = weft__kernels()->name;
    bool best = strcmp(simd, "auto") == 0 || strcmp(simd, "amx") == 0;
    const weft_inner_t *table = best && strcmp(name, "avx512") == 0 ? amx() : NULL;
    return table != NULL ? table : weft__inner_named(name);
}

const weft_inner_t *weft__inner(void)
{
    const weft_inner_t *table = atomic_load_explicit(&in_force, memory_order_relaxed);
    if (table == NULL) {
        table = choose();
        atomic_store_explicit(&in_force, table, memory_order_relaxed);
    }
    return table;
}

const char *weft__compute_simd(void)
{
    return weft__inner()->name;
}

void weft__inner_use(const weft_inner_t *table)
{
    atomic_store_explicit(&in_force, table, memory_order_relaxed);
}
