/* The model state of one slice on one rank: see zero.h. */
#include "parallel/zero.h"

#include <stdlib.h>

#include "base/log.h"

/* ---- making one --------------------------------------------------------------------------- */

static weft_status_t allocate_state(weft_zero_t *s, weft_ledger_t *ledger)
{
    size_t bytes = (size_t)s->state_count * sizeof(float);
    weft_memory_kind_t where = s->offload ? WEFT_MEMORY_HOST : WEFT_MEMORY_OPTIMIZER;
    if (s->own == WEFT_OWN_NONE) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__ledger_malloc(ledger, where, bytes, &s->m));
    WEFT_TRY(weft__ledger_malloc(ledger, where, bytes, &s->v));
    return s->model->type != WEFT_F32 || s->offload
               ? weft__ledger_malloc(ledger, where, bytes, &s->master)
               : WEFT_OK;
}

static weft_status_t allocate(weft_zero_t *s, weft_ledger_t *ledger)
{
    size_t weight = weft_dtype_size(s->model->type), grad = weft_dtype_size(s->model->grad_type);
    size_t all = (size_t)s->layout.total, shards = all / (size_t)s->shards;
    WEFT_TRY(weft__ledger_malloc(ledger, WEFT_MEMORY_WEIGHTS,
                                 (s->stage == 3 ? shards : all) * weight, &s->weights));
    if (s->lean) {
        WEFT_TRY(
            weft__ledger_malloc(ledger, WEFT_MEMORY_GRADIENTS, shards * grad, &s->grad_shards));
    } else {
        WEFT_TRY(weft__ledger_malloc(ledger, WEFT_MEMORY_GRADIENTS, all * grad, &s->all_grads));
    }
    return allocate_state(s, ledger);
}

static weft_status_t make_views(weft_zero_t *s)
{
    size_t count = (size_t)s->model->param_count + 1;
    s->params = calloc(count, sizeof(void *));
    s->grad_views = calloc(count, sizeof(void *));
    if (s->params == NULL || s->grad_views == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for tables of %d parameters",
                          s->model->param_count);
    }
    if (s->weights != NULL && s->stage < 3) {
        weft__layout_views(&s->layout, s->weights, weft_dtype_size(s->model->type), s->params);
    }
    if (s->all_grads != NULL) {
        weft__layout_views(&s->layout, s->all_grads, weft_dtype_size(s->model->grad_type),
                           s->grad_views);
    }
    return WEFT_OK;
}

/* Each tensor by itself is for comparison, and only where no bucket is ever gathered. */
static bool by_tensor(const weft_zero_options_t *options)
{
    return options->bucket_bytes == 0 && (options->plan->zero == 0 || options->plan->dp == 1);
}

weft_status_t weft__zero_layout(const weft_model_t *model, const weft_zero_options_t *options,
                                weft_layout_t *layout_p)
{
    weft_layout_rules_t rules = {
        .bucket_elements = (int64_t)(options->bucket_bytes / sizeof(float)),
        .align = (int64_t)WEFT_SUMSQ_CHUNK * options->plan->dp,
        .tensors = by_tensor(options)};
    if (rules.tensors) {
        rules.align = weft__compression_align(options->compress, options->plan->dp);
    }
    return weft__layout_create(model, &rules, layout_p);
}

static weft_status_t open_all(weft_zero_t *s, const weft_zero_options_t *options,
                              weft_ledger_t *ledger)
{
    WEFT_TRY(weft__zero_layout(s->model, options, &s->layout));
    WEFT_TRY(weft__pieces_make(s->model, &s->layout, s->shards, &options->rules, &s->pieces));
    s->state_count = s->own == WEFT_OWN_ALL      ? s->layout.total
                     : s->own == WEFT_OWN_SHARDS ? s->layout.total / s->shards
                                                 : 0;
    WEFT_TRY(allocate(s, ledger));
    WEFT_TRY(make_views(s));
    if (s->stage > 0) {
        WEFT_TRY(weft__gather_open(s, options->weights_comm, options->overlap, ledger, &s->gather));
    }
    return weft__grads_open(s, options, ledger, &s->grads);
}

