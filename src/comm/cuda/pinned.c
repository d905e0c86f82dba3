/* Plain host memory in calls whose kernels may use pinned memory in its place: those that nobody but this
 * rank's GPU reads and writes there. All of a batch's share one block: a list of what is copied in, one of
 * what is copied out, and the data. So there is at most one function on the stream before the kernel and
 * one behind it, however many calls there are: copies that wait in streams for other ranks are few before
 * the driver makes their caller wait. */
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
    int n;
    copy_t copies[];
};

static void run_list(void *arg)
{
    const weft_cuda_list_t *list = arg;
    for (int i = 0; i < list->n; i++) {
        memcpy(list->copies[i].dst, list->copies[i].src, list->copies[i].bytes);
    }
}

/* A buffer of a call that is to be replaced. */
static size_t plain_bytes(const weft_cuda_t *cuda, const weft_call_t *call, bool dst)
{
    size_t bytes = weft__call_extent(call, cuda->rank, cuda->size, dst);
    return bytes > 0 && weft__cuda_where(dst ? call->dst : call->src, bytes) == -2 ? bytes : 0;
}

static size_t in_lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static size_t list_bytes(int n)
{
    return in_lines(sizeof(weft_cuda_list_t) + (size_t)n * sizeof(copy_t));
}

/* Where the calls' plain buffers go, from `at` on (NULL: only count the bytes). */
static size_t lay_out(const weft_cuda_t *cuda, weft_call_t *calls, int n, bool src_too, char *at,
                      weft_cuda_list_t *in, weft_cuda_list_t *out)
{
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        size_t src = src_too ? plain_bytes(cuda, &calls[i], false) : 0;
        size_t dst = plain_bytes(cuda, &calls[i], true);
        if (at && src) {
            in->copies[in->n++] = (copy_t){at + used, calls[i].src, src};
            calls[i].src = at + used;
        }
        used += in_lines(src);
        if (at && dst) {
            out->copies[out->n++] = (copy_t){calls[i].dst, at + used, dst};
            calls[i].dst = at + used;
        }
        used += in_lines(dst);
    }
    return used;
}

weft_status_t weft__cuda_pin_in(weft_cuda_t *cuda, weft_call_t *calls, int n, bool src_too,
                                weft_stream_h stream, weft_cuda_pinned_t *pinned_p)
{
    size_t bytes = lay_out(cuda, calls, n, src_too, NULL, NULL, NULL);
    void *block;
    if (bytes == 0) {
        return WEFT_OK;
    }
    weft_cuda_loan_t *loan = calloc(1, sizeof(*loan));
    weft_status_t status = loan ? weft_host_malloc(&block, 2 * list_bytes(n) + bytes)
                                : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to stage a call");
    if (status != WEFT_OK) {
        free(loan);
        return weft__cuda_no_room(cuda);
    }
    loan->host[0] = block;
    weft_cuda_list_t *in = block, *out = (void *)((char *)block + list_bytes(n));
    in->n = out->n = 0;
    lay_out(cuda, calls, n, src_too, (char *)block + 2 * list_bytes(n), in, out);
    *pinned_p = (weft_cuda_pinned_t){loan, out};
    cuda->queued += WEFT_CUDA_STAGE_OPS;
    if (stream == cuda->own && !cuda->behind) {
        run_list(in); /* no call is under way that might write to it */
    } else if (in->n > 0) {
        status = weft_stream_call(stream, run_list, in);
    }
    return status;
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
