/* ctest: timeout=300 serial */
/* The GPU's compute kernels against the CPU's, on random inputs: f32, bf16 and f16, odd sizes,
 * gradients that are added to what is there, the same bits in a second run. Prints the worst
 * difference by function. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weft/weft.h>

#include "gpu/gpu.h"
#include "gpu/twins.h"
#include "kernel/compute.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const weft_dtype_t types[] = {WEFT_F32, WEFT_BF16, WEFT_F16};

/* Gradients of parameters of 16 bits are of the same type or f32. */
static weft_dtype_t grad_type(weft_dtype_t type, int round)
{
    return type != WEFT_F32 && round % 2 == 1 ? WEFT_F32 : type;
}

/* Where intermediate results are rounded too: f16 has three digits more than bf16. */
static double limit_of(weft_dtype_t type, double f32, double bf16)
{
    return type == WEFT_F32 ? f32 : type == WEFT_BF16 ? bf16 : bf16 / 8;
}

static weft_mask_t mask(float rate, int64_t width)
{
    return (weft_mask_t){rate, 0x1234567890abcdefu, 3, 5, width};
}

/* ---- element by element ------------------------------------------------------------------- */

static void elements(twins_t *twins, weft_dtype_t type, int64_t count)
{
    twin_note("%s, %lld elements", weft_dtype_name(type), (long long)count);
    {
        weft_gelu_t cpu = {.type = type, .count = count}, gpu = cpu;
        TWIN(in, twin_input(twins, count, type, 4));
        TWIN(out, twin_result(twins, count, type, 1));
        TWIN_RUN(twins, gelu_forward, 1e-5);
    }
    {
        weft_gelu_t cpu = {.type = type, .count = count}, gpu = cpu;
        TWIN(in, twin_input(twins, count, type, 4));
        TWIN(dout, twin_input(twins, count, type, 1));
        TWIN(din, twin_result(twins, count, type, 1));
        TWIN_RUN(twins, gelu_backward, 1e-5);
    }
    for (size_t i = 0; i < COUNT(types); i++) {
        weft_cast_t cpu = {.in_type = type, .out_type = types[i], .count = count};
        weft_cast_t gpu = cpu;
        TWIN(in, twin_input(twins, count, type, 4));
        TWIN(out, twin_result(twins, count, cpu.out_type, 1));
        TWIN_RUN(twins, cast, 0);
    }
}

static void gated(twins_t *twins, weft_dtype_t type, int64_t rows, int64_t width)
{
    twin_note("%s, %lld x %lld", weft_dtype_name(type), (long long)rows, (long long)width);
    {
        weft_swiglu_t cpu = {.type = type, .rows = rows, .width = width}, gpu = cpu;
        TWIN(in, twin_input(twins, rows * width * 2, type, 3));
        TWIN(out, twin_result(twins, rows * width, type, 1));
        TWIN_RUN(twins, swiglu_forward, 1e-5);
    }
    {
        weft_swiglu_t cpu = {.type = type, .rows = rows, .width = width}, gpu = cpu;
        TWIN(in, twin_input(twins, rows * width * 2, type, 3));
        TWIN(dout, twin_input(twins, rows * width, type, 1));
        TWIN(din, twin_result(twins, rows * width * 2, type, 1));
        TWIN_RUN(twins, swiglu_backward, 1e-5);
    }
    for (int residual = 0; residual < 2; residual++) {
        weft_dropout_t cpu = {
            .type = type, .rows = rows, .width = width, .mask = mask(0.3f, width + 11)};
        weft_dropout_t gpu = cpu;
        TWIN(in, twin_input(twins, rows * width, type, 1));
        if (residual) {
            TWIN(residual, twin_input(twins, rows * width, type, 1));
        }
        TWIN(out, twin_result(twins, rows * width, type, 1));
        TWIN_RUN(twins, dropout, 1e-6);
    }
}

