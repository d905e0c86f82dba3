/* Tensors that exist twice, for tests of compute kernels: on the host for the CPU's table, and on
 * the device for the other one. A case makes its tensors, runs a function on both, and twin_compare
 * tells how far apart the results are. */
#ifndef WEFT_TEST_GPU_TWINS_H
#define WEFT_TEST_GPU_TWINS_H

#include "kernel/compute.h"

typedef struct twin {
    void *host, *device;
} twin_t;

/* What there is for a case: the two tables, a stream, a seed that differs from run to run. */
typedef struct twins {
    const weft_compute_t *cpu, *gpu;
    weft_stream_h stream;
    uint64_t seed;
} twins_t;

/* Random in [-scale, scale], the same on both sides. A result is compared afterwards; start with
 * random values where a function adds to it, or must overwrite it. */
twin_t twin_input(twins_t *twins, int64_t count, weft_dtype_t type, double scale);
twin_t twin_result(twins_t *twins, int64_t count, weft_dtype_t type, double scale);
/* Integers in [from, to). */
twin_t twin_numbers(twins_t *twins, int64_t count, int32_t from, int32_t to);
/* Memory without a meaning. */
twin_t twin_work(twins_t *twins, size_t host_bytes, size_t device_bytes);

/* Element `at` of the tensor with this host's side is x, on both sides. */
void twin_put(const void *host, int64_t at, double x);

/* The host's side was changed by the case: the device's starts from that, too. */
void twin_restart(const void *host);

/* Differences of this case are relative to the largest value of a tensor plus `magnitude`: that of
 * what was added up to it, where terms may cancel and each was rounded on its own. */
void twin_magnitude(double magnitude);

/* Set a field of two structs of arguments, cpu and gpu. */
#define TWIN(field, twin)                                                                          \
    do {                                                                                           \
        twin_t twin_ = (twin);                                                                     \
        cpu.field = twin_.host;                                                                    \
        gpu.field = twin_.device;                                                                  \
    } while (0)

/* Run a function on both sides; then once more on the device from the same start: every bit of a
 * result must be the same again. Frees the tensors of the case. `limit` is for f32, relative to the
 * largest value of a tensor; bf16 and f16 get what their digits allow. A limit of 0: the very same
 * numbers. */
#define TWIN_RUN(twins, name, limit)                                                               \
    do {                                                                                           \
        twin_check((twins)->cpu->name(&cpu, NULL));                                                \
        twin_check((twins)->gpu->name(&gpu, (twins)->stream));                                     \
        twin_compare(twins, #name, limit);                                                         \
        twin_check((twins)->gpu->name(&gpu, (twins)->stream));                                     \
        twin_repeat(twins, #name);                                                                 \
    } while (0)

void twin_check(weft_status_t status);
void twin_compare(twins_t *twins, const char *name, double limit);
void twin_repeat(twins_t *twins, const char *name);

/* What is said about a difference that is too large. */
void twin_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print the worst differences by function; returns how many cases failed. */
int twin_summary(void);

#endif
