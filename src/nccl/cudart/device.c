/* Devices: which there are, which is current, waiting for them. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nccl/cudart/state.h"

static pthread_once_t kind_once = PTHREAD_ONCE_INIT;
static bool virtual_gpus;

static void look_at_kind(void)
{
    const char *kind = "";
    weft_status_t status = weft_device_kind(&kind);
    virtual_gpus = status == WEFT_OK && strcmp(kind, "cpu") == 0;
    if (status != WEFT_OK) {
        weft__cudart_say("%s", weft_last_error());
    } else if (!virtual_gpus) {
        weft__cudart_say("this program was built by weftcc to run on virtual GPUs, but WEFT_DEVICE "
                         "asks for real ones: unset it, or build the program with nvcc");
    }
}

static cudaError_t ready(void)
{
    pthread_once(&kind_once, look_at_kind);
    return virtual_gpus ? cudaSuccess : weft__cudart_fail(cudaErrorNoDevice);
}

cudaError_t weft__cudart_device(int *device_p)
{
    cudaError_t error = ready();
    return error != cudaSuccess ? error : weft__cudart_from(weft_device_get(device_p));
}

cudaError_t weft__cudart_check_device(int device)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        return error;
    }
    return device >= 0 && device < count ? cudaSuccess : weft__cudart_fail(cudaErrorInvalidDevice);
}

cudaError_t weft__cudart_synchronize(const char *call, int device)
{
    int current;
    cudaError_t error = weft__cudart_device(&current);
    if (error != cudaSuccess) {
        return error;
    }
    weft_device_set(device);
    weft_status_t status = weft_device_synchronize();
    weft_device_set(current);
    /* Only a function on a stream of the device is refused. */
    return status == WEFT_ERR_INVALID ? weft__cudart_fail(cudaErrorNotPermitted)
                                      : weft__cudart_from_work(call, status);
}

/* ---- calls ------------------------------------------------------------------------------ */

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t error = ready();
    if (count == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (error != cudaSuccess) {
        *count = 0;
        return error;
    }
    return weft__cudart_from(weft_device_count(count));
}

cudaError_t cudaGetDevice(int *device)
{
    return device == NULL ? weft__cudart_fail(cudaErrorInvalidValue) : weft__cudart_device(device);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = weft__cudart_check_device(device);
    return error != cudaSuccess ? error : weft__cudart_from(weft_device_set(device));
}

cudaError_t cudaInitDevice(int device, unsigned deviceFlags, unsigned flags)
{
    (void)deviceFlags;
    (void)flags;
    return weft__cudart_check_device(device);
}

cudaError_t cudaSetValidDevices(int *list, int count)
{
    cudaError_t error = count < 0 || (list == NULL && count > 0)
                            ? weft__cudart_fail(cudaErrorInvalidValue)
                            : cudaSuccess;
    for (int i = 0; i < count && error == cudaSuccess; i++) {
        error = weft__cudart_check_device(list[i]);
    }
    return error;
}

cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *prop)
{
    if (device == NULL || prop == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    return weft__cudart_device(device); /* all are alike */
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    cudaError_t error = weft__cudart_check_device(device);
    if (error != cudaSuccess) {
        return error;
    }
    if (text == NULL || length < 13) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)device & 0xFFu);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    unsigned domain, bus, slot, function = 0;
    if (device == NULL || text == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2) {
            return weft__cudart_fail(cudaErrorInvalidValue);
        }
    }
    cudaError_t error = domain == 0 && slot == 0 && function == 0 && bus < MAX_DEVICES
                            ? weft__cudart_check_device((int)bus)
                            : weft__cudart_fail(cudaErrorInvalidDevice);
    if (error == cudaSuccess) {
        *device = (int)bus;
    }
    return error;
}

cudaError_t cudaDeviceSynchronize(void)
{
    int device;
    cudaError_t error = weft__cudart_device(&device);
    if (error == cudaSuccess) {
        error = weft__cudart_synchronize("cudaDeviceSynchronize", device);
    }
    return error != cudaSuccess ? error : weft__cudart_after_wait("cudaDeviceSynchronize", device);
}

