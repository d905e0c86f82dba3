/* Parameters cut into units, buckets, shards and pieces: see units.h. */
#include "parallel/units.h"

#include <stdlib.h>

#include "base/log.h"

enum { PARAM_ALIGN = 64, UNIT_TOKENS = -1, UNIT_POSITIONS = -2, UNIT_HEAD = -3 };

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static int unit_of(const weft_param_t *param)
{
    if (param->layer >= 0) {
        return param->layer;
    }
    return param->role == WEFT_TOKENS      ? UNIT_TOKENS
           : param->role == WEFT_POSITIONS ? UNIT_POSITIONS
                                           : UNIT_HEAD;
}

/* ---- the layout ---------------------------------------------------------------------------------- */

/* Parameters [first, end) of a unit. Its own parameters keep their order, in which those that make
 * one matrix are neighbours. */
static int64_t place_unit(const weft_model_t *model, weft_layout_t *layout, int first, int end)
{
    int64_t at = layout->total;
    for (int i = first; i < end; i++) {
        layout->offset[i] = at;
        layout->bucket_of[i] = layout->bucket_count - 1;
        at += round_up(model->params[i].count, PARAM_ALIGN);
    }
    return at;
}

static int64_t unit_size(const weft_model_t *model, int first, int end)
{
    int64_t size = 0;
    for (int i = first; i < end; i++) {
        size += round_up(model->params[i].count, PARAM_ALIGN);
    }
    return size;
}

static void close_bucket(weft_layout_t *layout, int64_t align)
{
    if (layout->bucket_count > 0) {
        weft_bucket_t *bucket = &layout->buckets[layout->bucket_count - 1];
        layout->total = round_up(layout->total, align);
        bucket->count = layout->total - bucket->first;
    }
}

/* Units from the last to the first, as backward completes them. */
static void place_all(const weft_model_t *model, int64_t limit, int64_t align,
                      weft_layout_t *layout)
{
    bool open_to_blocks = false;
    int64_t begun = 0;
    for (int end = model->param_count, first; end > 0; end = first) {
        int unit = unit_of(&model->params[end - 1]);
        for (first = end - 1; first > 0 && unit_of(&model->params[first - 1]) == unit;) {
            first--;
        }
        int64_t size = unit_size(model, first, end);
        if (unit < 0 || !open_to_blocks || layout->total + size - begun > limit) {
            close_bucket(layout, align);
            begun = layout->total;
            layout->buckets[layout->bucket_count++].first = begun;
        }
        weft_bucket_t *bucket = &layout->buckets[layout->bucket_count - 1];
        open_to_blocks = unit >= 0;
        layout->total = place_unit(model, layout, first, end);
        bucket->param_first = first;
        bucket->param_count += end - first;
    }
    close_bucket(layout, align);
}

weft_status_t weft__units_layout(const weft_model_t *model, int64_t bucket_elements, int ranks,
                                 weft_layout_t *layout_p)
{
    size_t count = (size_t)model->param_count + 1;
    weft_layout_t layout = {.param_count = model->param_count,
                            .offset = calloc(count, sizeof(int64_t)),
                            .bucket_of = calloc(count, sizeof(int)),
                            .buckets = calloc(count, sizeof(weft_bucket_t))};
    if (layout.offset == NULL || layout.bucket_of == NULL || layout.buckets == NULL) {
        weft__layout_destroy(&layout);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the layout of %d parameters",
                          model->param_count);
    }
    place_all(model, bucket_elements, (int64_t)WEFT_SUMSQ_CHUNK * ranks, &layout);
    *layout_p = layout;
    return WEFT_OK;
}

int weft__units_end(const weft_model_t *model, const weft_layout_t *layout, weft_role_t role)
{
    int param = weft__model_param(model, -1, role);
    return param >= 0 ? layout->bucket_of[param] : -1;
}

int weft__units_block(const weft_model_t *model, const weft_layout_t *layout, int layer)
{
    return layout->bucket_of[weft__model_param(model, layer, WEFT_NORM1_WEIGHT)];
}

bool weft__units_has_blocks(const weft_model_t *model, const weft_layout_t *layout, int bucket)
{
    return model->params[layout->buckets[bucket].param_first].layer >= 0;
}

/* ---- pieces -------------------------------------------------------------------------------------- */