static void rotate(twins_t *twins, weft_dtype_t type, int dim, bool inverse)
{
    weft_rope_t cpu = {.type = type,
                       .batch = 2,
                       .seq = 131,
                       .heads = 6,
                       .kv_heads = 2,
                       .head_dim = dim,
                       .position_first = 900,
                       .theta = 10000.0f,
                       .inverse = inverse};
    weft_rope_t gpu = cpu;
    twin_note("%s, heads of %d", weft_dtype_name(type), dim);
    TWIN(qkv, twin_result(twins, 2 * 131 * 10 * dim, type, 1));
    TWIN_RUN(twins, rope, 1e-5);
}

/* ---- norms and embeddings ----------------------------------------------------------------- */

static void norm(twins_t *twins, weft_dtype_t type, int64_t rows, int64_t width, int round)
{
    bool rms = round % 2 == 1, branch = round / 2 % 2 == 1;
    weft_norm_t cpu = {.type = type,
                       .grad_type = grad_type(type, round / 4),
                       .rms = rms,
                       .rows = rows,
                       .width = width,
                       .eps = 1e-5f,
                       .mask = mask(round / 4 % 2 == 1 ? 0.1f : 0.0f, width)};
    weft_norm_t gpu = cpu;
    twin_note("%s, %s, %lld x %lld, %s branch", weft_dtype_name(type), rms ? "RMS" : "layer",
              (long long)rows, (long long)width, branch ? "with a" : "no");
    TWIN(x, twin_input(twins, rows * width, type, 2));
    if (branch) {
        TWIN(branch, twin_input(twins, rows * width, type, 2));
        TWIN(sum, twin_result(twins, rows * width, type, 1));
    }
    TWIN(weight, twin_input(twins, width, type, 1));
    if (!rms) {
        TWIN(bias, twin_input(twins, width, type, 1));
        TWIN(mean, twin_result(twins, rows, WEFT_F32, 1));
    }
    TWIN(rstd, twin_result(twins, rows, WEFT_F32, 1));
    TWIN(out, twin_result(twins, rows * width, type, 1));
    TWIN_RUN(twins, norm_forward, width == 1 ? 1e-2 : 1e-5);
}

static void norm_gradient(twins_t *twins, weft_dtype_t type, int64_t rows, int64_t width, int round)
{
    bool rms = round % 2 == 1, residual = round / 2 % 2 == 1;
    weft_norm_t cpu = {.type = type,
                       .grad_type = grad_type(type, round / 4),
                       .rms = rms,
                       .rows = rows,
                       .width = width,
                       .eps = 1e-5f};
    weft_norm_t gpu = cpu;
    twin_note("%s, %s, %lld x %lld", weft_dtype_name(type), rms ? "RMS" : "layer", (long long)rows,
              (long long)width);
    TWIN(x, twin_input(twins, rows * width, type, 2));
    TWIN(weight, twin_input(twins, width, type, 1));
    if (!rms) {
        TWIN(mean, twin_input(twins, rows, WEFT_F32, 0.1));
        TWIN(dbias, twin_result(twins, width, cpu.grad_type, 1));
    }
    TWIN(rstd, twin_input(twins, rows, WEFT_F32, 1));
    TWIN(dout, twin_input(twins, rows * width, type, 1));
    if (residual) {
        TWIN(dresidual, twin_input(twins, rows * width, type, 1));
    }
    TWIN(dx, twin_result(twins, rows * width, type, 1));
    TWIN(dweight, twin_result(twins, width, cpu.grad_type, 1));
    TWIN(work, twin_work(twins, twins->cpu->norm_work(&cpu), twins->gpu->norm_work(&gpu)));
    /* What is left of one sum alone may be small beside what was added. */
    TWIN_RUN(twins, norm_backward, width == 1 ? 1e-3 : 2e-5);
}