weft_status_t weft__zero_open(weft_zero_t *zero, const weft_model_t *model,
                              const weft_compute_t *compute, const weft_zero_options_t *options,
                              weft_ledger_t *ledger)
{
    const weft_plan_t *plan = options->plan;
    int stage = plan->dp > 1 ? plan->zero : 0;
    bool naive = options->naive && plan->dp > 1;
    bool lean = stage >= 2 && (plan->lean || plan->micro_batches == 1);
    *zero = (weft_zero_t){.model = model,
                          .compute = compute,
                          .stream = options->stream,
                          .timeline = options->timeline,
                          .meter = options->meter,
                          .exchange = naive        ? &weft__exchange_naive
                                      : stage == 0 ? &weft__exchange_sum
                                      : lean       ? &weft__exchange_lean
                                                   : &weft__exchange_scatter,
                          .own = stage > 0                        ? WEFT_OWN_SHARDS
                                 : naive && options->dp_index > 0 ? WEFT_OWN_NONE
                                                                  : WEFT_OWN_ALL,
                          .stage = stage,
                          .rank = options->dp_index,
                          .ranks = plan->dp,
                          .shards = by_tensor(options) ? 1 : plan->dp,
                          .lean = lean,
                          .offload = plan->offload};
    return open_all(zero, options, ledger);
}

static void free_state(const weft_zero_t *s, float *memory)
{
    if (memory != NULL && s->offload) {
        weft_host_free(memory);
    } else {
        weft_free(memory);
    }
}

void weft__zero_close(weft_zero_t *s)
{
    weft__grads_close(s->grads);
    weft__gather_close(s->gather);
    free_state(s, s->m);
    free_state(s, s->v);
    free_state(s, s->master);
    weft_free(s->grad_shards);
    weft_free(s->all_grads);
    weft_free(s->weights);
    free(s->params);
    free(s->grad_views);
    weft__pieces_free(&s->pieces);
    weft__layout_destroy(&s->layout);
    *s = (weft_zero_t){0};
}

/* ---- pieces ------------------------------------------------------------------------------- */

void *weft__zero_weights(const weft_zero_t *s, const weft_piece_t *piece)
{
    int64_t at = s->stage == 3 ? piece->in_shards : piece->first;
    return (char *)s->weights + (size_t)at * weft_dtype_size(s->model->type);
}

void *weft__zero_grads(const weft_zero_t *s, const weft_piece_t *piece)
{
    char *base = s->lean ? s->grad_shards : s->all_grads;
    int64_t at = s->lean ? piece->in_shards : piece->first;
    return base + (size_t)at * weft_dtype_size(s->model->grad_type);
}

int64_t weft__zero_state(const weft_zero_t *s, const weft_piece_t *piece)
{
    return s->own == WEFT_OWN_SHARDS ? piece->in_shards : piece->first;
}

weft_status_t weft__zero_square(const weft_zero_t *s, int bucket, bool open, weft_stream_h stream)
{
    weft_sumsq_t list[WEFT_LIST_MOST];
    int count = 0;
    for (int i = 0; i < s->pieces.count && s->squares != NULL; i++) {
        const weft_piece_t *piece = &s->pieces.list[i];
        if ((bucket != WEFT_ALL_BUCKETS && piece->bucket != bucket) ||
            weft__piece_open(piece) != open || !piece->counted || !weft__zero_owns(s, piece)) {
            continue;
        }
        list[count++] = (weft_sumsq_t){s->model->grad_type, piece->count,
                                       weft__zero_grads(s, piece), s->squares + piece->squares};
        if (count == WEFT_LIST_MOST) {
            WEFT_TRY(s->compute->sumsq_list(list, count, stream));
            count = 0;
        }
    }
    return s->compute->sumsq_list(list, count, stream);
}

/* ---- parameters from and to the host ------------------------------------------------------ */

/* The part of parameter `param` that one shard holds: where it starts in the parameter, in the
 * layout and among this rank's shards; how long it is. */
typedef struct range {
    int64_t in_param, in_layout, in_shards, count;
} range_t;

static range_t range_of(const weft_zero_t *s, int param, int shard)
{
    const weft_bucket_t *bucket = &s->layout.buckets[s->layout.bucket_of[param]];
    int64_t size = bucket->count / s->shards, from = bucket->first + shard * size, to = from + size;
    int64_t first = s->layout.offset[param], end = first + s->model->params[param].count;
    int64_t begin = first > from ? first : from;
    end = end < to ? end : to;
    return (range_t){begin - first, begin, bucket->first / s->shards + begin - from,
                     end > begin ? end - begin : 0};
}

