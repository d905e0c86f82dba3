/* Weft: the errors of CUDA's runtime, one row each: name, value, text. The names and the values are
 * CUDA's, so that programs and their logs mean the same with and without a GPU. */
#ifndef WEFT_CUDART_ERRORS_H
#define WEFT_CUDART_ERRORS_H

#define WEFT_CUDART_ERROR_TABLE(X)                                                                 \
    X(cudaSuccess, 0, "no error")                                                                  \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                                \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                               \
    X(cudaErrorInitializationError, 3, "initialization error")                                     \
    X(cudaErrorCudartUnloading, 4, "driver shutting down")                                         \
    X(cudaErrorProfilerDisabled, 5, "profiler disabled")                                           \
    X(cudaErrorProfilerNotInitialized, 6, "profiler not initialized")                              \
    X(cudaErrorProfilerAlreadyStarted, 7, "profiler already started")                              \
    X(cudaErrorProfilerAlreadyStopped, 8, "profiler already stopped")                              \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                          \
    X(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                    \
    X(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                         \
    X(cudaErrorInvalidHostPointer, 16, "invalid host pointer")                                     \
    X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                 \
    X(cudaErrorInvalidTexture, 18, "invalid texture reference")                                    \
    X(cudaErrorInvalidTextureBinding, 19, "texture is not bound to a pointer")                     \
    X(cudaErrorInvalidChannelDescriptor, 20, "invalid channel descriptor")                         \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                    \
    X(cudaErrorAddressOfConstant, 22, "address of a constant was taken")                           \
    X(cudaErrorTextureFetchFailed, 23, "texture fetch failed")                                     \
    X(cudaErrorTextureNotBound, 24, "texture is not bound")                                        \
    X(cudaErrorSynchronizationError, 25, "synchronization failed")                                 \
    X(cudaErrorInvalidFilterSetting, 26, "invalid filter setting")                                 \
    X(cudaErrorInvalidNormSetting, 27, "invalid norm setting")                                     \
    X(cudaErrorMixedDeviceExecution, 28, "device and emulation code cannot be mixed")              \
    X(cudaErrorNotYetImplemented, 31, "not implemented yet")                                       \
    X(cudaErrorMemoryValueTooLarge, 32, "memory value too large")                                  \
    X(cudaErrorStubLibrary, 34, "the CUDA driver is a stub library")                               \
    X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for the runtime")      \
    X(cudaErrorCallRequiresNewerDriver, 36, "the call needs a newer CUDA driver")                  \
    X(cudaErrorInvalidSurface, 37, "invalid surface reference")                                    \
    X(cudaErrorDuplicateVariableName, 43, "a variable is defined twice")                           \
    X(cudaErrorDuplicateTextureName, 44, "a texture is defined twice")                             \
    X(cudaErrorDuplicateSurfaceName, 45, "a surface is defined twice")                             \
    X(cudaErrorDevicesUnavailable, 46, "all devices are busy or unavailable")                      \
    X(cudaErrorIncompatibleDriverContext, 49, "the driver context does not fit the runtime")       \
    X(cudaErrorMissingConfiguration, 52, "kernel launch without a configuration")                  \
    X(cudaErrorPriorLaunchFailure, 53, "a kernel launched before has failed")                      \
    X(cudaErrorLaunchMaxDepthExceeded, 65, "kernel launches are nested too deeply")                \
    X(cudaErrorLaunchFileScopedTex, 66, "kernel uses a texture of file scope")                     \
    X(cudaErrorLaunchFileScopedSurf, 67, "kernel uses a surface of file scope")                    \
    X(cudaErrorSyncDepthExceeded, 68, "cudaDeviceSynchronize is nested too deeply")                \
    X(cudaErrorLaunchPendingCountExceeded, 69, "too many kernel launches are pending")             \
    X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                               \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                       \
    X(cudaErrorDeviceNotLicensed, 102, "the device has no license")                                \
    X(cudaErrorSoftwareValidityNotEstablished, 103, "integrity checks have failed")                \
    X(cudaErrorStartupFailure, 127, "startup of the CUDA runtime failed")                          \
    X(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid")                          \
    X(cudaErrorDeviceUninitialized, 201, "invalid device context")                                 \
    X(cudaErrorMapBufferObjectFailed, 205, "mapping a buffer object failed")                       \
    X(cudaErrorUnmapBufferObjectFailed, 206, "unmapping a buffer object failed")                   \
    X(cudaErrorArrayIsMapped, 207, "array is mapped")                                              \
    X(cudaErrorAlreadyMapped, 208, "resource is mapped already")                                   \
    X(cudaErrorNoKernelImageForDevice, 209, "no kernel image fits the device")                     \
    X(cudaErrorAlreadyAcquired, 210, "resource is acquired already")                               \
    X(cudaErrorNotMapped, 211, "resource is not mapped")                                           \
    X(cudaErrorNotMappedAsArray, 212, "resource is not mapped as an array")                        \
    X(cudaErrorNotMappedAsPointer, 213, "resource is not mapped as a pointer")                     \
    X(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error")                                   \
    X(cudaErrorUnsupportedLimit, 215, "the device does not support this limit")                    \
    X(cudaErrorDeviceAlreadyInUse, 216, "the device is in use by another thread")                  \
    X(cudaErrorPeerAccessUnsupported, 217, "the devices do not support peer access")               \
    X(cudaErrorInvalidPtx, 218, "invalid PTX")                                                     \
    X(cudaErrorInvalidGraphicsContext, 219, "invalid OpenGL or DirectX context")                   \
    X(cudaErrorNvlinkUncorrectable, 220, "uncorrectable NVLink error")                             \
    X(cudaErrorJitCompilerNotFound, 221, "PTX compiler library not found")                         \
    X(cudaErrorUnsupportedPtxVersion, 222, "PTX of an unsupported version")                        \
    X(cudaErrorJitCompilationDisabled, 223, "compilation of PTX is disabled")                      \
    X(cudaErrorUnsupportedExecAffinity, 224, "execution affinity is not supported")                \
    X(cudaErrorUnsupportedDevSideSync, 225, "synchronization on the device is not supported")      \
    X(cudaErrorContained, 226, "a contained error happened on the device")                         \
    X(cudaErrorInvalidSource, 300, "device kernel source is invalid")                              \
    X(cudaErrorFileNotFound, 301, "file not found")                                                \
    X(cudaErrorSharedObjectSymbolNotFound, 302, "a symbol of a shared object was not found")       \
    X(cudaErrorSharedObjectInitFailed, 303, "a shared object could not be initialized")            \
    X(cudaErrorOperatingSystem, 304, "a call of the operating system failed")                      \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                              \
    X(cudaErrorIllegalState, 401, "the operation is not possible in this state")                   \
    X(cudaErrorLossyQuery, 402, "the query would lose information")                                \
    X(cudaErrorSymbolNotFound, 500, "named symbol not found")                                      \
    X(cudaErrorNotReady, 600, "device not ready")                                                  \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                    \
    X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")               \
    X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                      \
    X(cudaErrorLaunchIncompatibleTexturing, 703, "launch with an incompatible texturing mode")     \
    X(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                    \
    X(cudaErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")                      \
    X(cudaErrorSetOnActiveProcess, 708, "this cannot be set while the process is active")          \
    X(cudaErrorContextIsDestroyed, 709, "context is destroyed")                                    \
    X(cudaErrorAssert, 710, "device-side assert triggered")                                        \
    X(cudaErrorTooManyPeers, 711, "peer access has too many peers")                                \
    X(cudaErrorHostMemoryAlreadyRegistered, 712, "the memory is registered already")               \
    X(cudaErrorHostMemoryNotRegistered, 713, "the memory is not registered")                       \
    X(cudaErrorHardwareStackError, 714, "hardware stack error")                                    \
    X(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")                  \
    X(cudaErrorMisalignedAddress, 716, "misaligned address")                                       \
    X(cudaErrorInvalidAddressSpace, 717, "operation on the wrong address space")                   \
    X(cudaErrorInvalidPc, 718, "invalid program counter")                                          \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                   \
    X(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in a cooperative launch")          \
    X(cudaErrorTensorMemoryLeak, 721, "a kernel left tensor memory allocated")                     \
    X(cudaErrorNotPermitted, 800, "operation not permitted")                                       \
    X(cudaErrorNotSupported, 801, "operation not supported")                                       \
    X(cudaErrorSystemNotReady, 802, "system not yet initialized")                                  \
    X(cudaErrorSystemDriverMismatch, 803, "versions of driver and runtime do not fit")             \
    X(cudaErrorCompatNotSupportedOnDevice, 804, "forward compatibility is not supported here")     \
    X(cudaErrorMpsConnectionFailed, 805, "MPS client failed to connect")                           \
    X(cudaErrorMpsRpcFailure, 806, "MPS remote procedure call failed")                             \
    X(cudaErrorMpsServerNotReady, 807, "MPS server is not ready")                                  \
    X(cudaErrorMpsMaxClientsReached, 808, "MPS has too many clients")                              \
    X(cudaErrorMpsMaxConnectionsReached, 809, "MPS has too many connections")                      \
    X(cudaErrorMpsClientTerminated, 810, "MPS client was terminated")                              \
    X(cudaErrorCdpNotSupported, 811, "dynamic parallelism is not supported")                       \
    X(cudaErrorCdpVersionMismatch, 812, "versions of dynamic parallelism do not fit")              \
    X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")  \
    X(cudaErrorStreamCaptureInvalidated, 901, "an earlier error has ended the capture")            \
    X(cudaErrorStreamCaptureMerge, 902, "captures cannot be merged")                               \
    X(cudaErrorStreamCaptureUnmatched, 903, "the capture did not begin in this stream")            \
    X(cudaErrorStreamCaptureUnjoined, 904, "the capture has streams that were not joined")         \
    X(cudaErrorStreamCaptureIsolation, 905, "dependency crosses the border of a capture")          \
    X(cudaErrorStreamCaptureImplicit, 906, "the legacy stream depends on a capturing stream")      \
    X(cudaErrorCapturedEvent, 907, "the event was recorded in a capturing stream")                 \
    X(cudaErrorStreamCaptureWrongThread, 908, "the capture was begun by another thread")           \
    X(cudaErrorTimeout, 909, "timed out")                                                          \
    X(cudaErrorGraphExecUpdateFailure, 910, "the graph could not be updated")                      \
    X(cudaErrorExternalDevice, 911, "a device outside of CUDA failed")                             \
    X(cudaErrorInvalidClusterSize, 912, "invalid cluster size")                                    \
    X(cudaErrorFunctionNotLoaded, 913, "the function is not loaded")                               \
    X(cudaErrorInvalidResourceType, 914, "invalid resource type")                                  \
    X(cudaErrorInvalidResourceConfiguration, 915, "invalid resource configuration")                \
    X(cudaErrorUnknown, 999, "unknown error")                                                      \
    X(cudaErrorApiFailureBase, 10000, "error of an old runtime")

typedef enum cudaError {
#define WEFT_CUDART_ERROR_ENUM(name, value, text) name = value,
    WEFT_CUDART_ERROR_TABLE(WEFT_CUDART_ERROR_ENUM)
#undef WEFT_CUDART_ERROR_ENUM
} cudaError_t;

#endif