cudaError_t cudaDeviceReset(void)
{
    int device;
    weft_cudart_range_t range;
    cudaError_t error = weft__cudart_device(&device);
    if (error == cudaSuccess) {
        error = weft__cudart_synchronize("cudaDeviceReset", device);
    }
    if (error == cudaErrorNotPermitted || error == cudaErrorNoDevice) {
        return error;
    }
    weft__cudart_streams_reset(device);
    while (weft__cudart_range_take_any(device, &range)) {
        weft_free((void *)range.base);
    }
    return error;
}

cudaError_t cudaThreadSynchronize(void)
{
    return cudaDeviceSynchronize();
}

cudaError_t cudaThreadExit(void)
{
    return cudaDeviceReset();
}

/* ---- settings that a virtual GPU keeps, and that change nothing ---------------------------- */

static atomic_uint flags_now = cudaDeviceScheduleAuto;

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    cudaError_t error = ready();
    if (error == cudaSuccess && (flags & ~(unsigned)cudaDeviceMask) != 0) {
        error = weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (error == cudaSuccess) {
        atomic_store(&flags_now, flags);
    }
    return error;
}

cudaError_t cudaGetDeviceFlags(unsigned *flags)
{
    if (flags == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    *flags = atomic_load(&flags_now) | cudaDeviceMapHost;
    return ready();
}

/* Of kernels; in the order of enum cudaLimit. */
static _Atomic size_t limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    if (value == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    if ((size_t)limit >= sizeof(limits) / sizeof(limits[0])) {
        return weft__cudart_fail(cudaErrorUnsupportedLimit);
    }
    *value = atomic_load(&limits[limit]);
    return ready();
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    if ((size_t)limit >= sizeof(limits) / sizeof(limits[0])) {
        return weft__cudart_fail(cudaErrorUnsupportedLimit);
    }
    atomic_store(&limits[limit], value);
    return ready();
}

static atomic_int cache_config, bank_config;

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
    if (config == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    *config = (enum cudaFuncCache)atomic_load(&cache_config);
    return cudaSuccess;
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    atomic_store(&cache_config, (int)config);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config)
{
    if (config == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    *config = (enum cudaSharedMemConfig)atomic_load(&bank_config);
    return cudaSuccess;
}

cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
    atomic_store(&bank_config, (int)config);
    return cudaSuccess;
}

cudaError_t cudaCtxResetPersistingL2Cache(void)
{
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    static _Thread_local enum cudaStreamCaptureMode now;
    if (mode == NULL || (unsigned)*mode > cudaStreamCaptureModeRelaxed) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    enum cudaStreamCaptureMode old = now;
    now = *mode;
    *mode = old;
    return cudaSuccess;
}

cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}

cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    return cudaRuntimeGetVersion(version);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (version == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- peers: every virtual GPU reaches all others ------------------------------------------- */

static atomic_bool enabled[MAX_DEVICES][MAX_DEVICES];

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t error = can == NULL ? weft__cudart_fail(cudaErrorInvalidValue)
                                    : weft__cudart_check_device(device);
    if (error == cudaSuccess) {
        error = weft__cudart_check_device(peer);
    }
    if (error == cudaSuccess) {
        *can = device != peer;
    }
    return error;
}

static cudaError_t set_peer(int peer, bool on)
{
    int device;
    cudaError_t error = weft__cudart_device(&device);
    if (error == cudaSuccess) {
        error = weft__cudart_check_device(peer);
    }
    if (error == cudaSuccess && peer == device) {
        error = weft__cudart_fail(cudaErrorInvalidDevice);
    }
    if (error == cudaSuccess && atomic_exchange(&enabled[device][peer], on) == on) {
        error = weft__cudart_fail(on ? cudaErrorPeerAccessAlreadyEnabled
                                     : cudaErrorPeerAccessNotEnabled);
    }
    return error;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    return flags != 0 ? weft__cudart_fail(cudaErrorInvalidValue) : set_peer(peer, true);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    return set_peer(peer, false);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int from, int to)
{
    int can = 0;
    if (value == NULL || from == to) {
        return weft__cudart_fail(value == NULL ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
    }
    cudaError_t error = cudaDeviceCanAccessPeer(&can, from, to);
    if (error == cudaSuccess) {
        bool has = attr == cudaDevP2PAttrAccessSupported ||
                   attr == cudaDevP2PAttrNativeAtomicSupported;
        *value = has ? can : 0;
    }
    return error;
}
