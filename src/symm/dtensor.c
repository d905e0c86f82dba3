/* Rows of a tensor, spread over the ranks. Every rank knows the whole layout, so finding a row asks
 * nobody; shards begin at the same offset of every heap. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "symm/shared.h"

struct weft_dtensor {
    weft_symm_h symm;
    size_t rows, row_bytes;
    char *shard;   /* this rank's, symmetric; as large as the largest */
    size_t *first; /* [size + 1]: the first row of each rank */
};

/* ---- layout ----------------------------------------------------------------------------- */

static weft_status_t lay_out(weft_symm_h symm, const char *who, size_t rows, const size_t *shards,
                             size_t *first)
{
    size_t n = (size_t)symm->size, sum = 0;
    for (size_t p = 0; p < n; p++) {
        first[p] = sum;
        size_t part = shards ? shards[p] : rows / n + (p < rows % n);
        if (part > rows - sum) {
            return weft__fail(WEFT_ERR_INVALID,
                              "weft_%s: the shards of ranks 0 to %zu have more than the %zu rows "
                              "that there are",
                              who, p, rows);
        }
        sum += part;
    }
    first[n] = sum;
    if (sum != rows) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: the shards have %zu rows together, not %zu",
                          who, sum, rows);
    }
    return WEFT_OK;
}

static size_t largest(const size_t *first, int size)
{
    size_t most = 0;
    for (int p = 0; p < size; p++) {
        most = first[p + 1] - first[p] > most ? first[p + 1] - first[p] : most;
    }
    return most;
}

/* Do all ranks mean the same layout? */
static weft_status_t agree(weft_symm_h symm, const char *who, size_t rows, size_t row_bytes,
                           const size_t *first)
{
    uint64_t hash = 14695981039346656037ull;
    for (int p = 0; p <= symm->size; p++) {
        hash = (hash ^ first[p]) * 1099511628211ull;
    }
    uint64_t mine[3] = {rows, row_bytes, hash};
    static const char *const texts[3] = {"rows:", "bytes of a row:", "a hash of the shards is"};
    return weft__symm_agree(symm, who, mine, 3, texts);
}

/* ---- making ----------------------------------------------------------------------------- */

weft_status_t weft_dtensor_create(weft_symm_h symm, size_t rows, size_t row_bytes,
                                  const size_t *shards, weft_dtensor_h *tensor_p)
{
    WEFT_TRY(weft__symm_check(symm, "dtensor_create"));
    if (!tensor_p || row_bytes == 0 || rows > SIZE_MAX / 2 / row_bytes) {
        return weft__fail(WEFT_ERR_INVALID, "weft_dtensor_create: %s",
                          !tensor_p        ? "tensor_p is NULL"
                          : row_bytes == 0 ? "rows of 0 bytes"
                                           : "the tensor is larger than any memory");
    }
    weft_dtensor_h tensor = calloc(1, sizeof(*tensor));
    size_t *first = calloc((size_t)symm->size + 1, sizeof(*first));
    void *shard = NULL;
    weft_status_t status = tensor && first
                               ? lay_out(symm, "dtensor_create", rows, shards, first)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe a tensor");
    status = status == WEFT_OK ? agree(symm, "dtensor_create", rows, row_bytes, first) : status;
    if (status == WEFT_OK) {
        status = weft_symm_malloc(symm, largest(first, symm->size) * row_bytes, &shard);
    }
    if (status != WEFT_OK) {
        free(tensor);
        free(first);
        return status;
    }
    *tensor = (struct weft_dtensor){
        .symm = symm, .rows = rows, .row_bytes = row_bytes, .shard = shard, .first = first};
    *tensor_p = tensor;
    return WEFT_OK;
}

weft_status_t weft_dtensor_destroy(weft_dtensor_h tensor)
{
    if (!tensor) {
        return WEFT_OK;
    }
    weft_status_t status = weft_symm_free(tensor->symm, tensor->shard);
    free(tensor->first);
    free(tensor);
    return status;
}

/* ---- questions -------------------------------------------------------------------------- */

weft_status_t weft_dtensor_local(weft_dtensor_h tensor, void **ptr_p, size_t *first_p,
                                 size_t *rows_p)
{
    if (!tensor) {
        return weft__refuse_null("dtensor_local", "tensor");
    }
    int me = tensor->symm->rank;
    if (ptr_p) {
        *ptr_p = tensor->shard;
    }
    if (first_p) {
        *first_p = tensor->first[me];
    }
    if (rows_p) {
        *rows_p = tensor->first[me + 1] - tensor->first[me];
    }
    return WEFT_OK;
}

/* The rank of a row that exists: the last whose first row is not behind it (empty shards begin
 * where the next one does). */