static void embed(twins_t *twins, weft_dtype_t type, int64_t width, int64_t seq, int round)
{
    /* Of few tokens, each has more rows than a kernel adds up at once. */
    int64_t context = 130, batch = round % 2 == 1 ? 17 : 3, vocab = round % 2 == 1 ? 9 : 500;
    weft_embed_t cpu = {.type = type,
                        .grad_type = grad_type(type, round),
                        .batch = batch,
                        .seq = seq,
                        .width = width,
                        .position_first = 4,
                        .vocab_first = 2,
                        .vocab_count = vocab - 4};
    weft_embed_t gpu = cpu;
    twin_note("%s, width %lld, %lld tokens", weft_dtype_name(type), (long long)width,
              (long long)vocab);
    TWIN(tokens, twin_numbers(twins, batch * seq, 0, (int32_t)vocab));
    TWIN(table, twin_input(twins, cpu.vocab_count * width, type, 1));
    if (round < 2) {
        TWIN(positions, twin_input(twins, context * width, type, 1));
    }
    TWIN(out, twin_result(twins, batch * seq * width, type, 1));
    TWIN_RUN(twins, embed_forward, 1e-6);

    TWIN(tokens, twin_numbers(twins, batch * seq, 0, (int32_t)vocab));
    TWIN(dout, twin_input(twins, batch * seq * width, type, 1));
    TWIN(dtable, twin_result(twins, cpu.vocab_count * width, cpu.grad_type, 1));
    if (round < 2) {
        TWIN(dpositions, twin_result(twins, context * width, cpu.grad_type, 1));
    }
    TWIN(work, twin_work(twins, twins->cpu->embed_work(&cpu), twins->gpu->embed_work(&gpu)));
    /* The CPU rounds sums of 16 bits with every addition. */
    TWIN_RUN(twins, embed_backward, limit_of(cpu.grad_type, 1e-5, 6e-2));
}

/* ---- attention ---------------------------------------------------------------------------- */

typedef struct heads {
    int batch, seq, heads, kv_heads, dim;
} heads_t;

static const heads_t shapes[] = {
    {2, 1, 2, 2, 64},   {1, 5, 3, 1, 64},   {2, 64, 2, 2, 64},   {1, 100, 4, 2, 64},
    {2, 257, 3, 3, 64}, {1, 513, 6, 2, 64}, {1, 300, 2, 1, 128}, {2, 65, 4, 4, 128},
    {1, 77, 2, 2, 32},  {1, 70, 3, 1, 80},  {3, 384, 4, 4, 64},  {2, 1024, 3, 3, 64},
    {2, 90, 5, 5, 8},   {1, 200, 4, 2, 24}, {2, 130, 4, 4, 32},  {1, 131, 6, 3, 56},
    {1, 150, 2, 2, 96}, {2, 67, 3, 1, 120}, {1, 99, 2, 1, 100},  {1, 66, 2, 2, 160}};

static void attend(twins_t *twins, weft_dtype_t type, const heads_t *s, float rate)
{
    int64_t tokens = (int64_t)s->batch * s->seq, row = (s->heads + 2 * s->kv_heads) * s->dim;
    weft_attention_t cpu = {.type = type,
                            .batch = s->batch,
                            .seq = s->seq,
                            .heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .head_dim = s->dim,
                            .scale = 0.25f,
                            .mask = mask(rate, s->heads + 7)};
    weft_attention_t gpu = cpu;
    twin_note("%s, B %d, T %d, %d heads, %d for keys, of %d, dropout %g", weft_dtype_name(type),
              s->batch, s->seq, s->heads, s->kv_heads, s->dim, (double)rate);
    TWIN(qkv, twin_input(twins, tokens * row, type, 1));
    TWIN(out, twin_result(twins, tokens * s->heads * s->dim, type, 1));
    TWIN(lse, twin_result(twins, tokens * s->heads, WEFT_F32, 1));
    TWIN_RUN(twins, attention_forward, limit_of(type, 1e-5, 2e-2));
}

