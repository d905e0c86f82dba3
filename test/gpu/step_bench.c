/* Time of whole training steps on a device, and where it goes:
 * gpu/step_bench [MODEL [BATCH [SEQ [STEPS]]]]
 *
 * bf16 with f32 master weights, random tokens; forward, backward, clipping and AdamW in every step.
 * Prints the median step, tokens a second and the loss, then a step with every kernel timed on its
 * own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "base/rng.h"
#include "base/settings.h"
#include "model/model.h"

enum { WARM_UP = 3, MOST_STEPS = 100, MOST_KERNELS = 8192, MOST_LINES = 128 };

static void check(weft_status_t status, const char *what)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", what, weft_last_error());
        exit(1);
    }
}

/* ---- what is timed ------------------------------------------------------------------------ */

/* A kind of kernel, by name: a product has its shape in it. */
typedef struct line {
    char name[96];
    double ms, flops, bytes;
    int calls;
} line_t;

static const weft_compute_t *inner;
static line_t lines[MOST_LINES];
static int line_count;
static struct {
    weft_event_h start, end;
    int line;
} kernels[MOST_KERNELS];
static int kernel_count;

static int find_line(const char *name)
{
    for (int i = 0; i < line_count; i++) {
        if (strcmp(lines[i].name, name) == 0) {
            return i;
        }
    }
    if (line_count == MOST_LINES) {
        return MOST_LINES - 1;
    }
    snprintf(lines[line_count].name, sizeof(lines[0].name), "%s", name);
    return line_count++;
}

static void start_kernel(const char *name, double flops, double bytes, weft_stream_h stream)
{
    int line = find_line(name);
    lines[line].flops += flops;
    lines[line].bytes += bytes;
    lines[line].calls++;
    if (kernel_count == MOST_KERNELS) {
        fprintf(stderr, "too many kernels in a step\n");
        exit(1);
    }
    kernels[kernel_count].line = line;
    check(weft_event_create(&kernels[kernel_count].start), "event");
    check(weft_event_create(&kernels[kernel_count].end), "event");
    check(weft_event_record(kernels[kernel_count].start, stream), "event");
}

static void end_kernel(weft_stream_h stream)
{
    check(weft_event_record(kernels[kernel_count++].end, stream), "event");
}

#define TIMED(name, args_t)                                                                        \
    static weft_status_t timed_##name(const args_t *args, weft_stream_h stream)                    \
    {                                                                                              \
        start_kernel(#name, 0, bytes_of_##name(args), stream);                                     \
        weft_status_t status = inner->name(args, stream);                                          \
        end_kernel(stream);                                                                        \
        return status;                                                                             \
    }

/* The least bytes that kernels bound by memory have to move, for the table; 0: not counted. */
#define bytes_of_norm_forward(a) (double)((a)->rows * (a)->width * ((a)->branch != NULL ? 8 : 4))
#define bytes_of_norm_backward(a)                                                                  \
    (double)((a)->rows * (a)->width * ((a)->dresidual != NULL ? 8 : 6))
#define bytes_of_classify(a) (double)((a)->rows * (a)->ld * 4)
#define bytes_of_adamw(a) (double)((a)->count * 28)
#define bytes_of_sumsq(a) (double)((a)->count * 2)
#define bytes_of_embed_forward(a) (double)((a)->batch * (a)->seq * (a)->width * 4)
#define bytes_of_embed_backward(a) (double)((a)->batch * (a)->seq * (a)->width * 4)
#define bytes_of_dropout(a) 0.0
#define bytes_of_gelu_forward(a) (double)((a)->count * 4)
#define bytes_of_gelu_backward(a) (double)((a)->count * 6)
#define bytes_of_swiglu_forward(a) (double)((a)->rows * (a)->width * 6)
#define bytes_of_swiglu_backward(a) (double)((a)->rows * (a)->width * 10)
#define bytes_of_rope(a) 0.0
#define bytes_of_decode(a) 0.0
#define bytes_of_classify_stats(a) 0.0
#define bytes_of_classify_finish(a) 0.0
#define bytes_of_clip(a) 0.0
#define bytes_of_cast(a) 0.0
#define bytes_of_matmul(a) 0.0
#define bytes_of_attention_forward(a) 0.0
#define bytes_of_attention_backward(a) 0.0
WEFT_COMPUTE_TABLE(TIMED)

/* Products by shape; attention with the operations that a causal mask leaves. */
static weft_status_t shaped_matmul(const weft_matmul_t *args, weft_stream_h stream)
{
    static const char *const endings[] = {"", "+gelu", "+dgelu"};
    char name[96];
    snprintf(name, sizeof(name), "matmul %lldx%lldx%lld %c%c%s%s%s%s", (long long)args->m,
             (long long)args->n, (long long)args->k, args->trans_a ? 't' : 'n',
             args->trans_b ? 't' : 'n', args->bias != NULL ? "+bias" : "",
             args->add != NULL ? "+add" : "", endings[args->epilogue],
             args->bias_grad != NULL ? "+bgrad" : "");
    start_kernel(name, 2.0 * (double)args->m * (double)args->n * (double)args->k, 0, stream);
    weft_status_t status = inner->matmul(args, stream);
    end_kernel(stream);
    return status;
}

static double attention_flops(const weft_attention_t *args)
{
    return 2.0 * (double)args->batch * (double)args->seq * (double)args->seq * args->heads *
           args->head_dim;
}

static weft_status_t counted_forward(const weft_attention_t *args, weft_stream_h stream)
{
    start_kernel("attention_forward", attention_flops(args), 0, stream);
    weft_status_t status = inner->attention_forward(args, stream);
    end_kernel(stream);
    return status;
}

static weft_status_t counted_backward(const weft_attention_t *args, weft_stream_h stream)
{
    start_kernel("attention_backward", 2.5 * attention_flops(args), 0, stream);
    weft_status_t status = inner->attention_backward(args, stream);
    end_kernel(stream);
    return status;
}

static weft_status_t counted_adamw(const weft_adamw_t *list, int count, weft_stream_h stream)
{
    double bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += bytes_of_adamw(&list[i]);
    }
    start_kernel("adamw", 0, bytes, stream);
    weft_status_t status = inner->adamw_list(list, count, stream);
    end_kernel(stream);
    return status;
}