static int owner_of(const struct weft_dtensor *tensor, size_t row)
{
    int lo = 0, hi = tensor->symm->size;
    while (hi - lo > 1) {
        int middle = (lo + hi) / 2;
        if (tensor->first[middle] <= row) {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    return lo;
}

static weft_status_t check_rows(const struct weft_dtensor *tensor, const char *who, size_t first,
                                size_t rows)
{
    if (!tensor) {
        return weft__refuse_null(who, "tensor");
    }
    if (first > tensor->rows || rows > tensor->rows - first) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_%s: rows %zu to %zu are asked for, and there are %zu", who, first,
                          first + rows, tensor->rows);
    }
    return WEFT_OK;
}

weft_status_t weft_dtensor_owner(weft_dtensor_h tensor, size_t row, int *rank_p)
{
    weft_status_t status = check_rows(tensor, "dtensor_owner", row, 1);
    if (status == WEFT_OK && !rank_p) {
        return weft__refuse_null("dtensor_owner", "place for the rank");
    }
    if (status == WEFT_OK) {
        *rank_p = owner_of(tensor, row);
    }
    return status;
}

weft_status_t weft_dtensor_view(weft_dtensor_h tensor, weft_dtensor_view_t *view_p)
{
    if (!tensor || !view_p) {
        return weft__refuse_null("dtensor_view", tensor ? "view" : "tensor");
    }
    if (tensor->symm->size > WEFT_SYMM_VIEW_RANKS) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "weft_dtensor_view: a view has room for %d ranks, and there are %d",
                          WEFT_SYMM_VIEW_RANKS, tensor->symm->size);
    }
    *view_p = (weft_dtensor_view_t){.row_bytes = tensor->row_bytes,
                                    .offset = (uint64_t)(tensor->shard - tensor->symm->base)};
    for (int p = 0; p <= tensor->symm->size; p++) {
        view_p->first[p] = tensor->first[p];
    }
    return WEFT_OK;
}

/* ---- slices ----------------------------------------------------------------------------- */

/* A slice, shard by shard: to or from `local`. */
static weft_status_t move(const struct weft_dtensor *tensor, size_t first, size_t rows, char *local,
                          bool put, weft_stream_h stream)
{
    weft_status_t status = WEFT_OK;
    while (rows > 0 && status == WEFT_OK) {
        int p = owner_of(tensor, first);
        size_t end = tensor->first[p + 1], part = end - first < rows ? end - first : rows;
        size_t bytes = part * tensor->row_bytes;
        char *there = tensor->shard + (first - tensor->first[p]) * tensor->row_bytes;
        status = put ? weft_symm_put(tensor->symm, there, local, bytes, p, stream)
                     : weft_symm_get(tensor->symm, local, there, bytes, p, stream);
        first += part;
        rows -= part;
        local += bytes;
    }
    return status;
}

weft_status_t weft_dtensor_get(weft_dtensor_h tensor, size_t first, size_t rows, void *dst,
                               weft_stream_h stream)
{
    WEFT_TRY(check_rows(tensor, "dtensor_get", first, rows));
    return move(tensor, first, rows, dst, false, stream);
}

weft_status_t weft_dtensor_put(weft_dtensor_h tensor, size_t first, size_t rows, const void *src,
                               weft_stream_h stream)
{
    WEFT_TRY(check_rows(tensor, "dtensor_put", first, rows));
    return move(tensor, first, rows, (char *)(uintptr_t)src, true, stream);
}

weft_status_t weft_dtensor_rebalance(weft_dtensor_h tensor, const size_t *shards)
{
    if (!tensor) {
        return weft__refuse_null("dtensor_rebalance", "tensor");
    }
    weft_symm_h symm = tensor->symm;
    int me = symm->rank;
    void *shard = NULL;
    size_t *first = calloc((size_t)symm->size + 1, sizeof(*first));
    weft_status_t status = first ? lay_out(symm, "dtensor_rebalance", tensor->rows, shards, first)
                                 : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe a tensor");
    if (status == WEFT_OK) {
        status = agree(symm, "dtensor_rebalance", tensor->rows, tensor->row_bytes, first);
    }
    if (status == WEFT_OK) { /* everybody is here: what they wrote before is in place */
        status = weft_symm_malloc(symm, largest(first, symm->size) * tensor->row_bytes, &shard);
    }
    if (status == WEFT_OK) { /* each rank fetches what is its own from now on */
        status = move(tensor, first[me], first[me + 1] - first[me], shard, false, NULL);
    }
    if (status == WEFT_OK) { /* which waits until all have fetched */
        status = weft_symm_free(symm, tensor->shard);
    }
    if (status != WEFT_OK) {
        free(first);
        return status;
    }
    free(tensor->first);
    tensor->first = first;
    tensor->shard = shard;
    return WEFT_OK;
}
