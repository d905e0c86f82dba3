/* Kernels of the CPU's table whose tasks share something: partial sums, tables of sines, a
 * cache. */
#include <math.h>

#include "base/log.h"
#include "kernel/cpu/launch.h"

/* ---- norms: gradients of weight and bias are sums over rows -------------------------------- */

/* So many partial sums at most, whatever the number of threads: the same bits for all of them. */
enum { NORM_BLOCKS = 64 };

static int64_t norm_rows_per_block(const weft_norm_t *args)
{
    return weft__most(weft__ceil_div(args->rows, NORM_BLOCKS), 16);
}

size_t weft__norm_work_cpu(const weft_norm_t *args)
{
    int64_t blocks = weft__ceil_div(args->rows, norm_rows_per_block(args));
    return (size_t)(blocks * 2 * args->width) * sizeof(float);
}

static void norm_backward_task(const void *arg, int64_t task, void *scratch)
{
    const weft_norm_t *args = arg;
    int64_t block = norm_rows_per_block(args), first = task * block;
    (void)scratch;
    weft__inner()->norm_backward(args, first, weft__least(first + block, args->rows),
                                 (float *)args->work + task * 2 * args->width);
}

weft_status_t weft__run_norm_backward(const void *arg)
{
    const weft_norm_t *args = arg;
    int64_t blocks = weft__ceil_div(args->rows, norm_rows_per_block(args));
    const float *partial = args->work;
    weft_status_t status = weft__team_run(blocks, 0, norm_backward_task, args);
    if (status == WEFT_OK) {
        weft__inner()->add_partials(partial, blocks, 2 * args->width, args->dweight,
                                    args->grad_type, args->width);
    }
    if (status == WEFT_OK && args->dbias != NULL) {
        weft__inner()->add_partials(partial + args->width, blocks, 2 * args->width, args->dbias,
                                    args->grad_type, args->width);
    }
    return status;
}

/* ---- RoPE: the angles of a position are those of all its heads ----------------------------- */

typedef struct rope_job {
    const weft_rope_t *args;
    float *table; /* seq x {D / 2 cosines, D / 2 sines} */
    int64_t grain;
} rope_job_t;

static void rope_task(const void *arg, int64_t task, void *scratch)
{
    const rope_job_t *job = arg;
    int64_t first = task * job->grain, rows = job->args->batch * job->args->seq;
    (void)scratch;
    weft__inner()->rope(job->args, job->table, first, weft__least(first + job->grain, rows));
}

static void rope_angles(const weft_rope_t *args, float *table)
{
    int64_t half = args->head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        double turn = pow((double)args->theta, -2.0 * (double)i / args->head_dim);
        for (int64_t t = 0; t < args->seq; t++) {
            /* The product in f32, as the models' authors do: that is what weights were trained
             * for. */
            int64_t position = args->position_first + t;
            if (args->ragged != NULL) {
                position = weft__row_position(args->ragged, t, args->seq, 0);
            }
            float angle = (float)position * (float)turn;
            table[t * args->head_dim + i] = cosf(angle);
            table[t * args->head_dim + half + i] = sinf(angle);
        }
    }
}

weft_status_t weft__run_rope(const void *arg)
{
    const weft_rope_t *args = arg;
    int64_t rows = args->batch * args->seq;
    rope_job_t job = {args, NULL, weft__most(weft__ceil_div(rows, 4 * weft__team_size()), 8)};
    job.table = weft__team_memory((size_t)(args->seq * args->head_dim) * sizeof(float));
    if (job.table == NULL) {
        return WEFT_ERR_NO_MEMORY;
    }
    rope_angles(args, job.table);
    return weft__team_run(weft__ceil_div(rows, job.grain), 0, rope_task, &job);
}

/* ---- attention ----------------------------------------------------------------------------- */

static void attention_forward_task(const void *arg, int64_t task, void *scratch)
{
    weft__inner()->attention_forward(arg, task, scratch);
}

weft_status_t weft__run_attention_forward(const void *arg)
{
    const weft_attention_t *args = arg;
    return weft__team_run(args->batch * args->heads, weft__inner()->attention_scratch(args, false),
                          attention_forward_task, args);
}

static void attention_backward_task(const void *arg, int64_t task, void *scratch)
{
    weft__inner()->attention_backward(arg, task, scratch);
}

weft_status_t weft__run_attention_backward(const void *arg)
{
    const weft_attention_t *args = arg;
    return weft__team_run(args->batch * args->kv_heads,
                          weft__inner()->attention_scratch(args, true), attention_backward_task,
                          args);
}

static void decode_append_task(const void *arg, int64_t task, void *scratch)
{
    (void)scratch;
    weft__inner()->decode_append(arg, task);
}

static void decode_task(const void *arg, int64_t task, void *scratch)
{
    weft__inner()->decode(arg, task, scratch);
}

weft_status_t weft__run_decode(const void *arg)
{
    const weft_decode_t *args = arg;
    const weft_sequences_t *ragged = args->ragged;
    int64_t most = args->past + args->seq, count = ragged != NULL ? ragged->count : args->batch;
    for (int64_t i = 0; ragged != NULL && i < count; i++) {
        most = weft__most(most, ragged->list[i].position + ragged->list[i].length);
    }
    size_t scratch = (size_t)(most + args->head_dim + 64) * sizeof(float);
    WEFT_TRY(weft__team_run(args->batch * args->seq, 0, decode_append_task, args));
    return weft__team_run(count * args->heads, scratch, decode_task, args);
}

/* ---- gradient norm ------------------------------------------------------------------------- */

weft_status_t weft__run_clip(const void *arg)
{
    const weft_clip_t *args = arg;
    double sum = 0;
    for (int64_t i = 0; i < args->count; i++) {
        sum += args->partial[i];
    }
    double norm = (double)args->scale * sqrt(sum);
    double factor = args->max_norm > 0 && norm > args->max_norm ? args->max_norm / norm : 1.0;
    args->norm[0] = (float)norm;
    args->norm[1] = isfinite(norm) ? (float)((double)args->scale * factor) : 0.0f;
    return WEFT_OK;
}
