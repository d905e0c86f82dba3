/* Compression on GPUs, this side of the module: which GPU and stream. */
#include "kernel/cuda/compress.h"

#include "device/cuda.h"
#include "kernel/cuda/compute.h"

static const weft_cuda_compress_ops_t *module(void)
{
    static weft_cuda_table_t table = {.name = "weft_cuda_compress"};
    return weft__cuda_table(&table);
}

#define ON_STREAM(name, args_t)                                                                    \
    static weft_status_t run_##name(const args_t *args, weft_stream_h stream)                      \
    {                                                                                              \
        int gpu = weft__compute_gpu(stream);                                                       \
        int error = module()->name(gpu, args, weft__cuda_stream(stream));                          \
        return weft__cuda_status(error, #name " of gradients");                                    \
    }
WEFT_COMPRESS_TABLE(ON_STREAM)

#define SLOT(name, args_t) .name = run_##name,
const weft_compress_ops_t weft__compress_cuda = {.kind = "cuda", WEFT_COMPRESS_TABLE(SLOT)};