static bool is_norm(weft_role_t role)
{
    return role == WEFT_NORM1_WEIGHT || role == WEFT_NORM1_BIAS || role == WEFT_NORM2_WEIGHT ||
           role == WEFT_NORM2_BIAS;
}

/* What the pieces of a parameter are like. */
static weft_piece_t kind_of(const weft_param_t *param, const weft_piece_rules_t *rules)
{
    bool tokens = param->role == WEFT_TOKENS;
    bool skip = (rules->skip_whole && param->split == WEFT_SPLIT_NONE) ||
                (rules->skip_tokens && tokens);
    bool partial = rules->partial && is_norm(param->role);
    return (weft_piece_t){.decay = param->decay,
                          .counted = !skip,
                          .partial = partial,
                          .rounded = rules->rounded && param->split == WEFT_SPLIT_NONE && !partial,
                          .tied = rules->tied && tokens};
}

static bool alike(const weft_piece_t *a, const weft_piece_t *b)
{
    return a->bucket == b->bucket && a->shard == b->shard && a->decay == b->decay &&
           a->counted == b->counted && a->partial == b->partial && a->rounded == b->rounded &&
           a->tied == b->tied;
}

static void add_piece(weft_pieces_t *pieces, const weft_piece_t *piece)
{
    weft_piece_t *last = pieces->count > 0 ? &pieces->list[pieces->count - 1] : NULL;
    if (last != NULL && alike(last, piece)) {
        last->count = piece->first + piece->count - last->first; /* zeros between them stay zero */
    } else {
        pieces->list[pieces->count++] = *piece;
    }
}

/* The parts of shard `shard` of bucket `b`, in the order of their places. */
static void cut_shard(const weft_model_t *model, const weft_layout_t *layout, int ranks, int b,
                      int shard, const int *order, const weft_piece_rules_t *rules,
                      weft_pieces_t *pieces)
{
    const weft_bucket_t *bucket = &layout->buckets[b];
    int64_t size = bucket->count / ranks, from = bucket->first + shard * size, to = from + size;
    for (int k = 0; k < layout->param_count; k++) {
        int i = order[k];
        int64_t first = layout->offset[i], end = first + model->params[i].count;
        first = first > from ? first : from;
        end = end < to ? end : to;
        if (layout->bucket_of[i] == b && first < end) {
            weft_piece_t piece = kind_of(&model->params[i], rules);
            piece.bucket = b;
            piece.shard = shard;
            piece.first = first;
            piece.count = end - first;
            piece.in_shards = bucket->first / ranks + first - from;
            add_piece(pieces, &piece);
        }
    }
}

/* Parameters by place: units backwards, within a unit forwards. */
static void order_params(const weft_layout_t *layout, int *order)
{
    for (int i = 0; i < layout->param_count; i++) {
        int at = i;
        for (; at > 0 && layout->offset[order[at - 1]] > layout->offset[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

weft_status_t weft__pieces_make(const weft_model_t *model, const weft_layout_t *layout, int ranks,
                                const weft_piece_rules_t *rules, weft_pieces_t *pieces_p)
{
    /* A cut between shards adds one piece at most. */
    size_t most = (size_t)layout->param_count + (size_t)layout->bucket_count * (size_t)ranks;
    weft_pieces_t pieces = {.list = calloc(most, sizeof(*pieces.list))};
    int *order = calloc((size_t)layout->param_count + 1, sizeof(int));
    if (pieces.list == NULL || order == NULL) {
        free(pieces.list);
        free(order);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the pieces of %d parameters",
                          layout->param_count);
    }
    order_params(layout, order);
    for (int b = 0; b < layout->bucket_count; b++) {
        for (int shard = 0; shard < ranks; shard++) {
            cut_shard(model, layout, ranks, b, shard, order, rules, &pieces);
        }
    }
    for (int i = 0; i < pieces.count; i++) {
        pieces.list[i].squares = pieces.squares;
        if (pieces.list[i].counted) {
            pieces.squares += (pieces.list[i].count + WEFT_SUMSQ_CHUNK - 1) / WEFT_SUMSQ_CHUNK;
        }
    }
    free(order);
    *pieces_p = pieces;
    return WEFT_OK;
}

void weft__pieces_free(weft_pieces_t *pieces)
{
    free(pieces->list);
    *pieces = (weft_pieces_t){0};
}
