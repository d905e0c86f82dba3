/* Cross-entropy over a vocabulary that is cut among ranks.
 *
 * Each rank has the logits of its words. The loss of a token needs the logarithm of the sum of all
 * exponentials and the logit of the target, which one rank has: ranks exchange {largest logit, sum
 * of exponentials relative to it, logit of the target or 0} and combine them on the host, in the
 * order of the ranks, so that all of them get the same bits. With the result, each turns its logits
 * into their gradient. */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "parallel/tensor.h"

enum { STATS = 3 };

/* What the host's part needs to know about some rows; it runs in the order of the stream. */
typedef struct combine {
    const weft_vocabulary_t *vocabulary;
    int64_t rows;
} combine_t;

struct weft_vocabulary {
    weft_comm_h comm;
    int parts;
    int64_t rows;        /* most at a time */
    weft_meter_t *meter; /* not owned */
    float *stats;        /* this part's, on the device: rows x 3 */
    float *all;          /* everybody's: parts x rows x 3 */
    float *lse;          /* rows */
    /* On the host. */
    float *host_all, *host_lse, *host_losses;
    int32_t *host_targets;
    combine_t full, rest; /* of as many rows as fit, and of the last ones */
};

static weft_status_t make_all(weft_vocabulary_t *v, weft_ledger_t *ledger)
{
    size_t rows = (size_t)v->rows, parts = (size_t)v->parts, f32 = sizeof(float);
    weft_memory_kind_t device = WEFT_MEMORY_BUFFERS, host = WEFT_MEMORY_HOST;
    WEFT_TRY(weft__ledger_malloc(ledger, device, rows * STATS * f32, &v->stats));
    WEFT_TRY(weft__ledger_malloc(ledger, device, parts * rows * STATS * f32, &v->all));
    WEFT_TRY(weft__ledger_malloc(ledger, device, rows * f32, &v->lse));
    WEFT_TRY(weft__ledger_malloc(ledger, host, parts * rows * STATS * f32, &v->host_all));
    WEFT_TRY(weft__ledger_malloc(ledger, host, rows * f32, &v->host_lse));
    WEFT_TRY(weft__ledger_malloc(ledger, host, rows * f32, &v->host_losses));
    return weft__ledger_malloc(ledger, host, rows * sizeof(int32_t), &v->host_targets);
}

weft_status_t weft__vocabulary_create(const weft_tensor_options_t *options, weft_ledger_t *ledger,
                                      weft_vocabulary_t **vocabulary_p)
{
    weft_vocabulary_t *v = calloc(1, sizeof(*v));
    if (v == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a vocabulary in parts");
    }
    v->comm = options->comm;
    v->parts = options->parts;
    v->rows = options->head_rows;
    v->meter = options->meter;
    weft_status_t status = make_all(v, ledger);
    if (status != WEFT_OK) {
        weft__vocabulary_destroy(v);
        return status;
    }
    *vocabulary_p = v;
    return WEFT_OK;
}

void weft__vocabulary_destroy(weft_vocabulary_t *v)
{
    if (v != NULL) {
        weft_free(v->stats);
        weft_free(v->all);
        weft_free(v->lse);
        weft_host_free(v->host_all);
        weft_host_free(v->host_lse);
        weft_host_free(v->host_losses);
        weft_host_free(v->host_targets);
        free(v);
    }
}

/* ---- some rows ---------------------------------------------------------------------------- */

static void combine(void *arg)
{
    const combine_t *c = arg;
    const weft_vocabulary_t *v = c->vocabulary;
    for (int64_t row = 0; row < c->rows; row++) {
        double most = -INFINITY, sum = 0.0, target = 0.0;
        for (int p = 0; p < v->parts; p++) {
            const float *stats = v->host_all + (p * c->rows + row) * STATS;
            most = stats[1] > 0.0f && (double)stats[0] > most ? (double)stats[0] : most;
        }
        for (int p = 0; p < v->parts; p++) {
            const float *stats = v->host_all + (p * c->rows + row) * STATS;
            /* A part without words of its own has a sum of 0; NaN must get through. */
            sum += stats[1] == 0.0f ? 0.0 : (double)stats[1] * exp((double)stats[0] - most);
            target += (double)stats[2];
        }
        double lse = most + log(sum);
        v->host_lse[row] = (float)lse;
        v->host_losses[row] = v->host_targets[row] < 0 ? 0.0f : (float)(lse - target);
    }
}

/* Exchange what is known about `rows` rows; lse and losses are on the device afterwards. */
static weft_status_t exchange(weft_vocabulary_t *v, const weft_pass_t *pass, combine_t *job,
                              const int32_t *targets, float *losses)
{
    size_t rows = (size_t)job->rows, f32 = sizeof(float);
    weft_stream_h stream = pass->stream;
    WEFT_TRY(weft_allgather(v->stats, v->all, rows * STATS, WEFT_F32, v->comm, stream));
    WEFT_TRY(weft_memcpy(v->host_all, v->all, (size_t)v->parts * rows * STATS * f32, stream));
    WEFT_TRY(weft_memcpy(v->host_targets, targets, rows * sizeof(int32_t), stream));
    WEFT_TRY(weft_stream_call(stream, combine, job));
    WEFT_TRY(weft_memcpy(v->lse, v->host_lse, rows * f32, stream));
    return weft_memcpy(losses, v->host_losses, rows * f32, stream);
}

static weft_status_t some_rows(weft_vocabulary_t *v, const weft_pass_t *pass,
                               const weft_head_acts_t *acts, const int32_t *targets, int64_t first,
                               combine_t *job)
{
    const weft_model_t *model = pass->model;
    weft_classify_t classify = {.type = model->type,
                                .rows = job->rows,
                                .vocab = model->vocab_count,
                                .ld = model->vocab_rows,
                                .vocab_first = model->vocab_first,
                                .logits = pass->scratch.logits,
                                .targets = targets + first,
                                .losses = acts->losses + first,
                                .stats = v->stats,
                                .lse = v->lse,
                                .scale = pass->loss_scale};
    WEFT_TRY(weft__head_logits(pass, acts, first, job->rows));
    WEFT_TRY(pass->compute->classify_stats(&classify, pass->stream));
    int stretch = weft__meter_begin(v->meter, WEFT_STRETCH_TENSOR);
    weft_status_t status = exchange(v, pass, job, targets + first, acts->losses + first);
    weft__meter_end(v->meter, stretch);
    WEFT_TRY(status);
    if (!pass->training) {
        return WEFT_OK;
    }
    WEFT_TRY(pass->compute->classify_finish(&classify, pass->stream));
    return weft__head_dlogits(pass, acts, first, job->rows);
}

weft_status_t weft__vocabulary_loss(weft_vocabulary_t *v, const weft_pass_t *pass,
                                    const weft_head_acts_t *acts, const int32_t *targets)
{
    int64_t all = pass->shape.batch * pass->shape.seq;
    /* The same for every micro-batch, so that a job that is still queued is not changed. */
    v->full = (combine_t){v, v->rows < all ? v->rows : all};
    v->rest = (combine_t){v, all % v->full.rows};
    for (int64_t first = 0; first < all; first += v->full.rows) {
        combine_t *job = all - first < v->full.rows ? &v->rest : &v->full;
        WEFT_TRY(some_rows(v, pass, acts, targets, first, job));
    }
    return WEFT_OK;
}