static weft_compute_t timed_table(void)
{
    weft_compute_t table = *inner;
#define SET(name, args_t) table.name = timed_##name;
    WEFT_COMPUTE_TABLE(SET)
    table.matmul = shaped_matmul;
    table.attention_forward = counted_forward;
    table.attention_backward = counted_backward;
    table.adamw_list = counted_adamw;
    return table;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const line_t *)a)->ms, y = ((const line_t *)b)->ms;
    return (x < y) - (x > y);
}

static void print_kernels(void)
{
    double sum = 0, products = 0, flops = 0;
    for (int i = 0; i < kernel_count; i++) {
        double ms;
        check(weft_event_elapsed(kernels[i].start, kernels[i].end, &ms), "event");
        lines[kernels[i].line].ms += ms;
        sum += ms;
    }
    qsort(lines, (size_t)line_count, sizeof(*lines), by_time);
    printf("%-52s %6s %9s %6s %9s\n", "kernel", "calls", "ms", "%", "rate");
    for (int i = 0; i < line_count; i++) {
        const line_t *line = &lines[i];
        printf("%-52s %6d %9.3f %5.1f%%", line->name, line->calls, line->ms, 100 * line->ms / sum);
        if (line->flops > 0) {
            printf(" %6.0f TFLOP/s", line->flops / line->ms * 1e-9);
        } else if (line->bytes > 0) {
            printf(" %6.0f GB/s", line->bytes / line->ms * 1e-6);
        }
        printf("\n");
        if (strncmp(line->name, "matmul", 6) == 0) {
            products += line->ms;
            flops += line->flops;
        }
    }
    printf("%-52s %6d %9.3f\n", "all", kernel_count, sum);
    printf("%-52s %6s %9.3f        %6.0f TFLOP/s\n", "products", "", products,
           flops / products * 1e-9);
}

/* ---- a model with its memory -------------------------------------------------------------- */

typedef struct bench {
    weft_model_t *model;
    weft_shape_t shape;
    weft_acts_t acts;
    weft_pass_t pass;
    void **params, **grads;
    char *flat_params, *flat_grads;
    float *master, *m, *v, *norm;
    double *partial;
    int64_t *at; /* first element of each parameter */
    int64_t elements;
} bench_t;

static void *device_memory(size_t bytes)
{
    void *memory;
    check(weft_malloc(&memory, bytes), "memory");
    check(weft_memset(memory, 0, bytes, NULL), "memory");
    return memory;
}

