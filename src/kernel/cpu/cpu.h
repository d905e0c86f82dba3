/* What the tables of src/kernel/cpu share. Internal to this folder. */
#ifndef WEFT_KERNEL_CPU_CPU_H
#define WEFT_KERNEL_CPU_CPU_H

#include <stdbool.h>

#include "kernel/kernel.h"

extern const weft_kernels_t weft__kernels_none;
#if defined(__x86_64__)
extern const weft_kernels_t weft__kernels_avx2;   /* needs AVX2 and F16C */
extern const weft_kernels_t weft__kernels_avx512; /* needs AVX-512 F, BW, VL, DQ */
#endif

/* Has this CPU AMX for bf16, and what goes with it (AVX-512 with BF16)? Reductions do not use
 * it. */
bool weft__cpu_has_amx(void);

/* Whether libc's memcpy is the fastest cached copy of a few KiB and more. It is where `rep movsb`
 * is good (Intel) and on other architectures. On AMD it is not: there `rep movsb`, which memcpy
 * takes, is many times slower when the destination lies a few bytes above the source modulo 4096.
 * Written once, before any table is handed out. */
extern bool weft__copy_by_libc;

#endif
