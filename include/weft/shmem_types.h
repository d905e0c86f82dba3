/* OpenSHMEM: constants, handles, and the tables of types that <shmem.h> is made from.
 *
 * Include <shmem.h>. The tables are X-macros: X(name, type) is called once for every type, where
 * `name` is the part that stands in function names, shmem_<name>_put. */
#ifndef WEFT_SHMEM_TYPES_H
#define WEFT_SHMEM_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define SHMEM_MAJOR_VERSION 1
#define SHMEM_MINOR_VERSION 5
#define SHMEM_MAX_NAME_LEN 64
#define SHMEM_VENDOR_STRING "Weft OpenSHMEM"

/* ---- handles ------------------------------------------------------------------------------ */

typedef struct weft_shmem_team *shmem_team_t;
typedef struct weft_shmem_ctx *shmem_ctx_t;

#define SHMEM_TEAM_INVALID ((shmem_team_t)0)
#define SHMEM_TEAM_WORLD ((shmem_team_t)1)
#define SHMEM_TEAM_SHARED ((shmem_team_t)2) /* all PEs are on one host: the same as the world */

#define SHMEM_CTX_INVALID ((shmem_ctx_t)0)
#define SHMEM_CTX_DEFAULT ((shmem_ctx_t)1)

typedef struct {
    int num_contexts; /* contexts that are to live on the team at the same time */
} shmem_team_config_t;

#define SHMEM_TEAM_NUM_CONTEXTS 1L /* in a mask: num_contexts counts */

/* Options of a context. */
#define SHMEM_CTX_SERIALIZED 1L
#define SHMEM_CTX_PRIVATE 2L
#define SHMEM_CTX_NOSTORE 4L

/* ---- constants ---------------------------------------------------------------------------- */

#define SHMEM_THREAD_SINGLE 0
#define SHMEM_THREAD_FUNNELED 1
#define SHMEM_THREAD_SERIALIZED 2
#define SHMEM_THREAD_MULTIPLE 3

#define SHMEM_CMP_EQ 1
#define SHMEM_CMP_NE 2
#define SHMEM_CMP_GT 3
#define SHMEM_CMP_LE 4
#define SHMEM_CMP_LT 5
#define SHMEM_CMP_GE 6

#define SHMEM_SIGNAL_SET 1
#define SHMEM_SIGNAL_ADD 2

#define SHMEM_MALLOC_ATOMICS_REMOTE 1L
#define SHMEM_MALLOC_SIGNAL_REMOTE 2L

/* Work arrays of the collectives on active sets. Ours need none; one element keeps programs
 * valid. */
#define SHMEM_SYNC_VALUE 0L
#define SHMEM_SYNC_SIZE 1
#define SHMEM_BCAST_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_BARRIER_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_COLLECT_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALL_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_MIN_WRKDATA_SIZE 1

/* Deprecated names of the same. */
#define _SHMEM_MAJOR_VERSION SHMEM_MAJOR_VERSION
#define _SHMEM_MINOR_VERSION SHMEM_MINOR_VERSION
#define _SHMEM_MAX_NAME_LEN SHMEM_MAX_NAME_LEN
#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING
#define _SHMEM_SYNC_VALUE SHMEM_SYNC_VALUE
#define _SHMEM_SYNC_SIZE SHMEM_SYNC_SIZE
#define _SHMEM_BCAST_SYNC_SIZE SHMEM_BCAST_SYNC_SIZE
#define _SHMEM_REDUCE_SYNC_SIZE SHMEM_REDUCE_SYNC_SIZE
#define _SHMEM_BARRIER_SYNC_SIZE SHMEM_BARRIER_SYNC_SIZE
#define _SHMEM_COLLECT_SYNC_SIZE SHMEM_COLLECT_SYNC_SIZE
#define _SHMEM_ALLTOALL_SYNC_SIZE SHMEM_ALLTOALL_SYNC_SIZE
#define _SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_ALLTOALLS_SYNC_SIZE
#define _SHMEM_REDUCE_MIN_WRKDATA_SIZE SHMEM_REDUCE_MIN_WRKDATA_SIZE
#define _SHMEM_CMP_EQ SHMEM_CMP_EQ
#define _SHMEM_CMP_NE SHMEM_CMP_NE
#define _SHMEM_CMP_GT SHMEM_CMP_GT
#define _SHMEM_CMP_LE SHMEM_CMP_LE
#define _SHMEM_CMP_LT SHMEM_CMP_LT
#define _SHMEM_CMP_GE SHMEM_CMP_GE

