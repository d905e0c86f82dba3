/* Weft: the words of CUDA C++ that host code may be decorated with. They mean nothing to a
 * compiler for CPUs; a launch <<<>>> is not C++, and weftcc names the kernel. */
#ifndef WEFT_CUDART_HOST_DEFINES_H
#define WEFT_CUDART_HOST_DEFINES_H

#define __host__
#define __device__
#define __global__
#define __constant__
#define __shared__
#define __managed__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ __inline__ __attribute__((always_inline))
#ifndef CUDARTAPI
#define CUDARTAPI
#define CUDART_CB
#endif

/* Arguments that C++ programs may leave out. */
#ifdef __cplusplus
#define WEFT_CUDART_OR(value) = value
#else
#define WEFT_CUDART_OR(value)
#endif

/* Not long: CUDA's numbers of 64 bits are this type on every machine. */
__extension__ typedef long long weft_cudart_longlong_t;
__extension__ typedef unsigned long long weft_cudart_ulonglong_t;

#endif
