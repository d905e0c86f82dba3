/* Copies, by vectors of VEC_BYTES. Included by the kernels_*.c after their vec_*.h. */
#ifndef WEFT_KERNEL_CPU_COPY_IMPL_H
#define WEFT_KERNEL_CPU_COPY_IMPL_H

#include "kernel/cpu/cpu.h"

#define LINE 64   /* bytes of a cache line */
#define PAGE 4096 /* hardware prefetchers stop at its end */

/* From here on libc's memcpy wins where it is good (see cpu.h). */
#define LIBC_MIN 2048

/* Streaming copies of this size and above go through four pages at a time. One stream of reads
 * does not fill the memory pipeline; four did, by 15% measured on data that was in no cache. */
#define INTERLEAVE_MIN ((size_t)256 << 10)
#define INTERLEAVE 4
#define INTERLEAVE_STEP (2 * LINE)
#define INTERLEAVE_AHEAD (4 * LINE)

/* Bytes that single-stream loops prefetch ahead. */
#define AHEAD 1024

#define COPY_WIDE (VEC_BYTES == 16 ? 8 : 512 / VEC_BYTES)

/* Both ends are copied as one word each; in between they overlap. All loads come first. */
#define COPY_ENDS(word)                                                                            \
    do {                                                                                           \
        word first, last;                                                                          \
        memcpy(&first, from, sizeof(word));                                                        \
        memcpy(&last, from + bytes - sizeof(word), sizeof(word));                                  \
        memcpy(to, &first, sizeof(word));                                                          \
        memcpy(to + bytes - sizeof(word), &last, sizeof(word));                                    \
    } while (0)

typedef struct word16 {
    uint64_t low, high;
} word16_t;

/* 1 to 2 * VEC_BYTES bytes */
INLINE void copy_small(char *to, const char *from, size_t bytes)
{
    if (bytes >= VEC_BYTES) {
        vec_t first = vec_load(from);
        vec_t last = vec_load(from + bytes - VEC_BYTES);
        vec_store(to, first);
        vec_store(to + bytes - VEC_BYTES, last);
#if VEC_BYTES > 16
    } else if (bytes >= VEC_BYTES / 2) {
        half_t first = half_load(from);
        half_t last = half_load(from + bytes - VEC_BYTES / 2);
        half_store(to, first);
        half_store(to + bytes - VEC_BYTES / 2, last);
#endif
#if VEC_BYTES > 32
    } else if (bytes >= 16) {
        COPY_ENDS(word16_t);
#endif
    } else if (bytes >= 8) {
        COPY_ENDS(uint64_t);
    } else if (bytes >= 4) {
        COPY_ENDS(uint32_t);
    } else {
        char middle = from[bytes / 2], last = from[bytes - 1];
        to[0] = from[0];
        to[bytes / 2] = middle;
        to[bytes - 1] = last;
    }
}

static void copy_cached(char *to, const char *from, size_t bytes)
{
    if (bytes <= 2 * VEC_BYTES) {
        if (bytes > 0) {
            copy_small(to, from, bytes);
        }
        return;
    }
    if (bytes >= LIBC_MIN && weft__copy_by_libc) {
        memcpy(to, from, bytes);
        return;
    }
    /* The last vector first in hand: what the loops leave over is less than one. */
    vec_t last = vec_load(from + bytes - VEC_BYTES);
    char *end = to + bytes - VEC_BYTES;
    vec_store(to, vec_load(from));
    size_t done = VEC_BYTES - ((uintptr_t)to & (VEC_BYTES - 1));
    for (; bytes - done >= COPY_WIDE * VEC_BYTES; done += COPY_WIDE * VEC_BYTES) {
        vec_t v[COPY_WIDE];
        UNROLL
        for (int i = 0; i < COPY_WIDE; i++) {
            v[i] = vec_load(from + done + i * VEC_BYTES);
        }
        UNROLL
        for (int i = 0; i < COPY_WIDE; i++) {
            vec_store(to + done + i * VEC_BYTES, v[i]);
        }
    }
    for (; bytes - done > VEC_BYTES; done += VEC_BYTES) {
        vec_store(to + done, vec_load(from + done));
    }
    vec_store(end, last);
}

/* Streams whole lines; returns how many bytes were copied. `to` is aligned to a line. */
static size_t stream_pages(char *to, const char *from, size_t bytes)
{
    size_t done = 0;
    for (; bytes - done >= INTERLEAVE * PAGE; done += INTERLEAVE * PAGE) {
        for (size_t at = done; at < done + PAGE; at += INTERLEAVE_STEP) {
            for (int page = 0; page < INTERLEAVE; page++) {
                const char *ahead = from + at + page * PAGE + INTERLEAVE_AHEAD;
                __builtin_prefetch(ahead);
                __builtin_prefetch(ahead + LINE);
            }
            for (int page = 0; page < INTERLEAVE; page++) {
                vec_t v[INTERLEAVE_STEP / VEC_BYTES];
                UNROLL
                for (int i = 0; i < INTERLEAVE_STEP / VEC_BYTES; i++) {
                    v[i] = vec_load(from + at + page * PAGE + i * VEC_BYTES);
                }
                UNROLL
                for (int i = 0; i < INTERLEAVE_STEP / VEC_BYTES; i++) {
                    vec_stream(to + at + page * PAGE + i * VEC_BYTES, v[i]);
                }
            }
        }
    }
    return done;
}

static size_t stream_lines(char *to, const char *from, size_t bytes)
{
    size_t done = 0;
    for (; bytes - done >= 4 * LINE; done += 4 * LINE) {
        for (int line = 0; line < 4; line++) {
            __builtin_prefetch(from + done + AHEAD + line * LINE);
        }
        vec_t v[4 * LINE / VEC_BYTES];
        UNROLL
        for (int i = 0; i < 4 * LINE / VEC_BYTES; i++) {
            v[i] = vec_load(from + done + i * VEC_BYTES);
        }
        UNROLL
        for (int i = 0; i < 4 * LINE / VEC_BYTES; i++) {
            vec_stream(to + done + i * VEC_BYTES, v[i]);
        }
    }
    return done;
}

/* No fence: the caller gives one when all its streams are done. */
static void copy_streamed(char *to, const char *from, size_t bytes)
{
    size_t done = 0;
    if (VEC_STREAMS && bytes >= 8 * LINE) {
        done = -(uintptr_t)to & (LINE - 1);
        if (done > 0) {
            copy_cached(to, from, done);
        }
        if (bytes >= INTERLEAVE_MIN) {
            done += stream_pages(to + done, from + done, bytes - done);
        }
        done += stream_lines(to + done, from + done, bytes - done);
    }
    copy_cached(to + done, from + done, bytes - done);
}

static void copy(void *to, const void *from, size_t bytes, weft_store_t store)
{
    if (to == from) {
        return;
    }
    if (store == WEFT_STORE_STREAM) {
        copy_streamed(to, from, bytes);
        vec_fence();
    } else {
        copy_cached(to, from, bytes);
    }
}

#endif
