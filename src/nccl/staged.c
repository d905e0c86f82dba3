/* Reductions through memory of their own: src is prepared there (multiplied, or made wider), Weft
 * reduces, and the result is rounded into dst where its type is another one. All of it in the order
 * of the stream; inside a group the last part waits for the group's end, where Weft's call is
 * made. Needs the CPU to read the memory: virtual GPUs. */
#include <stdlib.h>
#include <string.h>

#include "nccl/handle.h"

typedef struct staged {
    weft_nccl_reduction_t call;
    weft_nccl_scalar_t scalar;
    bool premultiplied, wide, receives;
    bool refused;     /* Weft's call was: there is no result */
    size_t src_count; /* elements of src */
    void *in, *out;   /* out: `wide` only, and where there is a dst */
    struct staged *next;
} staged_t;

static __thread staged_t *of_group;

bool weft__nccl_is_staged(ncclDataType_t type, ncclRedOp_t op)
{
    return (unsigned)op >= ncclNumOps || type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
}

/* Where src is copied to: the end of `in`, from where elements grow towards its begin. Element i of
 * n goes to bytes 4i to 4i + 3, which are none of those that follow the one at 3n + i. */
static void *copied(const staged_t *s)
{
    return s->wide ? (char *)s->in + 3 * s->src_count : s->in;
}

/* On the stream's worker, before Weft's call. */
static void prepare(void *arg)
{
    staged_t *s = arg;
    const weft_nccl_reduction_t *call = &s->call;
    const void *scalar = s->scalar.device ? s->scalar.device : s->scalar.bytes;
    float wide_scalar;
    if (!s->wide) {
        weft__nccl_scale(s->in, s->in, s->src_count, call->type, scalar);
        return;
    }
    weft__nccl_widen(s->in, copied(s), s->src_count, call->type);
    if (s->premultiplied) {
        weft__nccl_widen(&wide_scalar, scalar, 1, call->type);
        weft__nccl_scale(s->in, s->in, s->src_count, ncclFloat32, &wide_scalar);
    }
}

static void release(staged_t *s)
{
    weft_free(s->in);
    weft_free(s->out);
    free(s);
}

/* On the stream's worker, after it. */
static void conclude(void *arg)
{
    staged_t *s = arg;
    if (s->out && !s->refused) {
        weft__nccl_narrow(s->call.dst, s->out, s->call.count, s->call.type);
    }
    release(s);
}

static weft_status_t reduce(const staged_t *s, weft_dtype_t type, weft_op_t op)
{
    const weft_nccl_reduction_t *c = &s->call;
    void *dst = s->wide ? s->out : c->dst;
    switch (c->coll) {
    case WEFT_NCCL_ALLREDUCE:
        return weft_allreduce(s->in, dst, c->count, type, op, c->comm, c->stream);
    case WEFT_NCCL_REDUCE:
        return weft_reduce(s->in, dst, c->count, type, op, c->root, c->comm, c->stream);
    default:
        return weft_reduce_scatter(s->in, dst, c->count, type, op, c->comm, c->stream);
    }
}

static weft_status_t on_stream(weft_stream_h stream, void (*fn)(void *), void *arg)
{
    if (stream) {
        return weft_stream_call(stream, fn, arg);
    }
    fn(arg);
    return WEFT_OK;
}

static ncclResult_t allocate(staged_t *s, ncclComm_t comm)
{
    size_t size = s->wide ? sizeof(float) : weft__nccl_type_size(s->call.type);
    bool receives = s->receives;
    int before = 0;
    weft_device_get(&before);
    weft_status_t status = weft_device_set(comm->device);
    if (status == WEFT_OK) {
        status = weft_malloc(&s->in, s->src_count * size);
    }
    if (status == WEFT_OK && s->wide && receives) {
        status = weft_malloc(&s->out, s->call.count * size);
    }
    weft_device_set(before);
    return weft__nccl_result(status);
}