/* Backward wants what forward found: made by the CPU, for both. */
static void attend_backward(twins_t *twins, weft_dtype_t type, const heads_t *s, float rate)
{
    int64_t tokens = (int64_t)s->batch * s->seq, row = (s->heads + 2 * s->kv_heads) * s->dim;
    int64_t width = s->heads * s->dim;
    weft_attention_t cpu = {.type = type,
                            .batch = s->batch,
                            .seq = s->seq,
                            .heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .head_dim = s->dim,
                            .scale = 0.25f,
                            .mask = mask(rate, s->heads + 7)};
    weft_attention_t gpu = cpu;
    TWIN(qkv, twin_input(twins, tokens * row, type, 1));
    TWIN(out, twin_input(twins, tokens * width, type, 1));
    TWIN(lse, twin_input(twins, tokens * s->heads, WEFT_F32, 1));
    TWIN(dout, twin_input(twins, tokens * width, type, 1));
    TWIN(dqkv, twin_result(twins, tokens * row, type, 1));
    TWIN(work,
         twin_work(twins, twins->cpu->attention_work(&cpu), twins->gpu->attention_work(&gpu)));
    twin_check(twins->cpu->attention_forward(&cpu, NULL));
    twin_restart(cpu.out);
    twin_restart(cpu.lse);
    TWIN_RUN(twins, attention_backward, limit_of(type, 2e-5, 2e-2));
}

static void decode(twins_t *twins, weft_dtype_t type, int64_t seq, int64_t past)
{
    weft_decode_t cpu = {.type = type,
                         .batch = 3,
                         .seq = seq,
                         .past = past,
                         .capacity = 90,
                         .heads = 6,
                         .kv_heads = 2,
                         .head_dim = 64,
                         .scale = 0.125f};
    weft_decode_t gpu = cpu;
    twin_note("%s, %lld tokens after %lld", weft_dtype_name(type), (long long)seq, (long long)past);
    TWIN(qkv, twin_input(twins, 3 * seq * 10 * 64, type, 1));
    TWIN(keys, twin_result(twins, 3 * 90 * 2 * 64, type, 1));
    TWIN(values, twin_result(twins, 3 * 90 * 2 * 64, type, 1));
    TWIN(out, twin_result(twins, 3 * seq * 6 * 64, type, 1));
    TWIN_RUN(twins, decode, 1e-5);

    const weft_sequence_t list[] = {{0, 1, 4, 0}, {1, 2, 0, 1}};
    const weft_sequences_t batch = {2, 3, list};
    gpu.ragged = &batch; /* no kernel for it yet: it must not be taken for a dense one */
    weft_status_t status = twins->gpu->decode(&gpu, twins->stream);
    twin_check(status == WEFT_ERR_UNSUPPORTED ? WEFT_OK : WEFT_ERR_INVALID);
}

/* ---- classifier --------------------------------------------------------------------------- */

static void classify(twins_t *twins, weft_dtype_t type, int64_t vocab, int64_t ld)
{
    int64_t rows = 37;
    weft_classify_t cpu = {.type = type, .rows = rows, .vocab = vocab, .ld = ld, .scale = 0.5f};
    weft_classify_t gpu = cpu;
    twin_note("%s, %lld of %lld", weft_dtype_name(type), (long long)vocab, (long long)ld);
    TWIN(logits, twin_result(twins, rows * ld, type, 8));
    TWIN(targets, twin_numbers(twins, rows, -1, (int32_t)vocab));
    TWIN(losses, twin_result(twins, rows, WEFT_F32, 1));
    TWIN_RUN(twins, classify, 2e-5);

    cpu.vocab_first = gpu.vocab_first = vocab;
    TWIN(logits, twin_input(twins, rows * ld, type, 8));
    TWIN(targets, twin_numbers(twins, rows, -1, (int32_t)(3 * vocab)));
    TWIN(stats, twin_result(twins, rows * 3, WEFT_F32, 1));
    TWIN_RUN(twins, classify_stats, 2e-5);

    TWIN(logits, twin_result(twins, rows * ld, type, 8));
    TWIN(targets, twin_numbers(twins, rows, -1, (int32_t)(3 * vocab)));
    TWIN(lse, twin_input(twins, rows, WEFT_F32, type == WEFT_F16 ? 3 : 8)); /* exp(16) overflows */
    TWIN_RUN(twins, classify_finish, 2e-5);
}

