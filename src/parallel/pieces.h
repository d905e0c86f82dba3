/* A layout (layout.h) cut into what the optimizer takes at once.
 *
 * Each bucket is cut into one *shard* per data-parallel rank, of the same size, a multiple of
 * WEFT_SUMSQ_CHUNK. A *piece* is a part of a shard whose elements are treated alike:
 *
 *     bucket   |norm1|qkv      |proj     |norm2|up           |down         |pad|
 *     shards   |          0           |          1           |          2      |
 *     pieces   |     |                |  |     |             |                 |
 *
 * Sums of gradients' squares are taken piece by piece under every stage of ZeRO, and each element's
 * sum over ranks is made in the order that its shard has, so all stages get the same bits. */
#ifndef WEFT_PARALLEL_PIECES_H
#define WEFT_PARALLEL_PIECES_H

#include "parallel/layout.h"

typedef struct weft_piece {
    int bucket, shard;
    int64_t first, count; /* in the layout */
    int64_t in_shards;    /* where it is when a rank has only its shards, one behind the other */
    bool decay;
    bool counted;    /* for the norm; not if another rank counts the same parameters */
    bool partial;    /* of its gradient each tensor-parallel rank has a part: norms cut by rows */
    bool rounded;    /* its gradient, which all of them have, was rounded otherwise on each */
    bool tied;       /* its gradient is summed over the first and the last stage */
    int64_t squares; /* where its sums of squares start among those of all counted pieces */
} weft_piece_t;

typedef struct weft_pieces {
    int count;
    weft_piece_t *list; /* by bucket, shard, place */
    int64_t squares;    /* sums of all counted pieces */
} weft_pieces_t;

typedef struct weft_piece_rules {
    bool skip_whole;  /* do not count what all parts have: not on part 0 */
    bool skip_tokens; /* do not count the tied embedding: the first stage does */
    bool partial;     /* norms' gradients are partial: sequence parallelism */
    bool rounded; /* compression rounds by what lies beside, which is not the same on all parts */
    bool tied;    /* the embedding is tied to that of another stage */
} weft_piece_rules_t;

/* Is there something to do about the gradient of a piece after the exchange over dp? */
static inline bool weft__piece_open(const weft_piece_t *piece)
{
    return piece->partial || piece->rounded || piece->tied;
}

weft_status_t weft__pieces_make(const weft_model_t *model, const weft_layout_t *layout, int shards,
                                const weft_piece_rules_t *rules, weft_pieces_t *pieces_p);
void weft__pieces_free(weft_pieces_t *pieces);

#endif
