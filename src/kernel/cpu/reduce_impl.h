/* Reductions: ranges of elements cut into what the kernels of column_impl.h take. Included by the
 * kernels_*.c after their vec_*.h. */
#ifndef WEFT_KERNEL_CPU_REDUCE_IMPL_H
#define WEFT_KERNEL_CPU_REDUCE_IMPL_H

#include "kernel/cpu/column_impl.h"
#include "kernel/cpu/divide_impl.h"

/* Sources, or destinations, that one pass takes. With more the prefetchers lose track of them: then
 * blocks go through a scratch, as they do for the division of integers. 16 ranks on 16 cores, 1
 * MiB: 57 us with 8, 100 us with 32, 120 us with 2. */
#define FAN 8

/* Bytes of a block that goes through the scratch: well inside the first-level cache. Partial
 * results in f32 have twice as many. */
#define BLOCK 16384

INLINE size_t block_of(weft_dtype_t type)
{
    return is_float8(type) ? 2 * BLOCK / 4 : BLOCK / size_of(type);
}

/* Prefetching costs a third of the speed in the first-level cache, nothing in the second, and
 * gains 5 to 10% beyond: from this many bytes on, all streams together. */
#define PREFETCH_MIN ((size_t)256 << 10)

/* ---- the whole range -------------------------------------------------------------------- */

/* Elements before dsts[0] reaches a cache line. Destinations that lie the same way are streamed
 * with it, others are stored through the cache. */
INLINE size_t unaligned_start(const pass_t *pass, size_t count, size_t size)
{
    uintptr_t address = (uintptr_t)pass->dsts[0];
    size_t bytes = -address & (LINE - 1);
    if (bytes % size != 0) {
        return 0; /* not even aligned to its elements */
    }
    return bytes / size < count ? bytes / size : count;
}

/* No fence. */
static void run(const kernel_t *kernel, const pass_t *pass, size_t count, size_t size)
{
    size_t at = 0;
    if (count >= kernel->step) {
        if (pass->stream) {
            at = unaligned_start(pass, count, size);
            if (at > 0) {
                kernel->narrow(pass, 0, at);
            }
        }
        size_t end = count - (count - at) % kernel->step;
        if (end > at) {
            bool pair = pass->nsrc == 2 && pass->ndst <= 2;
            pass_fn_t fn = !pair             ? kernel->wide
                           : pass->ndst == 2 ? kernel->wide_22
                                             : kernel->wide_21;
            fn(pass, at, end);
            at = end;
        }
    }
    if (at < count) {
        kernel->narrow(pass, at, count);
    }
}

static void set_division(pass_t *pass, int n)
{
    bool power_of_two = (n & (n - 1)) == 0;
    pass->division = power_of_two ? DIVIDE_AS_PRODUCT : DIVIDE_BY;
    pass->factor = power_of_two ? 1.0 / n : n;
}

/* ---- many streams, and integer averages: block by block through a scratch ---------------- */

typedef struct block_job {
    void *const *dsts;
    const void *const *srcs;
    int ndst, nsrc;
    weft_dtype_t type;
    weft_op_t op;
    size_t size;
} block_job_t;

/* The elements [at, at + count) of all sources into `out`, FAN sources a pass, with the partial
 * result as the first source of the next pass. Halves and float8 keep that in f32, in `partial`. */
static void reduce_block(const block_job_t *job, size_t at, size_t count, void *partial, void *out)
{
    const bool widened = is_widened(job->type);
    const void *srcs[FAN];
    void *dst;
    pass_t pass = {.dsts = &dst, .srcs = srcs, .ndst = 1};

    for (int done = 0; done < job->nsrc;) {
        int taken = 0;
        if (done > 0) {
            srcs[taken++] = widened ? partial : out;
            pass.from_f32 = widened;
        }
        while (taken < FAN && done < job->nsrc) {
            srcs[taken++] = (const char *)job->srcs[done++] + at * job->size;
        }
        bool last = done == job->nsrc;
        pass.nsrc = taken;
        pass.to_f32 = widened && !last;
        dst = pass.to_f32 ? partial : out;
        if (last && job->op == WEFT_AVG && is_float(job->type)) {
            set_division(&pass, job->nsrc);
        }
        run(&kernels[job->type][job->op], &pass, count, job->size);
    }
    if (job->op == WEFT_AVG && !is_float(job->type)) {
        divide(out, count, job->type, job->nsrc);
    }
}