/* ---- optimizer ---------------------------------------------------------------------------- */

static weft_adamw_t third_step(weft_dtype_t type, weft_dtype_t grad_type, int64_t count)
{
    return (weft_adamw_t){.type = type,
                          .grad_type = grad_type,
                          .count = count,
                          .lr = 0.01f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .eps = 1e-8f,
                          .decay = 0.1f,
                          .step = 3};
}

static void adamw(twins_t *twins, weft_dtype_t type, int64_t count, int round)
{
    weft_adamw_t cpu = third_step(type, grad_type(type, round), count);
    weft_adamw_t gpu = cpu;
    twin_note("%s, %lld elements", weft_dtype_name(type), (long long)count);
    TWIN(param, twin_result(twins, count, type, 1));
    if (type != WEFT_F32 || round % 2 == 1) {
        TWIN(master, twin_result(twins, count, WEFT_F32, 1));
    }
    TWIN(grad, twin_input(twins, count, cpu.grad_type, 1));
    TWIN(m, twin_result(twins, count, WEFT_F32, 1));
    TWIN(v, twin_result(twins, count, WEFT_F32, 1));
    for (int64_t i = 0; i < count; i++) {
        cpu.v[i] = cpu.v[i] < 0 ? -cpu.v[i] : cpu.v[i];
    }
    twin_restart(cpu.v);
    TWIN(grad_scale, twin_input(twins, 1, WEFT_F32, 1));
    TWIN_RUN(twins, adamw, 1e-5);
}

/* Tensors of a list, of sizes that end within a block and one that is not aligned. */
static void adamw_list(twins_t *twins, weft_dtype_t type, weft_dtype_t grad)
{
    static const int64_t counts[] = {5000, 1, 70001, 1024};
    weft_adamw_t cpu_list[COUNT(counts)], gpu_list[COUNT(counts)];
    int64_t shift = 0;
    twin_note("%s, a list", weft_dtype_name(type));
    for (size_t i = 0; i < COUNT(counts); i++) {
        weft_adamw_t cpu = {.type = type,
                            .grad_type = grad,
                            .count = counts[i],
                            .lr = 0.01f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .decay = i % 2 == 0 ? 0.1f : 0.0f,
                            .step = 2};
        weft_adamw_t gpu = cpu;
        shift = i == 2 ? 1 : 0;
        TWIN(param, twin_result(twins, counts[i] + shift, type, 1));
        TWIN(master, twin_result(twins, counts[i] + shift, WEFT_F32, 1));
        TWIN(grad, twin_input(twins, counts[i] + shift, grad, 1));
        TWIN(m, twin_result(twins, counts[i] + shift, WEFT_F32, 1));
        TWIN(v, twin_result(twins, counts[i] + shift, WEFT_F32, 1));
        for (int64_t j = 0; j < counts[i] + shift; j++) {
            cpu.v[j] = cpu.v[j] < 0 ? -cpu.v[j] : cpu.v[j];
        }
        twin_restart(cpu.v);
        cpu.m += shift, gpu.m += shift;
        cpu_list[i] = cpu, gpu_list[i] = gpu;
    }
    twin_check(twins->cpu->adamw_list(cpu_list, (int)COUNT(counts), NULL));
    twin_check(twins->gpu->adamw_list(gpu_list, (int)COUNT(counts), twins->stream));
    twin_compare(twins, "adamw_list", 1e-5);
    twin_check(twins->gpu->adamw_list(gpu_list, (int)COUNT(counts), twins->stream));
    twin_repeat(twins, "adamw_list");
}

