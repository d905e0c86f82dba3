/* Weft: CUDA's vector types, as far as they are data. */
#ifndef WEFT_CUDART_VECTOR_TYPES_H
#define WEFT_CUDART_VECTOR_TYPES_H
#define __VECTOR_TYPES_H__ /* by which programs know that CUDA's is there */

#include <weft/cudart/host_defines.h>

/* Sizes and alignment are CUDA's: 2 and 4 elements are aligned to their size, at most 16 bytes. */
#define WEFT_CUDART_VECTORS(name, type, align2, align4)                                            \
    struct name##1                                                                                 \
    {                                                                                              \
        type x;                                                                                    \
    };                                                                                             \
    struct __attribute__((aligned(align2))) name##2                                                \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct __attribute__((aligned(align4))) name##4                                                \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    typedef struct name##1 name##1;                                                                \
    typedef struct name##2 name##2;                                                                \
    typedef struct name##3 name##3;                                                                \
    typedef struct name##4 name##4

WEFT_CUDART_VECTORS(char, signed char, 2, 4);
WEFT_CUDART_VECTORS(uchar, unsigned char, 2, 4);
WEFT_CUDART_VECTORS(short, short, 4, 8);
WEFT_CUDART_VECTORS(ushort, unsigned short, 4, 8);
WEFT_CUDART_VECTORS(int, int, 8, 16);
WEFT_CUDART_VECTORS(uint, unsigned, 8, 16);
WEFT_CUDART_VECTORS(long, long, 16, 16);
WEFT_CUDART_VECTORS(ulong, unsigned long, 16, 16);
WEFT_CUDART_VECTORS(longlong, weft_cudart_longlong_t, 16, 16);
WEFT_CUDART_VECTORS(ulonglong, weft_cudart_ulonglong_t, 16, 16);
WEFT_CUDART_VECTORS(float, float, 8, 16);
WEFT_CUDART_VECTORS(double, double, 16, 16);

struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz)
    {
    }
    dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
    operator uint3() const
    {
        uint3 v = {x, y, z};
        return v;
    }
#endif
};
typedef struct dim3 dim3;

#endif