/* Weft sees memory of ours in place of the caller's: let it look at that as well, by copies. */
static ncclResult_t check_buffers(const staged_t *s, bool receives)
{
    size_t size = weft__nccl_type_size(s->call.type);
    if (s->call.count == 0) {
        return ncclSuccess;
    }
    if (!s->call.src || (receives && !s->call.dst)) {
        return weft__nccl_fail(ncclInvalidArgument, "%s is NULL but count is %zu",
                               s->call.src ? "dst" : "src", s->call.count);
    }
    WEFT_NCCL_TRY(weft__nccl_result(
        weft_memcpy(copied(s), s->call.src, s->src_count * size, s->call.stream)));
    return receives ? weft__nccl_result(weft_memcpy(s->call.dst, s->call.dst, s->call.count * size,
                                                    s->call.stream))
                    : ncclSuccess;
}

static ncclResult_t run(staged_t *s)
{
    weft_dtype_t type = WEFT_F32;
    weft_op_t op = WEFT_SUM;
    if (!s->wide) {
        WEFT_NCCL_TRY(weft__nccl_type(s->call.type, true, &type));
    }
    if (!s->premultiplied) {
        WEFT_NCCL_TRY(weft__nccl_op(s->call.op, &op));
    }
    WEFT_NCCL_TRY(weft__nccl_result(on_stream(s->call.stream, prepare, s)));
    ncclResult_t result = weft__nccl_result(reduce(s, type, op));
    s->refused = result != ncclSuccess;
    /* From here on the stream may be using the memory: it is for the stream to free it. */
    if (weft__nccl_group_depth() > 0) {
        s->next = of_group;
        of_group = s;
        return result;
    }
    weft_status_t status = on_stream(s->call.stream, conclude, s);
    return result != ncclSuccess ? result : weft__nccl_result(status);
}

ncclResult_t weft__nccl_staged(ncclComm_t comm, const weft_nccl_reduction_t *reduction)
{
    const char *kind = "cpu";
    weft_device_kind(&kind);
    if (strcmp(kind, "cpu") != 0) {
        return weft__nccl_fail(ncclInvalidUsage,
                               "premultiplied sums and sums of 8-bit floats are carried out on "
                               "virtual GPUs only");
    }
    staged_t *s = calloc(1, sizeof(*s));
    if (!s) {
        return weft__nccl_fail(ncclSystemError, "no memory for a reduction");
    }
    s->call = *reduction;
    s->premultiplied = (unsigned)reduction->op >= ncclNumOps;
    s->wide = reduction->type == ncclFloat8e4m3 || reduction->type == ncclFloat8e5m2;
    s->src_count = reduction->count *
                   (reduction->coll == WEFT_NCCL_REDUCE_SCATTER ? (size_t)comm->size : 1);
    ncclResult_t result = ncclSuccess;
    if (s->premultiplied) {
        result = weft__nccl_scalar(reduction->op, comm, reduction->type, &s->scalar);
    }
    s->receives = reduction->coll != WEFT_NCCL_REDUCE || reduction->root == comm->rank;
    if (result == ncclSuccess && reduction->count > SIZE_MAX / 64 / (size_t)comm->size) {
        result = weft__nccl_fail(ncclInvalidArgument, "count %zu is beyond the address space",
                                 reduction->count);
    }
    if (result == ncclSuccess) {
        result = allocate(s, comm);
    }
    if (result == ncclSuccess) {
        result = check_buffers(s, s->receives);
    }
    if (result != ncclSuccess) {
        if (s->call.stream) {
            weft_stream_synchronize(s->call.stream); /* a copy may be under way */
        }
        release(s);
        return result;
    }
    return run(s);
}

ncclResult_t weft__nccl_staged_end(bool run)
{
    ncclResult_t result = ncclSuccess;
    while (of_group) {
        staged_t *s = of_group;
        of_group = s->next;
        s->refused = s->refused || !run;
        ncclResult_t each = weft__nccl_result(on_stream(s->call.stream, conclude, s));
        result = result != ncclSuccess ? result : each;
    }
    return result;
}
