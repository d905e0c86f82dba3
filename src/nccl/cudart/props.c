/* Properties of a virtual GPU: what the host has, where a GPU has an equivalent, and for kernels,
 * which cannot run, what a recent GPU would say. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nccl/cudart/state.h"

static cudaError_t fill(struct cudaDeviceProp *prop, int device)
{
    weft_pool_stats_t stats;
    cudaError_t error = weft__cudart_check_device(device);
    if (error == cudaSuccess) {
        error = weft__cudart_from(weft_pool_stats(device, &stats));
    }
    if (error != cudaSuccess) {
        return error;
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *prop = (struct cudaDeviceProp){
        .name = "Weft virtual GPU",
        .major = 9,
        .minor = 0,
        .totalGlobalMem = stats.capacity,
        .totalConstMem = 65536,
        .sharedMemPerBlock = 49152,
        .sharedMemPerBlockOptin = 232448,
        .reservedSharedMemPerBlock = 1024,
        .sharedMemPerMultiprocessor = 233472,
        .regsPerBlock = 65536,
        .regsPerMultiprocessor = 65536,
        .warpSize = 32,
        .multiProcessorCount = cores < 1 ? 1 : (int)cores,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .maxThreadsPerMultiProcessor = 2048,
        .maxBlocksPerMultiProcessor = 32,
        .clockRate = 1000000,
        .memoryClockRate = 1000000,
        .memoryBusWidth = 64,
        .l2CacheSize = 1 << 20,
        .memPitch = 2147483647,
        .textureAlignment = 512,
        .texturePitchAlignment = 32,
        .surfaceAlignment = 512,
        .pciBusID = device,
        .deviceOverlap = 1,
        .asyncEngineCount = 1,
        .concurrentKernels = 1,
        .canMapHostMemory = 1,
        .unifiedAddressing = 1,
        .managedMemory = 1,
        .concurrentManagedAccess = 1,
        .directManagedMemAccessFromHost = 1,
        .streamPrioritiesSupported = 1,
        .hostNativeAtomicSupported = 1,
        .singleToDoublePrecisionPerfRatio = 2,
        .canUseHostPointerForRegisteredMem = 1,
        .hostRegisterSupported = 1,
        .memoryPoolsSupported = 1,
        .deviceNumaId = -1,
        .hostNumaId = -1,
    };
    /* Devices of different processes are different ones. */
    int identity[2] = {(int)getpid(), device};
    memcpy(prop->uuid.bytes, "weft-gpu", 8);
    memcpy(prop->uuid.bytes + 8, identity, sizeof(identity));
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    return prop == NULL ? weft__cudart_fail(cudaErrorInvalidValue) : fill(prop, device);
}

static int of_kernels(const struct cudaDeviceProp *prop, enum cudaDeviceAttr attr, bool *known_p)
{
    *known_p = true;
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        return prop->maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
    case cudaDevAttrMaxBlockDimZ:
        return prop->maxThreadsDim[attr - cudaDevAttrMaxBlockDimX];
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        return prop->maxGridSize[attr - cudaDevAttrMaxGridDimX];
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return (int)prop->sharedMemPerBlock;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return (int)prop->sharedMemPerBlockOptin;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return (int)prop->sharedMemPerMultiprocessor;
    case cudaDevAttrTotalConstantMemory:
        return (int)prop->totalConstMem;
    case cudaDevAttrWarpSize:
        return prop->warpSize;
    case cudaDevAttrMaxRegistersPerBlock:
        return prop->regsPerBlock;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        return prop->regsPerMultiprocessor;
    case cudaDevAttrMultiProcessorCount:
        return prop->multiProcessorCount;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return prop->maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        return prop->maxBlocksPerMultiProcessor;
    case cudaDevAttrComputeCapabilityMajor:
        return prop->major;
    case cudaDevAttrComputeCapabilityMinor:
        return prop->minor;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
        return prop->singleToDoublePrecisionPerfRatio;
    default:
        *known_p = false;
        return 0;
    }
}

static int of_machine(const struct cudaDeviceProp *prop, enum cudaDeviceAttr attr)
{
    switch (attr) {
    case cudaDevAttrMaxPitch:
        return (int)prop->memPitch;
    case cudaDevAttrTextureAlignment:
        return (int)prop->textureAlignment;
    case cudaDevAttrTexturePitchAlignment:
        return (int)prop->texturePitchAlignment;
    case cudaDevAttrClockRate:
        return prop->clockRate;
    case cudaDevAttrMemoryClockRate:
        return prop->memoryClockRate;
    case cudaDevAttrGlobalMemoryBusWidth:
        return prop->memoryBusWidth;
    case cudaDevAttrL2CacheSize:
        return prop->l2CacheSize;
    case cudaDevAttrPciBusId:
        return prop->pciBusID;
    case cudaDevAttrAsyncEngineCount:
        return prop->asyncEngineCount;
    case cudaDevAttrNumaId:
        return prop->deviceNumaId;
    case cudaDevAttrHostNumaId:
        return prop->hostNumaId;
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrDirectManagedMemAccessFromHost:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
        return 1;
    default: /* known to CUDA; a virtual GPU does not have it */
        return 0;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    struct cudaDeviceProp prop;
    bool known;
    if (value == NULL || (int)attr < 1 || (int)attr > 147) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    cudaError_t error = fill(&prop, device);
    if (error == cudaSuccess) {
        int found = of_kernels(&prop, attr, &known);
        *value = known ? found : of_machine(&prop, attr);
    }
    return error;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    int device;
    weft_pool_stats_t stats;
    cudaError_t error = weft__cudart_device(&device);
    if (error == cudaSuccess) {
        error = weft__cudart_from(weft_pool_stats(device, &stats));
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (available != NULL) {
        *available = stats.capacity > stats.in_use ? stats.capacity - stats.in_use : 0;
    }
    if (total != NULL) {
        *total = stats.capacity;
    }
    return cudaSuccess;
}