/* Of tensors that end within a chunk, a block, or at the end of one: each as if it were alone. */
static void sumsq_list(twins_t *twins, weft_dtype_t type)
{
    static const int64_t counts[] = {1, 32 * WEFT_SUMSQ_CHUNK, 300001, 768, WEFT_SUMSQ_CHUNK + 1};
    weft_sumsq_t cpu_list[COUNT(counts)], gpu_list[COUNT(counts)];
    twin_note("%s, a list", weft_dtype_name(type));
    for (size_t i = 0; i < COUNT(counts); i++) {
        weft_sumsq_t cpu = {.type = type, .count = counts[i]}, gpu = cpu;
        TWIN(in, twin_input(twins, counts[i], type, 1));
        TWIN(partial, twin_result(twins, counts[i] / WEFT_SUMSQ_CHUNK + 1, WEFT_F64, 1));
        cpu_list[i] = cpu, gpu_list[i] = gpu;
    }
    twin_check(twins->cpu->sumsq_list(cpu_list, (int)COUNT(counts), NULL));
    twin_check(twins->gpu->sumsq_list(gpu_list, (int)COUNT(counts), twins->stream));
    twin_compare(twins, "sumsq_list", 0);
    twin_check(twins->gpu->sumsq_list(gpu_list, (int)COUNT(counts), twins->stream));
    twin_repeat(twins, "sumsq_list");
}

static void gradient_norm(twins_t *twins, weft_dtype_t type, int64_t count)
{
    int64_t chunks = (count + WEFT_SUMSQ_CHUNK - 1) / WEFT_SUMSQ_CHUNK;
    twin_note("%s, %lld elements", weft_dtype_name(type), (long long)count);
    {
        weft_sumsq_t cpu = {.type = type, .count = count}, gpu = cpu;
        TWIN(in, twin_input(twins, count, type, 1));
        TWIN(partial, twin_result(twins, chunks, WEFT_F64, 1));
        TWIN_RUN(twins, sumsq, 0);
    }
    for (int limit = 0; limit < 3; limit++) {
        weft_clip_t cpu = {.count = count, .scale = 0.25f, .max_norm = limit == 2 ? 1e9f : limit};
        weft_clip_t gpu = cpu;
        TWIN(partial, twin_input(twins, count, WEFT_F64, 1));
        for (int64_t i = 0; i < count; i++) {
            double *partial = (double *)(uintptr_t)cpu.partial + i;
            *partial = *partial < 0 ? -*partial : *partial;
        }
        twin_restart(cpu.partial);
        TWIN(norm, twin_result(twins, 2, WEFT_F32, 1));
        TWIN_RUN(twins, clip, 1e-6);
    }
}

/* ---- overflow ----------------------------------------------------------------------------- */

/* Numbers beyond f16, in its last step, and in its smallest steps. */
static void narrow(twins_t *twins, weft_dtype_t from)
{
    static const double edges[] = {65504,    65519.9,   65520,     65536,   -1e30,
                                   INFINITY, -INFINITY, NAN,       0x1p-14, 0x1.8p-25,
                                   0x1p-25,  -0x1p-24,  0x1.4p-23, -0.0,    1e-30,
                                   2049,     2051,      0x1p-126,  0x1p-149};
    int64_t count = 64 + (int64_t)COUNT(edges);
    static const double scales[] = {1e5, 1e-4, 1e-6};
    for (size_t i = 0; i < COUNT(scales); i++) {
        weft_cast_t cpu = {.in_type = from, .out_type = WEFT_F16, .count = count}, gpu = cpu;
        twin_note("%s in %g to f16", weft_dtype_name(from), scales[i]);
        TWIN(in, twin_input(twins, count, from, scales[i]));
        TWIN(out, twin_result(twins, count, WEFT_F16, 1));
        for (size_t e = 0; e < COUNT(edges); e++) {
            twin_put(cpu.in, 40 + (int64_t)e, edges[e]);
        }
        TWIN_RUN(twins, cast, 0);
    }
}

/* A gradient that is not finite makes the norm so, wherever it is, and AdamW leaves all as it
 * was. */
