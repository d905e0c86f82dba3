/* Premultiplied sums: src times the scalar goes into memory of their own, and Weft adds from there.
 * All of it is in the order of the stream; in a group the product is made at once, and the sum at
 * the group's end.
 *
 * The memory is given back when the stream has passed the sum. Nobody is told of that: the next
 * such call looks, and so does the end of the communicator. What a graph uses stays until then. */
#include <stdlib.h>

#include "nccl/handle.h"

typedef struct temporary {
    char *memory;
    ncclComm_t comm;
    weft_stream_h stream;
    weft_event_h event; /* passed: nothing uses it any more. NULL: it stays until `comm` ends */
    struct temporary *next;
} temporary_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static temporary_t *lent;              /* under the lock */
static __thread temporary_t *of_group; /* of sums that the end of this thread's group makes */

bool weft__nccl_is_premultiplied(ncclRedOp_t op)
{
    return (unsigned)op >= ncclNumOps;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Give back what nothing uses any more; of `ended`, also what graphs used. */
static void take_back(ncclComm_t ended)
{
    pthread_mutex_lock(&lock);
    for (temporary_t **at = &lent; *at;) {
        temporary_t *t = *at;
        bool done = t->event ? weft_event_query(t->event) != WEFT_PENDING : t->comm == ended;
        if (!done) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        weft_event_destroy(t->event);
        weft_free(t->memory);
        free(t);
    }
    pthread_mutex_unlock(&lock);
}

/* What uses it is queued. An event of a stream that is captured is never passed, and asking for it
 * would spoil the graph. */
static void lend(temporary_t *t)
{
    int capturing = 0;
    if (weft_stream_capturing(t->stream, &capturing) == WEFT_OK && !capturing &&
        weft_event_create(&t->event) == WEFT_OK &&
        weft_event_record(t->event, t->stream) != WEFT_OK) {
        weft_event_destroy(t->event);
        t->event = NULL;
    }
    pthread_mutex_lock(&lock);
    t->next = lent;
    lent = t;
    pthread_mutex_unlock(&lock);
}

static ncclResult_t allocate(ncclComm_t comm, size_t bytes, weft_stream_h stream,
                             temporary_t **temporary_p)
{
    int before = 0;
    void *memory = NULL;
    temporary_t *t = calloc(1, sizeof(*t));
    if (!t) {
        return weft__nccl_fail(ncclSystemError, "no memory for a premultiplied sum");
    }
    weft_device_get(&before);
    weft_status_t status = weft_device_set(comm->device);
    if (status == WEFT_OK) {
        status = weft_malloc(&memory, bytes);
    }
    weft_device_set(before);
    if (status != WEFT_OK) {
        free(t);
        return weft__nccl_result(status);
    }
    *t = (temporary_t){.memory = memory, .comm = comm, .stream = stream};
    *temporary_p = t;
    return ncclSuccess;
}

/* ---- the call ----------------------------------------------------------------------------- */

static weft_status_t reduce(const weft_nccl_reduction_t *c, const void *src, weft_dtype_t type)
{
    switch (c->coll) {
    case WEFT_NCCL_ALLREDUCE:
        return weft_allreduce(src, c->dst, c->count, type, WEFT_SUM, c->comm, c->stream);
    case WEFT_NCCL_REDUCE:
        return weft_reduce(src, c->dst, c->count, type, WEFT_SUM, c->root, c->comm, c->stream);
    default:
        return weft_reduce_scatter(src, c->dst, c->count, type, WEFT_SUM, c->comm, c->stream);
    }
}

ncclResult_t weft__nccl_premultiplied(ncclComm_t comm, const weft_nccl_reduction_t *c)
{
    weft_nccl_scalar_t scalar;
    weft_dtype_t type;
    temporary_t *t = NULL;
    WEFT_NCCL_TRY(weft__nccl_scalar(c->op, comm, c->type, &scalar));
    WEFT_NCCL_TRY(weft__nccl_type(c->type, &type));
    if (c->count > SIZE_MAX / 64 / (size_t)comm->size) {
        return weft__nccl_fail(ncclInvalidArgument, "count %zu is beyond the address space",
                               c->count);
    }
    size_t element = weft_dtype_size(type);
    size_t n = c->count * (c->coll == WEFT_NCCL_REDUCE_SCATTER ? (size_t)comm->size : 1);
    size_t bytes = (n * element + 7) / 8 * 8;
    take_back(NULL);
    WEFT_NCCL_TRY(allocate(comm, bytes + sizeof(scalar.bytes), c->stream, &t));
    /* A scalar of the device may be in any memory, and is read when the stream comes to it. */
    const void *factor = scalar.device ? (const void *)(t->memory + bytes) : scalar.bytes;
    weft_status_t status = WEFT_OK;
    if (scalar.device) {
        status = weft_memcpy(t->memory + bytes, scalar.device, element, c->stream);
    }
    if (status == WEFT_OK) {
        status = weft_scale(t->memory, c->src, n, type, factor, c->stream);
    }
    if (status == WEFT_OK) {
        status = reduce(c, t->memory, type);
    }
    if (weft__nccl_group_depth() > 0) {
        t->next = of_group;
        of_group = t;
    } else {
        lend(t);
    }
    return weft__nccl_result(status);
}

void weft__nccl_premultiplied_group_end(void)
{
    while (of_group) {
        temporary_t *t = of_group;
        of_group = t->next;
        lend(t);
    }
}

void weft__nccl_premultiplied_close(ncclComm_t comm)
{
    take_back(comm);
}
