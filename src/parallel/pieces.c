/* A layout cut into shards and pieces: see pieces.h. */
#include "parallel/pieces.h"

#include <stdlib.h>

#include "base/log.h"

static bool is_norm(weft_role_t role)
{
    return role == WEFT_NORM1_WEIGHT || role == WEFT_NORM1_BIAS || role == WEFT_NORM2_WEIGHT ||
           role == WEFT_NORM2_BIAS;
}

/* What the pieces of a parameter are like. */
static weft_piece_t kind_of(const weft_param_t *param, const weft_piece_rules_t *rules)
{
    bool tokens = param->key.role == WEFT_TOKENS;
    bool skip = (rules->skip_whole && param->split == WEFT_SPLIT_NONE) ||
                (rules->skip_tokens && tokens);
    bool partial = rules->partial && is_norm(param->key.role);
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
static void cut_shard(const weft_model_t *model, const weft_layout_t *layout, int shards, int b,
                      int shard, const weft_piece_rules_t *rules, weft_pieces_t *pieces)
{
    const weft_bucket_t *bucket = &layout->buckets[b];
    int64_t size = bucket->count / shards, from = bucket->first + shard * size, to = from + size;
    for (int k = 0; k < layout->param_count; k++) {
        int i = layout->by_place[k];
        int64_t first = layout->offset[i], end = first + model->params[i].count;
        first = first > from ? first : from;
        end = end < to ? end : to;
        if (layout->bucket_of[i] == b && first < end) {
            weft_piece_t piece = kind_of(&model->params[i], rules);
            piece.bucket = b;
            piece.shard = shard;
            piece.first = first;
            piece.count = end - first;
            piece.in_shards = bucket->first / shards + first - from;
            add_piece(pieces, &piece);
        }
    }
}

weft_status_t weft__pieces_make(const weft_model_t *model, const weft_layout_t *layout, int shards,
                                const weft_piece_rules_t *rules, weft_pieces_t *pieces_p)
{
    /* A cut between shards adds one piece at most. */
    size_t most = (size_t)layout->param_count + (size_t)layout->bucket_count * (size_t)shards;
    weft_pieces_t pieces = {.list = calloc(most, sizeof(*pieces.list))};
    if (pieces.list == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the pieces of %d parameters",
                          layout->param_count);
    }
    for (int b = 0; b < layout->bucket_count; b++) {
        for (int shard = 0; shard < shards; shard++) {
            cut_shard(model, layout, shards, b, shard, rules, &pieces);
        }
    }
    for (int i = 0; i < pieces.count; i++) {
        pieces.list[i].squares = pieces.squares;
        if (pieces.list[i].counted) {
            pieces.squares += (pieces.list[i].count + WEFT_SUMSQ_CHUNK - 1) / WEFT_SUMSQ_CHUNK;
        }
    }
    *pieces_p = pieces;
    return WEFT_OK;
}

void weft__pieces_free(weft_pieces_t *pieces)
{
    free(pieces->list);
    *pieces = (weft_pieces_t){0};
}
