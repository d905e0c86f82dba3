/* Deprecated: collectives on active sets, and names of before 1.2. */
#include "symm/shmem/collective.h"
#include "symm/shmem/reduce.h"

/* Declares `set`, the active set of the call's parameters. */
#define ACTIVE_SET                                                                                 \
    weft_shmem_team_t set;                                                                         \
    weft__shmem_active_set(PE_start, logPE_stride, PE_size, CALL, &set);                           \
    (void)pSync

DEFINE(void, sync, int PE_start, int logPE_stride, int PE_size, long *pSync)
{
    ACTIVE_SET;
    weft__shmem_sync(&set, CALL);
}

DEFINE(void, barrier, int PE_start, int logPE_stride, int PE_size, long *pSync)
{
    ACTIVE_SET;
    weft__shmem_sync(&set, CALL);
}

#define DEFINE_COLLECTIVES(bits)                                                                   \
    DEFINE(void, broadcast##bits, void *dest, const void *source, size_t nelems, int PE_root,      \
           int PE_start, int logPE_stride, int PE_size, long *pSync)                               \
    {                                                                                              \
        ACTIVE_SET;                                                                                \
        weft__shmem_broadcast(&set, dest, source, weft__shmem_bytes(nelems, bits / 8), PE_root,    \
                              false, CALL);                                                        \
    }                                                                                              \
    DEFINE(void, collect##bits, void *dest, const void *source, size_t nelems, int PE_start,       \
           int logPE_stride, int PE_size, long *pSync)                                             \
    {                                                                                              \
        ACTIVE_SET;                                                                                \
        weft__shmem_collect(&set, dest, source, weft__shmem_bytes(nelems, bits / 8), CALL);        \
    }                                                                                              \
    DEFINE(void, fcollect##bits, void *dest, const void *source, size_t nelems, int PE_start,      \
           int logPE_stride, int PE_size, long *pSync)                                             \
    {                                                                                              \
        ACTIVE_SET;                                                                                \
        weft__shmem_fcollect(&set, dest, source, weft__shmem_bytes(nelems, bits / 8), CALL);       \
    }                                                                                              \
    DEFINE(void, alltoall##bits, void *dest, const void *source, size_t nelems, int PE_start,      \
           int logPE_stride, int PE_size, long *pSync)                                             \
    {                                                                                              \
        ACTIVE_SET;                                                                                \
        weft__shmem_alltoall(&set, dest, source, weft__shmem_bytes(nelems, bits / 8), CALL);       \
    }                                                                                              \
    DEFINE(void, alltoalls##bits, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,    \
           size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync)                \
    {                                                                                              \
        ACTIVE_SET;                                                                                \
        weft__shmem_alltoalls(&set, dest, source, dst, sst, nelems, bits / 8, CALL);               \
    }
DEFINE_COLLECTIVES(32)
DEFINE_COLLECTIVES(64)

#define DEFINE_REDUCTION(name, op, type)                                                           \
    DEFINE(void, name##_##op##_to_all, type *dest, const type *source, int nreduce, int PE_start,  \
           int logPE_stride, int PE_size, type *pWrk, long *pSync)                                 \
    {                                                                                              \
        ACTIVE_SET;                                                                                \
        (void)pWrk;                                                                                \
        weft__shmem_reduce(&set, dest, source, nreduce > 0 ? (size_t)nreduce : 0,                  \
                           WEFT_SHMEM_REDUCTION(op, type), CALL);                                  \
    }

SHMEM_TYPES_TO_ALL_INTEGER(DEFINE_INTEGER)
SHMEM_TYPES_REAL(DEFINE_REAL)
DEFINE_ARITHMETIC(complexf, shmem_complexf_t)
DEFINE_ARITHMETIC(complexd, shmem_complexd_t)

/* ---- names of before 1.2 ------------------------------------------------------------------ */

void start_pes(int npes)
{
    (void)npes;
    if (weft__shmem.pes == 0) {
        pshmem_init(); /* exit finalizes */
    }
}

int _my_pe(void)
{
    return pshmem_my_pe();
}

int _num_pes(void)
{
    return pshmem_n_pes();
}

void *shmalloc(size_t size)
{
    return pshmem_malloc(size);
}

void *shmemalign(size_t alignment, size_t size)
{
    return pshmem_align(alignment, size);
}

void *shrealloc(void *ptr, size_t size)
{
    return pshmem_realloc(ptr, size);
}

void shfree(void *ptr)
{
    pshmem_free(ptr);
}
