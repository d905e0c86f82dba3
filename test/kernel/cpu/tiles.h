/* AMX for CPUs without it. */
#ifndef WEFT_TEST_KERNEL_CPU_TILES_H
#define WEFT_TEST_KERNEL_CPU_TILES_H

#include "kernel/cpu/inner.h"

/* A table as "amx", with tiles in memory; NULL if this CPU has no AVX-512, which the rest needs. */
const weft_inner_t *tiles_emulated(void);

#endif
