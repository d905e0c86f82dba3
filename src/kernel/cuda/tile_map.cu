/* Maps of tensors for Hopper's copy engine, by the driver's function, which is looked for at run time. */
#include "kernel/cuda/hopper.cuh"

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn find_encode(void)
{
    void *fn = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault,
                                         &found) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return found == cudaDriverEntryPointSuccess ? (encode_fn)fn : NULL;
}

int weft_cuda_tile_map(CUtensorMap *map, const void *tensor, int64_t batch, int64_t seq,
                       int64_t width)
{
    static const encode_fn encode = find_encode();
    const cuuint64_t sizes[] = {(cuuint64_t)width, (cuuint64_t)seq, (cuuint64_t)batch};
    const cuuint64_t strides[] = {(cuuint64_t)width * 2, (cuuint64_t)(width * seq) * 2};
    const cuuint32_t box[] = {SIDE, SIDE, 1}, steps[] = {1, 1, 1};
    if (encode == NULL) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)(uintptr_t)tensor,
                             sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return (int)result; /* the runtime's errors have the same numbers */
}