/* Parameters one behind the other, each aligned. */
static void lay_out(bench_t *bench)
{
    size_t count = (size_t)bench->model->param_count;
    bench->params = calloc(count, sizeof(void *));
    bench->grads = calloc(count, sizeof(void *));
    bench->at = calloc(count, sizeof(int64_t));
    for (size_t i = 0; i < count; i++) {
        bench->at[i] = bench->elements;
        bench->elements += (bench->model->params[i].count + 127) / 128 * 128;
    }
    bench->flat_params = device_memory((size_t)bench->elements * 2);
    bench->flat_grads = device_memory((size_t)bench->elements * 2);
    bench->master = device_memory((size_t)bench->elements * 4);
    bench->m = device_memory((size_t)bench->elements * 4);
    bench->v = device_memory((size_t)bench->elements * 4);
    bench->norm = device_memory(8);
    bench->partial = device_memory((size_t)(bench->elements / WEFT_SUMSQ_CHUNK + 1) * 8);
    for (size_t i = 0; i < count; i++) {
        bench->params[i] = bench->flat_params + bench->at[i] * 2;
        bench->grads[i] = bench->flat_grads + bench->at[i] * 2;
    }
}

static void fill_params(bench_t *bench)
{
    for (int i = 0; i < bench->model->param_count; i++) {
        const weft_param_t *param = &bench->model->params[i];
        float *values = malloc((size_t)param->count * sizeof(*values));
        check(weft__param_init(param, 0, 1, values), "initial values");
        check(weft_memcpy(bench->master + bench->at[i], values, (size_t)param->count * 4, NULL),
              "initial values");
        free(values);
    }
    weft_cast_t cast = {WEFT_F32, WEFT_BF16, bench->elements, bench->master, bench->flat_params};
    check(inner->cast(&cast, NULL), "cast");
}

static void fill_tokens(bench_t *bench)
{
    int64_t rows = bench->shape.batch * bench->shape.seq;
    int32_t *tokens = malloc((size_t)(rows + 1) * sizeof(*tokens));
    for (int64_t i = 0; i <= rows; i++) {
        tokens[i] = (int32_t)(weft__rng_at(1, (uint64_t)i) % (uint64_t)bench->model->config.vocab);
    }
    check(weft_memcpy(bench->acts.tokens, tokens, (size_t)rows * 4, NULL), "tokens");
    check(weft_memcpy(bench->acts.targets, tokens + 1, (size_t)rows * 4, NULL), "tokens");
    free(tokens);
}

static void open_bench(bench_t *bench, const char *model, int batch, int seq)
{
    weft_model_config_t config;
    check(weft__config_find(model, &config), "model");
    config.embed_dropout = config.attention_dropout = config.residual_dropout = 0;
    weft_slice_t slice = WEFT_SLICE_WHOLE(&config);
    slice.vocab_multiple = 128;
    *bench = (bench_t){.shape = WEFT_SHAPE(batch, seq)};
    bench->shape.head_rows = bench->shape.batch * bench->shape.seq;
    check(weft__model_create(&config, &slice, WEFT_BF16, WEFT_BF16, &bench->model), "model");
    lay_out(bench);
    fill_params(bench);
    void *acts = device_memory(weft__acts_bytes(bench->model, &bench->shape));
    void *scratch = device_memory(weft__scratch_bytes(bench->model, inner, &bench->shape));
    check(weft__acts_carve(bench->model, &bench->shape, acts, &bench->acts), "activations");
    bench->pass = weft__pass_make(bench->model, inner, &bench->shape);
    bench->pass.params = bench->params;
    bench->pass.grads = bench->grads;
    weft__scratch_carve(bench->model, inner, &bench->shape, scratch, &bench->pass.scratch);
    check(weft_stream_create(&bench->pass.stream), "stream");
    fill_tokens(bench);
}

