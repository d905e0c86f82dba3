/* Weft: NVIDIA's marks for profilers (NVTX). No profiler listens on virtual GPUs, so they do
 * nothing. */
#ifndef WEFT_CUDART_NVTOOLSEXT_H
#define WEFT_CUDART_NVTOOLSEXT_H

#include <stddef.h>
#include <stdint.h>

#define NVTX_VERSION 3
#define NVTX_COLOR_UNKNOWN 0
#define NVTX_COLOR_ARGB 1
#define NVTX_MESSAGE_UNKNOWN 0
#define NVTX_MESSAGE_TYPE_ASCII 1
#define NVTX_MESSAGE_TYPE_UNICODE 2
#define NVTX_MESSAGE_TYPE_REGISTERED 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))

typedef uint64_t nvtxRangeId_t;
typedef struct nvtxDomainRegistration_st *nvtxDomainHandle_t;
typedef struct nvtxStringRegistration_st *nvtxStringHandle_t;

typedef union nvtxMessageValue_t {
    const char *ascii;
    const wchar_t *unicode;
    nvtxStringHandle_t registered;
} nvtxMessageValue_t;

typedef struct nvtxEventAttributes_v2 {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    union {
        uint64_t ullValue;
        int64_t llValue;
        double dValue;
        uint32_t uiValue;
        int32_t iValue;
        float fValue;
    } payload;
    int32_t messageType;
    nvtxMessageValue_t message;
} nvtxEventAttributes_t;

/* As NVTX without a profiler: levels of ranges are negative, ids are 0. */
static __inline__ void nvtxMarkA(const char *message)
{
    (void)message;
}
static __inline__ void nvtxMarkEx(const nvtxEventAttributes_t *attributes)
{
    (void)attributes;
}
static __inline__ int nvtxRangePushA(const char *message)
{
    (void)message;
    return -2;
}
static __inline__ int nvtxRangePushEx(const nvtxEventAttributes_t *attributes)
{
    (void)attributes;
    return -2;
}
static __inline__ int nvtxRangePop(void)
{
    return -2;
}
static __inline__ nvtxRangeId_t nvtxRangeStartA(const char *message)
{
    (void)message;
    return 0;
}
static __inline__ nvtxRangeId_t nvtxRangeStartEx(const nvtxEventAttributes_t *attributes)
{
    (void)attributes;
    return 0;
}
static __inline__ void nvtxRangeEnd(nvtxRangeId_t id)
{
    (void)id;
}
static __inline__ void nvtxNameOsThreadA(uint32_t thread, const char *name)
{
    (void)thread;
    (void)name;
}
static __inline__ nvtxDomainHandle_t nvtxDomainCreateA(const char *name)
{
    (void)name;
    return NULL;
}
static __inline__ void nvtxDomainDestroy(nvtxDomainHandle_t domain)
{
    (void)domain;
}
static __inline__ int nvtxDomainRangePushEx(nvtxDomainHandle_t domain,
                                            const nvtxEventAttributes_t *attributes)
{
    (void)domain;
    (void)attributes;
    return -2;
}
static __inline__ int nvtxDomainRangePop(nvtxDomainHandle_t domain)
{
    (void)domain;
    return -2;
}

#define nvtxMark nvtxMarkA
#define nvtxRangePush nvtxRangePushA
#define nvtxRangeStart nvtxRangeStartA
#define nvtxNameOsThread nvtxNameOsThreadA
#define nvtxDomainCreate nvtxDomainCreateA

#endif
