/* Time of training steps of one rank, and where it goes:
 * model/step_time [MODEL [BATCH [MICRO [STEPS]]]]
 *
 * Prints tokens a second (median of the steps), the time in every kernel, and what matrix products
 * of each shape reached. WEFT_THREADS sets the threads, WEFT_BLAS the library. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/settings.h"
#include "kernel/cpu/inner.h"
#include "kernel/cpu/team.h"
#include "model/rig.h"

static const weft_compute_t *inner;
static bool of_thread;

/* Seconds; with WEFT_THREADS=1 those that this thread ran, which others on the machine do not
 * change. */
static double now(void)
{
    struct timespec time;
    clock_gettime(of_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* A table that times every kernel of the real one. */
#define TIMED(name, args_t)                                                                        \
    static double name##_s;                                                                        \
    static weft_status_t timed_##name(const args_t *args, weft_stream_h stream)                    \
    {                                                                                              \
        double start = now();                                                                      \
        weft_status_t status = inner->name(args, stream);                                          \
        name##_s += now() - start;                                                                 \
        return status;                                                                             \
    }
WEFT_COMPUTE_TABLE(TIMED)

/* Products by shape, in the order in which they first came. */
enum { SHAPES = 24 };

static struct shape {
    int64_t m, n, k;
    bool trans_a, trans_b;
    double seconds, flops;
} shapes[SHAPES];
static int shape_count;

static struct shape *shape_of(const weft_matmul_t *args)
{
    struct shape here = {.m = args->m, .n = args->n, .k = args->k};
    here.trans_a = args->trans_a;
    here.trans_b = args->trans_b;
    for (int i = 0; i < shape_count; i++) {
        struct shape *s = &shapes[i];
        if (s->m == here.m && s->n == here.n && s->k == here.k && s->trans_a == here.trans_a &&
            s->trans_b == here.trans_b) {
            return s;
        }
    }
    shape_count += shape_count < SHAPES ? 1 : 0; /* the last one is all that are left over */
    shapes[shape_count - 1] = here;
    return &shapes[shape_count - 1];
}

static weft_status_t counted_matmul(const weft_matmul_t *args, weft_stream_h stream)
{
    struct shape *shape = shape_of(args);
    double before = matmul_s;
    weft_status_t status = timed_matmul(args, stream);
    shape->seconds += matmul_s - before;
    shape->flops += 2.0 * (double)args->m * (double)args->n * (double)args->k;
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_line(const char *name, double seconds, double all)
{
    if (seconds > 0) {
        printf("%-20s %9.2f ms %5.1f%%\n", name, seconds * 1e3, 100 * seconds / all);
    }
}

static double one_step(rig_t *rig, int64_t step, int micros)
{
    const weft_adamw_t adamw = {
        .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f};
    double start = now();
    rig_zero_grads(rig);
    for (int i = 0; i < micros; i++) {
        rig_tokens(rig, (uint64_t)(step * micros + i));
        rig_run(rig);
    }
    rig_step(rig, step, &adamw, 1.0f);
    return now() - start;
}

static void print_kernels(int steps)
{
    double sum = 0;
#define ADD_UP(name, args_t) sum += name##_s;
    WEFT_COMPUTE_TABLE(ADD_UP)
#define PRINT(name, args_t) print_line(#name, name##_s / steps, sum / steps);
    WEFT_COMPUTE_TABLE(PRINT)
    print_line("all kernels", sum / steps, sum / steps);
    double flops = 0;
    for (int i = 0; i < shape_count; i++) {
        const struct shape *x = &shapes[i];
        printf("  %6lld x %5lld x %6lld %s %9.2f ms %7.1f GFLOP/s\n", (long long)x->m,
               (long long)x->n, (long long)x->k,
               x->trans_a   ? "a^T b"
               : x->trans_b ? "a b^T"
                            : "a b  ",
               x->seconds / steps * 1e3, x->flops / x->seconds * 1e-9);
        flops += x->flops;
    }
    printf("matrix products: %.1f GFLOP/s\n", flops / matmul_s * 1e-9);
}

static void forget_times(void)
{
#define FORGET(name, args_t) name##_s = 0;
    WEFT_COMPUTE_TABLE(FORGET)
    shape_count = 0;
}

int main(int argc, char **argv)
{
    int batch = 64, micro = 8, steps = 5;
    double times[100];
    rig_t rig;
    rig_options_t options = {0};
    rig_check(weft__config_find(argc > 1 ? argv[1] : "small", &options.config), "model");
    if ((argc > 2 && !weft__parse_int(argv[2], &batch)) ||
        (argc > 3 && !weft__parse_int(argv[3], &micro)) ||
        (argc > 4 && !weft__parse_int(argv[4], &steps)) || micro < 1 || batch % micro != 0 ||
        steps < 1 || steps > 100) {
        fprintf(stderr, "usage: step_time [MODEL [BATCH [MICRO [STEPS]]]], MICRO divides BATCH\n");
        return 2;
    }
    options.shape = WEFT_SHAPE(micro, (int64_t)options.config.context);
    rig_open(&rig, &options);
    rig_init(&rig, 1, 1.0f);
    inner = rig.compute;
    of_thread = weft__team_size() == 1;
    weft_compute_t timed = *inner;
#define SET(name, args_t) timed.name = timed_##name;
    WEFT_COMPUTE_TABLE(SET)
    timed.matmul = counted_matmul;
    rig.pass.compute = rig.compute = &timed;
    rig.pass.loss_scale /= (float)(batch / micro);
    one_step(&rig, 1, batch / micro);
    forget_times();
    for (int i = 0; i < steps; i++) {
        times[i] = one_step(&rig, 2 + i, batch / micro);
    }
    print_kernels(steps);
    qsort(times, (size_t)steps, sizeof(*times), by_value);
    double tokens = (double)batch * (double)options.config.context, median = times[steps / 2];
    printf("%s, %d threads, %s: %.1f ms a step (%.1f to %.1f), %.0f tokens/s, %.1f GFLOP/s\n",
           argc > 1 ? argv[1] : "small", weft__team_size(), weft__inner()->name, median * 1e3,
           times[0] * 1e3, times[steps - 1] * 1e3, tokens / median,
           weft__config_flops(&options.config, options.config.context) * tokens / median * 1e-9);
    rig_close(&rig);
    return 0;
}
