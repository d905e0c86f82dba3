/* Chooses the table for this CPU, once. */
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/log.h"
#include "base/settings.h"
#include "kernel/cpu/cpu.h"

bool weft__copy_by_libc = true;

typedef struct candidate {
    const weft_kernels_t *table;
    bool (*runs)(void);
} candidate_t;

static bool runs_always(void)
{
    return true;
}

#if defined(__x86_64__)
/* The compilers' own test does not know the name in all versions; the bit is CPUID.1:ECX[29]. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & (1u << 29)) != 0;
}

static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

#endif

bool weft__cpu_has_amx(void)
{
#if defined(WEFT_AMX)
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, avx512_bf16 = 1u << 5;
    unsigned eax, ebx, ecx, edx, more;
    __builtin_cpu_init();
    return runs_avx512() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
           (edx & amx_bf16) != 0 && (edx & amx_tile) != 0 &&
           __get_cpuid_count(7, 1, &more, &ebx, &ecx, &edx) && (more & avx512_bf16) != 0;
#else
    return false;
#endif
}

/* Best first; the last runs everywhere. */
static const candidate_t candidates[] = {
#if defined(__x86_64__)
    {&weft__kernels_avx512, runs_avx512},
    {&weft__kernels_avx2, runs_avx2},
#endif
    {&weft__kernels_none, runs_always},
};

#define CANDIDATES ((int)(sizeof(candidates) / sizeof(candidates[0])))

static pthread_once_t probed = PTHREAD_ONCE_INIT;
static pthread_once_t chosen = PTHREAD_ONCE_INIT;
static bool available[CANDIDATES];
static const weft_kernels_t *table;

static void probe(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    weft__copy_by_libc = __builtin_cpu_is("intel");
#endif
    for (int i = 0; i < CANDIDATES; i++) {
        available[i] = candidates[i].runs();
    }
}

const weft_kernels_t *weft__kernels_named(const char *name)
{
    pthread_once(&probed, probe);
    for (int i = 0; i < CANDIDATES; i++) {
        if (available[i] && strcmp(candidates[i].table->name, name) == 0) {
            return candidates[i].table;
        }
    }
    return NULL;
}

static const weft_kernels_t *best(void)
{
    int i = 0;
    while (!available[i]) {
        i++;
    }
    return candidates[i].table;
}

static void choose(void)
{
    static const char *const names[] = {"auto", "amx", "avx512", "avx2", "none"};
    const char *wanted = weft__settings()->simd;

    pthread_once(&probed, probe);
    table = best();
    if (strcmp(wanted, "auto") == 0) {
        return;
    }
    if (strcmp(wanted, "amx") == 0 && weft__cpu_has_amx()) {
        return; /* for products (inner.h); the rest is AVX-512's */
    }
    const weft_kernels_t *named = weft__kernels_named(wanted);
    if (named != NULL) {
        table = named;
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(wanted, names[i]) == 0) {
            weft__warn("WEFT_SIMD=%s: this CPU cannot run it; using %s", wanted, table->name);
            return;
        }
    }
    weft__warn("WEFT_SIMD=%s: not one of auto, amx, avx512, avx2, none; using %s", wanted,
               table->name);
}

const weft_kernels_t *weft__kernels(void)
{
    pthread_once(&chosen, choose);
    return table;
}
