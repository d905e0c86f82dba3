/* Chooses the inner loops: those of the same name as the reductions in force. */
#include "kernel/cpu/inner.h"

#include <stdatomic.h>
#include <string.h>

#include "kernel/kernel.h"

static const weft_inner_t *const tables[] = {
#if defined(__x86_64__)
#if defined(WEFT_AMX)
    &weft__inner_amx,
#endif
    &weft__inner_avx512,
    &weft__inner_avx2,
#endif
    &weft__inner_none,
};

/* Set once in a race that all sides win alike; relaxed: the tables are constants. */
static _Atomic(const weft_inner_t *) in_force;

const weft_inner_t *weft__inner_named(const char *name)
{
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (strcmp(tables[i]->name, name) == 0 && weft__kernels_named(name) != NULL) {
            return tables[i];
        }
    }
    return NULL;
}

const weft_inner_t *weft__inner(void)
{
    const weft_inner_t *table = atomic_load_explicit(&in_force, memory_order_relaxed);
    if (table == NULL) {
        table = weft__inner_named(weft__kernels()->name);
        atomic_store_explicit(&in_force, table, memory_order_relaxed);
    }
    return table;
}

void weft__inner_use(const weft_inner_t *table)
{
    atomic_store_explicit(&in_force, table, memory_order_relaxed);
}