static void skipped(twins_t *twins, weft_dtype_t type, double odd)
{
    int64_t count = 3 * WEFT_SUMSQ_CHUNK - 5, at = (int64_t)(twins->seed % (uint64_t)count);
    twin_note("%s, element %lld is %g", weft_dtype_name(type), (long long)at, odd);
    {
        weft_sumsq_t cpu = {.type = type, .count = count}, gpu = cpu;
        TWIN(in, twin_input(twins, count, type, 1));
        TWIN(partial, twin_result(twins, 3, WEFT_F64, 1));
        twin_put(cpu.in, at, odd);
        TWIN_RUN(twins, sumsq, 0);
    }
    {
        weft_clip_t cpu = {.count = 3, .scale = 0x1p-16f, .max_norm = 1}, gpu = cpu;
        TWIN(partial, twin_input(twins, 3, WEFT_F64, 0));
        TWIN(norm, twin_result(twins, 2, WEFT_F32, 1));
        twin_put(cpu.partial, at % 3, fabs(odd));
        TWIN_RUN(twins, clip, 0);
    }
    weft_adamw_t cpu = third_step(type, WEFT_F32, count);
    weft_adamw_t gpu = cpu;
    TWIN(param, twin_result(twins, count, type, 1));
    TWIN(master, twin_result(twins, count, WEFT_F32, 1));
    TWIN(grad, twin_input(twins, count, WEFT_F32, 1));
    TWIN(m, twin_result(twins, count, WEFT_F32, 1));
    TWIN(v, twin_result(twins, count, WEFT_F32, 1));
    TWIN(grad_scale, twin_input(twins, 1, WEFT_F32, 0));
    twin_put(cpu.grad, at, odd);
    TWIN_RUN(twins, adamw, 0);
}

/* Are all of `count` elements of f16 in device memory, from `at` on, infinite or NaN? */
static bool is_lost(const void *device, int64_t at, int64_t count)
{
    uint16_t found[256];
    twin_check(weft_memcpy(found, (const uint16_t *)device + at, (size_t)count * 2, NULL));
    for (int64_t i = 0; i < count; i++) {
        if ((found[i] & 0x7c00) != 0x7c00) {
            return false;
        }
    }
    return true;
}

/* One gradient that is infinite must not come back as numbers: the query's gradient is lost, and
 * with it the step. How far it spreads beyond, over keys of the same tile, is the kernels' own. */
static bool infinite_gradient(twins_t *twins, const heads_t *s)
{
    int64_t tokens = (int64_t)s->batch * s->seq, row = (s->heads + 2 * s->kv_heads) * s->dim;
    int64_t width = s->heads * s->dim, token = tokens / 2;
    weft_attention_t cpu = {.type = WEFT_F16,
                            .batch = s->batch,
                            .seq = s->seq,
                            .heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .head_dim = s->dim,
                            .scale = 0.25f};
    weft_attention_t gpu = cpu;
    twin_note("T %d, heads of %d, an infinite gradient", s->seq, s->dim);
    TWIN(qkv, twin_input(twins, tokens * row, WEFT_F16, 1));
    TWIN(out, twin_input(twins, tokens * width, WEFT_F16, 1));
    TWIN(lse, twin_input(twins, tokens * s->heads, WEFT_F32, 1));
    TWIN(dout, twin_input(twins, tokens * width, WEFT_F16, 1));
    TWIN(dqkv, twin_input(twins, tokens * row, WEFT_F16, 1));
    TWIN(work,
         twin_work(twins, twins->cpu->attention_work(&cpu), twins->gpu->attention_work(&gpu)));
    twin_put(cpu.dout, token * width + s->dim + 3, INFINITY);
    twin_check(twins->gpu->attention_forward(&gpu, twins->stream));
    twin_check(twins->gpu->attention_backward(&gpu, twins->stream));
    twin_check(weft_stream_synchronize(twins->stream));
    bool good = is_lost(gpu.dqkv, token * row + s->dim, s->dim);
    if (!good) {
        printf("attention_backward, T %d, heads of %d: an infinite gradient became finite\n",
               s->seq, s->dim);
    }
    twin_repeat(twins, "attention_backward"); /* no results: gives the tensors back */
    return good;
}