static void reduce_by_blocks(const block_job_t *job, size_t count, weft_store_t store)
{
    char partial[2 * BLOCK] __attribute__((aligned(LINE))); /* f32 in place of smaller types */
    char out[BLOCK] __attribute__((aligned(LINE)));
    const size_t block = block_of(job->type);

    for (size_t at = 0; at < count; at += block) {
        size_t some = count - at < block ? count - at : block;
        reduce_block(job, at, some, partial, out);
        for (int d = 0; d < job->ndst; d++) {
            char *to = (char *)job->dsts[d] + at * job->size;
            if (store == WEFT_STORE_STREAM) {
                copy_streamed(to, out, some * job->size);
            } else {
                copy_cached(to, out, some * job->size);
            }
        }
    }
}

/* ---- the table's functions -------------------------------------------------------------- */

static __attribute__((noinline)) void reduce_long(void *const *dsts, int ndst,
                                                  const void *const *srcs, int nsrc, size_t count,
                                                  weft_dtype_t type, weft_op_t op,
                                                  weft_store_t store)
{
    size_t size = size_of(type);
    if (nsrc == 1) { /* a copy, whatever the operation: an average of one, and no NaN is touched */
        if (ndst == 1) {
            copy(dsts[0], srcs[0], count * size, store);
            return;
        }
        count *= size;
        size = 1;
        type = WEFT_U8;
        op = WEFT_SUM;
    }
    if (nsrc > FAN || ndst > FAN || (op == WEFT_AVG && !is_float(type))) {
        block_job_t job = {dsts, srcs, ndst, nsrc, type, op, size};
        reduce_by_blocks(&job, count, store);
    } else {
        pass_t pass = {.dsts = dsts, .srcs = srcs, .ndst = ndst, .nsrc = nsrc};
        pass.stream = store == WEFT_STORE_STREAM;
        pass.prefetch = (size_t)(nsrc + ndst) * count * size >= PREFETCH_MIN;
        if (op == WEFT_AVG) {
            set_division(&pass, nsrc);
        }
        run(&kernels[type][op], &pass, count, size);
    }
    if (store == WEFT_STORE_STREAM) {
        vec_fence();
    }
}

/* Apart from reduce_long, so that a small call saves no registers and sets nothing up. Its stores
 * are ordinary ones, which need no fence. */
static void reduce(void *const *dsts, int ndst, const void *const *srcs, int nsrc, size_t count,
                   weft_dtype_t type, weft_op_t op, weft_store_t store)
{
    const kernel_t *kernel = &kernels[type][op];
    if (count < kernel->step && nsrc > 1 && op != WEFT_AVG) {
        kernel->tiny(dsts, ndst, srcs, nsrc, count);
    } else {
        reduce_long(dsts, ndst, srcs, nsrc, count, type, op, store);
    }
}

static void combine(void *dst, const void *a, const void *b, size_t count, weft_dtype_t type,
                    weft_op_t op)
{
    const kernel_t *kernel = &kernels[type][op];
    const void *srcs[] = {a, b};
    if (count < kernel->step) {
        kernel->tiny(&dst, 1, srcs, 2, count);
        return;
    }
    pass_t pass = {.dsts = &dst, .srcs = srcs, .ndst = 1, .nsrc = 2};
    pass.prefetch = 3 * count * size_of(type) >= PREFETCH_MIN;
    run(kernel, &pass, count, size_of(type));
}

static void finish(void *dst, const void *src, size_t count, weft_dtype_t type, weft_op_t op, int n)
{
    size_t size = size_of(type);
    if (op != WEFT_AVG || n == 1) {
        copy(dst, src, count * size, WEFT_STORE_CACHED);
        return;
    }
    if (is_float(type)) {
        pass_t pass = {.dsts = &dst, .srcs = &src, .ndst = 1, .nsrc = 1};
        pass.prefetch = 2 * count * size >= PREFETCH_MIN;
        set_division(&pass, n);
        run(&kernels[type][op], &pass, count, size);
        return;
    }
    const size_t block = BLOCK / size;
    for (size_t at = 0; at < count; at += block) {
        size_t some = count - at < block ? count - at : block;
        char *to = (char *)dst + at * size;
        copy(to, (const char *)src + at * size, some * size, WEFT_STORE_CACHED);
        divide(to, some, type, n);
    }
}

#endif
