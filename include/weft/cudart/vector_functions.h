/* Weft: make_float4 and the like. */
#ifndef WEFT_CUDART_VECTOR_FUNCTIONS_H
#define WEFT_CUDART_VECTOR_FUNCTIONS_H
#define __VECTOR_FUNCTIONS_H__ /* by which programs know that CUDA's is there */

#include <weft/cudart/vector_types.h>

#define WEFT_CUDART_MAKE(name, type)                                                               \
    static __inline__ name##1 make_##name##1(type x)                                               \
    {                                                                                              \
        name##1 v = {x};                                                                           \
        return v;                                                                                  \
    }                                                                                              \
    static __inline__ name##2 make_##name##2(type x, type y)                                       \
    {                                                                                              \
        name##2 v = {x, y};                                                                        \
        return v;                                                                                  \
    }                                                                                              \
    static __inline__ name##3 make_##name##3(type x, type y, type z)                               \
    {                                                                                              \
        name##3 v = {x, y, z};                                                                     \
        return v;                                                                                  \
    }                                                                                              \
    static __inline__ name##4 make_##name##4(type x, type y, type z, type w)                       \
    {                                                                                              \
        name##4 v = {x, y, z, w};                                                                  \
        return v;                                                                                  \
    }

WEFT_CUDART_MAKE(char, signed char)
WEFT_CUDART_MAKE(uchar, unsigned char)
WEFT_CUDART_MAKE(short, short)
WEFT_CUDART_MAKE(ushort, unsigned short)
WEFT_CUDART_MAKE(int, int)
WEFT_CUDART_MAKE(uint, unsigned)
WEFT_CUDART_MAKE(long, long)
WEFT_CUDART_MAKE(ulong, unsigned long)
WEFT_CUDART_MAKE(longlong, weft_cudart_longlong_t)
WEFT_CUDART_MAKE(ulonglong, weft_cudart_ulonglong_t)
WEFT_CUDART_MAKE(float, float)
WEFT_CUDART_MAKE(double, double)

#endif
