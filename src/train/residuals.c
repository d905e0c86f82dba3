/* Residuals of compressed gradients in checkpoints: see residuals.h. */
#include "train/residuals.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/checksum.h"
#include "base/log.h"

#define PIECE ((int64_t)1 << 18) /* elements of a message */

/* As ranks tell each other: bytes. */
typedef struct weft_residual_row {
    char name[120];
    int64_t count; /* elements */
} weft_residual_row_t;

/* ---- of this rank ------------------------------------------------------------------------- */

static int rows_here(const weft_trainer_t *t)
{
    return weft__worker_chunks(t->worker);
}

static float *row_here(const weft_trainer_t *t, int index, const weft_layout_t **layout_p,
                       int64_t *count_p)
{
    return weft__worker_residuals(t->worker, index, layout_p, count_p);
}

/* The order of gradients in memory, as a number. */
static uint32_t print_of(const weft_layout_t *layout)
{
    uint32_t sum = weft__crc32c(0, layout->offset, (size_t)layout->param_count * sizeof(int64_t));
    for (int i = 0; i < layout->bucket_count; i++) {
        int64_t range[] = {layout->buckets[i].first, layout->buckets[i].count};
        sum = weft__crc32c(sum, range, sizeof(range));
    }
    return sum;
}

static void describe(const weft_trainer_t *t, int index, weft_residual_row_t *row)
{
    const weft_mesh_t *mesh = weft__worker_mesh(t->worker);
    const weft_layout_t *layout;
    int stages = mesh->size[WEFT_AXIS_PIPELINE];
    row_here(t, index, &layout, &row->count);
    snprintf(row->name, sizeof(row->name),
             "stage-%d-of-%d.dp-%d-of-%d.tp-%d-of-%d.layout-%08" PRIx32,
             index * stages + mesh->index[WEFT_AXIS_PIPELINE], rows_here(t) * stages,
             mesh->index[WEFT_AXIS_DATA], mesh->size[WEFT_AXIS_DATA], mesh->index[WEFT_AXIS_TENSOR],
             mesh->size[WEFT_AXIS_TENSOR], print_of(layout));
}

/* ---- from a checkpoint -------------------------------------------------------------------- */

static const weft_tensor_t *find_row(const weft_trainer_t *t, int index)
{
    weft_residual_row_t row;
    describe(t, index, &row);
    const weft_tensor_t *tensor = weft__tensors_find(t->setup->loaded.residuals, row.name);
    bool fits = tensor != NULL && tensor->form.dtype == WEFT_F32 &&
                tensor->bytes == (size_t)row.count * sizeof(float);
    return fits ? tensor : NULL;
}

static weft_status_t load(weft_trainer_t *t)
{
    int32_t found = 1;
    if (!t->setup->resumed || t->setup->loaded.residuals == NULL) {
        return WEFT_OK;
    }
    for (int i = 0; i < rows_here(t); i++) {
        found = found && find_row(t, i) != NULL;
    }
    WEFT_TRY(weft_allreduce(&found, &found, 1, WEFT_I32, WEFT_MIN, t->comm, NULL));
    t->took_residuals = found;
    for (int i = 0; i < rows_here(t) && found; i++) {
        const weft_layout_t *layout;
        int64_t count;
        const weft_tensor_t *tensor = find_row(t, i);
        WEFT_TRY(weft_memcpy(row_here(t, i, &layout, &count), tensor->data, tensor->bytes, NULL));
    }
    return WEFT_OK;
}

/* ---- to a checkpoint ---------------------------------------------------------------------- */

static int64_t piece_of(int64_t left)
{
    return left < PIECE ? left : PIECE;
}

/* Rank 0: the next piece of all into `out`; *count_p are its elements. */
static weft_status_t receive(weft_residuals_t *r, float *out, int64_t *count_p)
{
    const weft_trainer_t *t = r->trainer;
    int from = r->next / rows_here(t);
    int64_t elements, at = r->at, count = piece_of(r->rows[r->next].count - at);
    if (from != 0) {
        WEFT_TRY(weft_recv(out, (size_t)count, WEFT_F32, from, t->comm, NULL));
    } else {
        const weft_layout_t *layout;
        float *memory = row_here(t, r->next, &layout, &elements);
        WEFT_TRY(weft_memcpy(out, memory + at, (size_t)count * sizeof(float), NULL));
    }
    bool ends = at + count == r->rows[r->next].count;
    r->next += ends;
    r->at = ends ? 0 : at + count;
    *count_p = count;
    return WEFT_OK;
}