/* ---- types -------------------------------------------------------------------------------- */

/* Integers of 8 and 16 bits, and char. */
#define SHMEM_TYPES_NARROW(X)                                                                      \
    X(char, char)                                                                                  \
    X(schar, signed char)                                                                          \
    X(short, short)                                                                                \
    X(uchar, unsigned char)                                                                        \
    X(ushort, unsigned short)                                                                      \
    X(int8, int8_t)                                                                                \
    X(int16, int16_t)                                                                              \
    X(uint8, uint8_t)                                                                              \
    X(uint16, uint16_t)

/* "Standard AMO types": atomics that add and compare, point-to-point synchronization. */
#define SHMEM_TYPES_AMO(X)                                                                         \
    X(int, int)                                                                                    \
    X(long, long)                                                                                  \
    X(longlong, long long)                                                                         \
    X(uint, unsigned int)                                                                          \
    X(ulong, unsigned long)                                                                        \
    X(ulonglong, unsigned long long)                                                               \
    X(int32, int32_t)                                                                              \
    X(int64, int64_t)                                                                              \
    X(uint32, uint32_t)                                                                            \
    X(uint64, uint64_t)                                                                            \
    X(size, size_t)                                                                                \
    X(ptrdiff, ptrdiff_t)

/* "Extended AMO types": fetch, set, swap. */
#define SHMEM_TYPES_AMO_EXTENDED(X)                                                                \
    SHMEM_TYPES_AMO(X)                                                                             \
    X(float, float)                                                                                \
    X(double, double)

/* "Bitwise AMO types". */
#define SHMEM_TYPES_AMO_BITWISE(X)                                                                 \
    X(uint, unsigned int)                                                                          \
    X(ulong, unsigned long)                                                                        \
    X(ulonglong, unsigned long long)                                                               \
    X(int32, int32_t)                                                                              \
    X(int64, int64_t)                                                                              \
    X(uint32, uint32_t)                                                                            \
    X(uint64, uint64_t)

/* wait_until and test also take two deprecated types. */
#define SHMEM_TYPES_WAIT(X)                                                                        \
    SHMEM_TYPES_AMO(X)                                                                             \
    X(short, short)                                                                                \
    X(ushort, unsigned short)

#define SHMEM_TYPES_INTEGER(X)                                                                     \
    SHMEM_TYPES_NARROW(X)                                                                          \
    SHMEM_TYPES_AMO(X)

#define SHMEM_TYPES_REAL(X)                                                                        \
    X(float, float)                                                                                \
    X(double, double)                                                                              \
    X(longdouble, long double)

/* "Standard RMA types". */
#define SHMEM_TYPES_RMA(X)                                                                         \
    SHMEM_TYPES_INTEGER(X)                                                                         \
    SHMEM_TYPES_REAL(X)

/* Atomics of old: fadd, finc, add, inc, cswap; and fetch, set, swap. */
#define SHMEM_TYPES_OLD_AMO(X)                                                                     \
    X(int, int)                                                                                    \
    X(long, long)                                                                                  \
    X(longlong, long long)

#define SHMEM_TYPES_OLD_AMO_EXTENDED(X)                                                            \
    SHMEM_TYPES_OLD_AMO(X)                                                                         \
    X(float, float)                                                                                \
    X(double, double)

/* Reductions of old, on active sets. */
#define SHMEM_TYPES_TO_ALL_INTEGER(X)                                                              \
    X(short, short)                                                                                \
    X(int, int)                                                                                    \
    X(long, long)                                                                                  \
    X(longlong, long long)

/* The sizes of putSIZE and getSIZE, in bits: X(bits, bytes). */
#define SHMEM_SIZES(X) X(8, 1) X(16, 2) X(32, 4) X(64, 8) X(128, 16)

#endif
