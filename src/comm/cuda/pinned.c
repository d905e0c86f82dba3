/* Plain host memory in calls: pinned memory takes its place, which GPUs reach, and from which
 * memory of the device is filled where others have to reach it. All calls of a launch share one
 * block: a list of what is copied in, one of what is copied out, and the data. So there is at most
 * one function on the stream before the kernel and one behind it, however many calls there are: few
 * of them can wait in streams for other ranks before the driver makes their caller wait (pace in
 * calls.c). */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/cuda/cuda.h"

#define LINE ((size_t)256) /* buffers start on one of their own */

typedef struct copy {
    void *dst;
    const void *src;
    size_t bytes;
} copy_t;

struct weft_cuda_list {
    const weft_cuda_t
        *cuda; /* of results: copied unless its kernels have given up. NULL: in any case */
    int n;
    copy_t copies[];
};

static void run_list(void *arg)
{
    const weft_cuda_list_t *list = arg;
    const weft_cuda_t *cuda = list->cuda;
    if (cuda && weft__cuda_stopped(cuda)) {
        return;
    }
    for (int i = 0; i < list->n; i++) {
        memcpy(list->copies[i].dst, list->copies[i].src, list->copies[i].bytes);
    }
}

static void add_copy(weft_cuda_list_t *list, void *dst, const void *src, size_t bytes)
{
    list->copies[list->n++] = (copy_t){dst, src, bytes};
}

static size_t in_lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Destinations of an alltoallv are copied in as well: what nobody writes stays. */
static size_t list_bytes(int n)
{
    return in_lines(sizeof(weft_cuda_list_t) + 2 * (size_t)n * sizeof(copy_t));
}

/* Bytes of the calls' buffers that are to be replaced, two for each call, and of all of them. */
static size_t measure(const weft_cuda_t *cuda, const weft_call_t *calls, int n, size_t *bytes)
{
    size_t all = 0;
    for (int i = 0; i < 2 * n; i++) {
        const weft_call_t *call = &calls[i / 2];
        const void *at = i % 2 ? call->dst : call->src;
        size_t extent = weft__call_extent(call, cuda->rank, cuda->size, i % 2);
        bytes[i] = extent > 0 && weft__cuda_where(at, extent) == -2 ? extent : 0;
        all += in_lines(bytes[i]);
    }
    return all;
}

static void replace(weft_call_t *calls, int n, const size_t *bytes, char *at, weft_cuda_list_t *in,
                    weft_cuda_list_t *out)
{
    for (int i = 0; i < n; i++) {
        size_t src = bytes[2 * i], dst = bytes[2 * i + 1];
        if (src > 0) {
            add_copy(in, at, calls[i].src, src);
            calls[i].src = at;
            at += in_lines(src);
        }
        if (dst > 0) {
            if (calls[i].coll == WEFT_COLL_ALLTOALLV) {
                add_copy(in, at, calls[i].dst, dst);
            }
            add_copy(out, calls[i].dst, at, dst);
            calls[i].dst = at;
            at += in_lines(dst);
        }
    }
}

/* A block for both lists and `bytes` of data. */
static weft_status_t make_block(int n, size_t bytes, weft_cuda_loan_t **loan_p)
{
    weft_cuda_loan_t *loan = calloc(1, sizeof(*loan));
    weft_status_t status = loan ? weft_host_malloc(&loan->host, 2 * list_bytes(n) + bytes)
                                : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to stage a call");
    if (status != WEFT_OK) {
        free(loan);
        return status;
    }
    *loan_p = loan;
    return WEFT_OK;
}

/* *in_p: what is to be copied in; NULL: nothing is replaced. */
static weft_status_t start(weft_cuda_t *cuda, weft_call_t *calls, int n,
                           weft_cuda_pinned_t *pinned_p, weft_cuda_list_t **in_p)
{
    size_t *bytes = calloc(2 * (size_t)n, sizeof(*bytes));
    size_t all = bytes ? measure(cuda, calls, n, bytes) : 0;
    weft_status_t status = bytes ? WEFT_OK
                                 : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to stage a call");
    status = all > 0 ? make_block(n, all, &pinned_p->loan) : status;
    *in_p = NULL;
    if (status == WEFT_OK && all > 0) {
        char *block = pinned_p->loan->host;
        *in_p = (void *)block;
        pinned_p->out = (void *)(block + list_bytes(n));
        **in_p = (weft_cuda_list_t){0};
        *pinned_p->out = (weft_cuda_list_t){.cuda = cuda};
        replace(calls, n, bytes, block + 2 * list_bytes(n), *in_p, pinned_p->out);
    }
    free(bytes);
    return status;
}

weft_status_t weft__cuda_pin_in(weft_cuda_t *cuda, weft_call_t *calls, int n, weft_stream_h stream,
                                weft_cuda_pinned_t *pinned_p)
{
    weft_cuda_list_t *in;
    if (start(cuda, calls, n, pinned_p, &in) != WEFT_OK) {
        return weft__cuda_no_room(cuda);
    }
    if (!in) {
        return WEFT_OK;
    }
    if (stream == cuda->own && !cuda->behind) {
        run_list(in); /* no call is under way that might write to it */
        return WEFT_OK;
    }
    cuda->queued += WEFT_CUDA_PINNED_OPS;
    return in->n > 0 ? weft_stream_call(stream, run_list, in) : WEFT_OK;
}

weft_status_t weft__cuda_pin_out(weft_cuda_t *cuda, const weft_cuda_pinned_t *pinned,
                                 weft_stream_h stream, bool capturing, uint64_t mark,
                                 weft_status_t status)
{
    if (!pinned->loan) {
        return status;
    }
    if (status == WEFT_OK && mark) {
        status = weft__cuda_await(cuda, mark);
        if (status == WEFT_OK) {
            run_list(pinned->out);
            weft__cuda_take_back(cuda, pinned->loan);
            return WEFT_OK;
        }
    } else if (status == WEFT_OK && pinned->out->n > 0) {
        status = weft_stream_call(stream, run_list, pinned->out);
    }
    weft_status_t lent = weft__cuda_lend(cuda, pinned->loan, stream,
                                         capturing || status != WEFT_OK);
    return status != WEFT_OK ? status : lent;
}
