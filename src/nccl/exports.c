/* What the table makes: the twins of every function, and the functions that are refused. */
#include "nccl/exports.h"

/* The arguments of a refused function are of no interest. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TWIN(name, result, parameters, arguments)                                                  \
    result pnccl##name parameters;                                                                 \
    result pnccl##name parameters                                                                  \
    {                                                                                              \
        return nccl##name arguments;                                                               \
    }

#define REFUSED(name, parameters, why)                                                             \
    ncclResult_t nccl##name parameters                                                             \
    {                                                                                              \
        return weft__nccl_fail(ncclInvalidUsage, "nccl%s: %s", #name, why);                        \
    }                                                                                              \
    ncclResult_t pnccl##name parameters __attribute__((alias("nccl" #name)));

/* Whatever its arguments are: a function that reads none may be called with any. */
#define DEVICE(name)                                                                               \
    ncclResult_t nccl##name(void);                                                                 \
    ncclResult_t nccl##name(void)                                                                  \
    {                                                                                              \
        return weft__nccl_fail(ncclInvalidUsage,                                                   \
                               "nccl%s: kernels that communicate themselves need NVIDIA's NCCL",   \
                               #name);                                                             \
    }                                                                                              \
    ncclResult_t pnccl##name(void) __attribute__((alias("nccl" #name)));

WEFT_NCCL_FUNCTIONS(TWIN, REFUSED, DEVICE)

void ncclResetDebugInit(void)
{
}
void pncclResetDebugInit(void);
void pncclResetDebugInit(void)
{
}
void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void)
{
}
void ncclParamDumpAll(void)
{
}
void pncclParamDumpAll(void);
void pncclParamDumpAll(void)
{
}