static void update(const bench_t *bench, int64_t number)
{
    weft_adamw_t list[WEFT_LIST_MOST];
    int count = 0, params = bench->model->param_count;
    for (int i = 0; i < params; i++) {
        const weft_param_t *param = &bench->model->params[i];
        list[count++] = (weft_adamw_t){.type = WEFT_BF16,
                                       .grad_type = WEFT_BF16,
                                       .count = param->count,
                                       .param = bench->params[i],
                                       .master = bench->master + bench->at[i],
                                       .grad = bench->grads[i],
                                       .m = bench->m + bench->at[i],
                                       .v = bench->v + bench->at[i],
                                       .grad_scale = bench->norm + 1,
                                       .lr = 3e-4f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .eps = 1e-8f,
                                       .decay = param->decay ? 0.1f : 0.0f,
                                       .step = number};
        if (count == WEFT_LIST_MOST || i + 1 == params) {
            check(bench->pass.compute->adamw_list(list, count, bench->pass.stream), "adamw");
            count = 0;
        }
    }
}

static void step(bench_t *bench, int64_t number)
{
    const weft_compute_t *compute = bench->pass.compute;
    weft_stream_h stream = bench->pass.stream;
    check(weft_memset(bench->flat_grads, 0, (size_t)bench->elements * 2, stream), "memset");
    check(weft__model_forward(&bench->pass, &bench->acts), "forward");
    check(weft__model_backward(&bench->pass, &bench->acts), "backward");
    weft_sumsq_t sumsq = {WEFT_BF16, bench->elements, bench->flat_grads, bench->partial};
    check(compute->sumsq(&sumsq, stream), "sumsq");
    weft_clip_t clip = {bench->partial, (bench->elements + WEFT_SUMSQ_CHUNK - 1) / WEFT_SUMSQ_CHUNK,
                        1.0f, 1.0f, bench->norm};
    check(compute->clip(&clip, stream), "clip");
    update(bench, number);
}

static double loss(bench_t *bench)
{
    int64_t rows = bench->shape.batch * bench->shape.seq;
    float *losses = malloc((size_t)rows * sizeof(*losses));
    double sum = 0;
    check(weft_stream_synchronize(bench->pass.stream), "step");
    check(weft_memcpy(losses, bench->acts.head.losses, (size_t)rows * 4, NULL), "losses");
    for (int64_t i = 0; i < rows; i++) {
        sum += (double)losses[i];
    }
    free(losses);
    return sum / (double)rows;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int batch = 64, seq = 1024, steps = 10;
    const char *model = argc > 1 ? argv[1] : "gpt2-124m";
    weft_event_h marks[MOST_STEPS + 1];
    double times[MOST_STEPS], first = 0;
    bench_t bench;
    if ((argc > 2 && !weft__parse_int(argv[2], &batch)) ||
        (argc > 3 && !weft__parse_int(argv[3], &seq)) ||
        (argc > 4 && !weft__parse_int(argv[4], &steps)) || steps < 1 || steps > MOST_STEPS) {
        fprintf(stderr, "usage: step_bench [MODEL [BATCH [SEQ [STEPS]]]]\n");
        return 2;
    }
    check(weft__compute(&inner), "compute");
    open_bench(&bench, model, batch, seq);
    for (int i = 0; i < WARM_UP; i++) {
        step(&bench, i + 1);
        first = i == 0 ? loss(&bench) : first;
    }
    check(weft_stream_synchronize(bench.pass.stream), "step");
    for (int i = 0; i <= steps; i++) {
        check(weft_event_create(&marks[i]), "event");
    }
    check(weft_event_record(marks[0], bench.pass.stream), "event");
    for (int i = 0; i < steps; i++) {
        step(&bench, WARM_UP + i + 1);
        check(weft_event_record(marks[i + 1], bench.pass.stream), "event");
    }
    double last = loss(&bench);
    for (int i = 0; i < steps; i++) {
        check(weft_event_elapsed(marks[i], marks[i + 1], &times[i]), "event");
    }
    qsort(times, (size_t)steps, sizeof(*times), by_value);
    double tokens = (double)batch * seq, median = times[steps / 2];
    weft_compute_t timed = timed_table();
    bench.pass.compute = &timed;
    step(&bench, WARM_UP + steps + 1);
    check(weft_stream_synchronize(bench.pass.stream), "step");
    print_kernels();
    printf("%s, B %d, T %d: %.2f ms a step (%.2f to %.2f), %.1f thousand tokens/s, %.0f TFLOP/s; "
           "loss %.4f, then %.4f\n",
           model, batch, seq, median, times[0], times[steps - 1], tokens / median,
           weft__config_flops(&bench.model->config, seq) * tokens / median * 1e-9, first, last);
    return 0;
}
