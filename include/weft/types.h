/* Weft: element types, reduction operations and the opaque handles. */
#ifndef WEFT_TYPES_H
#define WEFT_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types: enum name, short name, bytes. f16 is IEEE binary16, bf16 the upper half of a
 * binary32, f8e4m3 and f8e5m2 are the two formats of OCP's 8-bit floating point (4 or 5 bits of
 * exponent, 3 or 2 of mantissa). These four are reduced in f32 and rounded once (to nearest even).
 * What is too large for f8e5m2, or infinite, becomes infinite. f8e4m3 has no infinities: there it
 * becomes the largest number, 448. NaN stays NaN, in f8 as the code 0x7f. */
#define WEFT_DTYPE_TABLE(X)                                                                        \
    X(WEFT_F64, f64, 8)                                                                            \
    X(WEFT_F32, f32, 4)                                                                            \
    X(WEFT_F16, f16, 2)                                                                            \
    X(WEFT_BF16, bf16, 2)                                                                          \
    X(WEFT_I8, i8, 1)                                                                              \
    X(WEFT_U8, u8, 1)                                                                              \
    X(WEFT_I32, i32, 4)                                                                            \
    X(WEFT_U32, u32, 4)                                                                            \
    X(WEFT_I64, i64, 8)                                                                            \
    X(WEFT_U64, u64, 8)                                                                            \
    X(WEFT_F8E4M3, f8e4m3, 1)                                                                      \
    X(WEFT_F8E5M2, f8e5m2, 1)

typedef enum weft_dtype {
#define WEFT_DTYPE_ENUM(name, text, bytes) name,
    WEFT_DTYPE_TABLE(WEFT_DTYPE_ENUM)
#undef WEFT_DTYPE_ENUM
        WEFT_DTYPE_COUNT
} weft_dtype_t;

/* Reductions. Integer sums and products wrap modulo 2^bits. AVG is the sum divided by the number
 * of ranks; integers round towards zero. MIN and MAX of a NaN and a number may give either. */
typedef enum weft_op { WEFT_SUM, WEFT_PROD, WEFT_MIN, WEFT_MAX, WEFT_AVG, WEFT_OP_COUNT } weft_op_t;

/* Bytes of one element; 0 for an unknown type. */
size_t weft_dtype_size(weft_dtype_t type);

/* "f32", "sum", ...; "?" for an unknown value. */
const char *weft_dtype_name(weft_dtype_t type);
const char *weft_op_name(weft_op_t op);

typedef struct weft_comm *weft_comm_h; /* a group of ranks that communicate (comm.h) */
typedef struct weft_stream
    *weft_stream_h;                      /* a FIFO of work on a device; NULL: the default stream */
typedef struct weft_event *weft_event_h; /* a point in a stream (device.h) */

#ifdef __cplusplus
}
#endif
#endif