/* Elements that are brought into another type at a time: memory for all of the largest parameter
 * would stay with the pool, and no step needs it. */
enum { STAGED = 1 << 20 };

static weft_status_t put_rounded(weft_zero_t *s, char *to, const float *values, int64_t count,
                                 float *staged)
{
    weft_cast_t cast = {WEFT_F32, s->model->type, count, staged, to};
    WEFT_TRY(weft_memcpy(staged, values, (size_t)count * sizeof(float), NULL));
    WEFT_TRY(s->compute->cast(&cast, s->stream));
    return weft_stream_synchronize(s->stream);
}

static weft_status_t put_weights(weft_zero_t *s, int64_t at, const float *values, int64_t count)
{
    size_t element = weft_dtype_size(s->model->type);
    char *to = (char *)s->weights + (size_t)at * element;
    float *staged = NULL;
    weft_status_t status = WEFT_OK;
    if (s->model->type == WEFT_F32) {
        return weft_memcpy(to, values, (size_t)count * element, NULL);
    }
    WEFT_TRY(
        weft_malloc((void **)&staged, (size_t)(count < STAGED ? count : STAGED) * sizeof(float)));
    for (int64_t i = 0; i < count && status == WEFT_OK; i += STAGED) {
        int64_t some = count - i < STAGED ? count - i : STAGED;
        status = put_rounded(s, to + (size_t)i * element, values + i, some, staged);
    }
    weft_free(staged);
    return status;
}

static float *state_memory(const weft_zero_t *s, weft_state_kind_t what)
{
    return what == WEFT_STATE_M ? s->m : what == WEFT_STATE_V ? s->v : s->master;
}

/* One shard's part: of weights every rank has every shard below stage 3, of state its own. */
static weft_status_t put_range(weft_zero_t *s, range_t r, bool mine, weft_state_kind_t what,
                               const float *local)
{
    float *state = state_memory(s, what);
    const float *values = local + r.in_param;
    bool spread = s->own == WEFT_OWN_SHARDS;
    if (r.count == 0) {
        return WEFT_OK;
    }
    if (what == WEFT_STATE_WEIGHTS && (s->stage < 3 || mine)) {
        WEFT_TRY(put_weights(s, s->stage == 3 ? r.in_shards : r.in_layout, values, r.count));
    }
    return state != NULL && (!spread || mine)
               ? weft_memcpy(state + (spread ? r.in_shards : r.in_layout), values,
                             (size_t)r.count * sizeof(float), NULL)
               : WEFT_OK;
}

weft_status_t weft__zero_put(weft_zero_t *s, int param, weft_state_kind_t what, const float *local)
{
    for (int shard = 0; shard < s->shards; shard++) {
        WEFT_TRY(put_range(s, range_of(s, param, shard), shard == s->rank, what, local));
    }
    return WEFT_OK;
}

bool weft__zero_whole(const weft_zero_t *s, weft_state_kind_t what)
{
    return s->own != WEFT_OWN_SHARDS ||
           (what == WEFT_STATE_WEIGHTS && s->stage < 3 && s->master == NULL);
}

weft_status_t weft__zero_get(const weft_zero_t *s, int param, weft_state_kind_t what, int64_t count,
                             float *local)
{
    const float *state = state_memory(s, what);
    bool weights = what == WEFT_STATE_WEIGHTS && state == NULL; /* then they are f32 */
    for (int shard = 0; shard < s->shards; shard++) {
        range_t r = range_of(s, param, shard);
        bool spread = weights ? s->stage == 3 : s->own == WEFT_OWN_SHARDS;
        const float *from = weights ? s->weights : state;
        int64_t wanted = r.in_param + r.count < count ? r.count : count - r.in_param;
        if (wanted > 0 && (!spread || shard == s->rank)) {
            WEFT_TRY(weft_memcpy(local + r.in_param, from + (spread ? r.in_shards : r.in_layout),
                                 (size_t)wanted * sizeof(float), NULL));
        }
    }
    return WEFT_OK;
}
