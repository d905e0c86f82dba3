/* Channels: what an ordered pair of ranks has for sends and receives, see p2p.c. */
#ifndef WEFT_COMM_SHM_CHANNEL_H
#define WEFT_COMM_SHM_CHANNEL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_FRAG_BYTES ((size_t)8 << 10)
#define WEFT_FRAGS 8

#define WEFT_FRAG_INLINE 96

/* The flag of one message, or of one fragment of a staged one, with the data if that fits into the
 * pair of cache lines that processors fetch together. Written by the sender. */
typedef struct weft_frag {
    _Alignas(
        128) _Atomic uint64_t seq; /* fragment number + 1; released by post, acquired by recv */
    uint64_t count;                /* of the whole message */
    uint64_t sig;
    uint32_t kind;
    uint32_t bytes; /* in this fragment */
    union {
        char data[WEFT_FRAG_INLINE];
        struct {
            uint64_t src; /* address of the message in the sender's process */
            uint32_t shared;
        } at;
    } u;
} weft_frag_t;

typedef struct weft_channel {
    weft_frag_t frag[WEFT_FRAGS];
    _Alignas(128) _Atomic uint64_t consumed; /* fragments taken: released by the receiver, acquired
                                              * by the sender when the ring looks full */
    /* The meeting of a large message: the receiver writes all of this, `clear` last. */
    _Alignas(128) _Atomic uint64_t clear; /* number of the message it is ready for; released by it,
                                           * acquired by the sender */
    uint64_t dst;
    uint32_t shared;
    /* Pieces of that message: claimed by CAS on `next`, counted in `done` (acquire-release on both
     * sides). Both hold message << 32 | chunk, so a late claim for an old message fails. */
    _Alignas(128) _Atomic uint64_t next;
    _Alignas(128) _Atomic uint64_t done;
    _Alignas(4096) char payload[WEFT_FRAGS][WEFT_FRAG_BYTES];
} weft_channel_t;

_Static_assert(sizeof(weft_frag_t) == 128, "a fragment's flag is a pair of lines");

#endif