/* ---- everything --------------------------------------------------------------------------- */

static void all_rows(twins_t *twins, weft_dtype_t type)
{
    static const int64_t widths[] = {1, 7, 64, 256, 768, 1280, 1537, 2048, 2050, 3000};
    for (size_t i = 0; i < COUNT(widths); i++) {
        for (int round = 0; round < 8; round++) {
            norm(twins, type, i % 2 == 0 ? 37 : 300, widths[i], round);
            norm_gradient(twins, type, i % 2 == 0 ? 300 : 37, widths[i], round);
        }
    }
    norm_gradient(twins, type, 5000, 768, 2);
    for (int round = 0; round < 4; round++) {
        embed(twins, type, 64, 64, round);
        embed(twins, type, 70, 117, round);
        embed(twins, type, 1032, 20, round);
    }
    classify(twins, type, 1003, 1024);
    classify(twins, type, 50257, 50304);
    classify(twins, type, 257, 384);
    classify(twins, type, 77, 77);
    classify(twins, type, 5, 8);
    classify(twins, type, 5, 9);
}

static void all_elements(twins_t *twins, weft_dtype_t type)
{
    static const int64_t counts[] = {1, 9, 4096, 33333, 1 << 20};
    for (size_t i = 0; i < COUNT(counts) - team_short(); i++) {
        elements(twins, type, counts[i]);
        adamw(twins, type, counts[i], (int)i);
        gradient_norm(twins, type, counts[i]);
    }
    adamw_list(twins, type, type);
    adamw_list(twins, type, WEFT_F32);
    sumsq_list(twins, type);
    gated(twins, type, 37, 96);
    gated(twins, type, 5, 33);
    for (int inverse = 0; inverse < 2; inverse++) {
        rotate(twins, type, 64, inverse);
        rotate(twins, type, 50, inverse);
    }
}

static void all_attention(twins_t *twins, weft_dtype_t type)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        if (team_short() && shapes[i].seq > 512) {
            continue;
        }
        for (int drop = 0; drop < 2; drop++) {
            attend(twins, type, &shapes[i], drop ? 0.2f : 0.0f);
            attend_backward(twins, type, &shapes[i], drop ? 0.2f : 0.0f);
        }
    }
    decode(twins, type, 1, 0);
    decode(twins, type, 1, 77);
    decode(twins, type, 13, 40);
}

static bool all_overflows(twins_t *twins)
{
    static const double odd[] = {INFINITY, -INFINITY, NAN};
    bool good = true;
    narrow(twins, WEFT_F32);
    narrow(twins, WEFT_BF16);
    for (size_t i = 0; i < COUNT(types); i++) {
        for (size_t j = 0; j < COUNT(odd); j++) {
            skipped(twins, types[i], odd[j]);
        }
    }
    for (size_t i = 0; i < COUNT(shapes); i++) {
        good &= infinite_gradient(twins, &shapes[i]);
    }
    return good;
}

int main(int argc, char **argv)
{
    twins_t twins = {.cpu = &weft__compute_cpu, .seed = (uint64_t)time(NULL)};
    const char *seed = getenv("WEFT_TEST_SEED");
    if (seed != NULL) {
        twins.seed = strtoull(seed, NULL, 10);
    }
    gpu_start(argc, argv, false);
    printf("WEFT_TEST_SEED=%llu\n", (unsigned long long)twins.seed);
    twin_check(weft__compute(&twins.gpu));
    twin_check(weft_stream_create(&twins.stream));
    for (size_t i = 0; i < COUNT(types); i++) {
        all_elements(&twins, types[i]);
        all_rows(&twins, types[i]);
        all_attention(&twins, types[i]);
    }
    bool good = all_overflows(&twins);
    twin_check(weft_stream_destroy(twins.stream));
    return twin_summary() == 0 && good ? 0 : 1;
}