/* For weft_tensor_source_t, whose reads are in order: a whole row at once, or several pieces of
 * it. */
static weft_status_t read_rows(void *ctx, uint64_t offset, void *out, size_t bytes)
{
    weft_residuals_t *r = ctx;
    int64_t count;
    if (offset != (uint64_t)r->at * sizeof(float)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "residuals are read from byte %" PRIu64 " on, out of order", offset);
    }
    for (size_t at = 0; at < bytes; at += (size_t)count * sizeof(float)) {
        WEFT_TRY(receive(r, (float *)(void *)((char *)out + at), &count));
    }
    return WEFT_OK;
}

/* Room for `count` rows, and on rank 0 for what reads them. */
static weft_status_t make_room(weft_residuals_t *r, int count)
{
    bool reads = r->trainer->rank == 0;
    r->rows = calloc((size_t)count, sizeof(*r->rows));
    r->sources = reads ? calloc((size_t)count, sizeof(*r->sources)) : NULL;
    r->piece = reads ? malloc((size_t)PIECE * sizeof(float)) : NULL;
    if (r->rows == NULL || (reads && (r->sources == NULL || r->piece == NULL))) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to gather residuals of %d ranks",
                          r->trainer->size);
    }
    return WEFT_OK;
}

/* What every rank has, told to all. */
static weft_status_t fill(weft_residuals_t *r, int count)
{
    const weft_trainer_t *t = r->trainer;
    int here = rows_here(t);
    weft_residual_row_t *mine = r->rows + (size_t)t->rank * (size_t)here;
    for (int i = 0; i < here; i++) {
        describe(t, i, &mine[i]);
    }
    WEFT_TRY(weft_allgather(mine, r->rows, (size_t)here * sizeof(*mine), WEFT_U8, t->comm, NULL));
    for (int i = 0; i < count && t->rank == 0; i++) {
        r->sources[i] = (weft_tensor_source_t){.form = {.name = r->rows[i].name,
                                                        .dtype = WEFT_F32,
                                                        .dims = 1,
                                                        .shape = {(uint64_t)r->rows[i].count}},
                                               .read = read_rows,
                                               .ctx = r};
    }
    r->next = r->count = count;
    return WEFT_OK;
}

weft_status_t weft__residuals_open(weft_trainer_t *t)
{
    const weft_layout_t *layout;
    int64_t elements;
    int count = rows_here(t) * t->size;
    if (row_here(t, 0, &layout, &elements) == NULL) {
        return WEFT_OK;
    }
    t->residuals = calloc(1, sizeof(*t->residuals));
    if (t->residuals == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe residuals of gradients");
    }
    t->residuals->trainer = t;
    WEFT_TRY(make_room(t->residuals, count));
    WEFT_TRY(fill(t->residuals, count));
    return load(t);
}

void weft__residuals_close(weft_trainer_t *t)
{
    if (t->residuals != NULL) {
        free(t->residuals->rows);
        free(t->residuals->sources);
        free(t->residuals->piece);
        free(t->residuals);
        t->residuals = NULL;
    }
}

void weft__residuals_begin(weft_trainer_t *t)
{
    if (t->residuals != NULL) {
        t->residuals->next = 0;
        t->residuals->at = 0;
    }
}

static weft_status_t send_mine(const weft_trainer_t *t)
{
    for (int i = 0; i < rows_here(t); i++) {
        const weft_layout_t *layout;
        int64_t count, piece;
        const float *memory = row_here(t, i, &layout, &count);
        for (int64_t at = 0; at < count; at += piece) {
            piece = piece_of(count - at);
            WEFT_TRY(weft_send(memory + at, (size_t)piece, WEFT_F32, 0, t->comm, NULL));
        }
    }
    return WEFT_OK;
}

static weft_status_t take_rest(weft_residuals_t *r)
{
    int64_t count;
    while (r->next < r->count) {
        WEFT_TRY(receive(r, r->piece, &count));
    }
    return WEFT_OK;
}

weft_status_t weft__residuals_finish(weft_trainer_t *t, weft_status_t status)
{
    char why[1024];
    if (t->residuals == NULL) {
        return status;
    }
    if (t->rank != 0) {
        return status == WEFT_OK ? send_mine(t) : status;
    }
    snprintf(why, sizeof(why), "%s", weft_last_error());
    weft_status_t rest = take_rest(t->residuals);
    if (status != WEFT_OK) {
        weft__error_restore(why);
        return status;
    }
    return rest;
}
