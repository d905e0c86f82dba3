/* Any collective, called by number, on buffers of one's own: for tests of what goes wrong in it. */
#ifndef WEFT_TEST_COMM_ANY_CALL_H
#define WEFT_TEST_COMM_ANY_CALL_H

#include "comm/call.h"
#include "comm/harness.h"

/* Buffers large enough for `count` elements of f64 per rank. */
typedef struct any_buffers {
    void *src, *dst;
    bool plain;
    size_t counts[TEAM_MOST], offsets[TEAM_MOST]; /* equal parts, for alltoallv */
} any_buffers_t;

void any_open(any_buffers_t *buffers, const team_t *team, size_t count, bool plain);
void any_close(any_buffers_t *buffers);

/* Make the call. `send` exchanges with both neighbours in a group, `recv` plays ping-pong with
 * rank xor 1. Out of place, type f32, operation sum, `root` as given. */
weft_status_t any_call(weft_coll_t coll, any_buffers_t *buffers, const team_t *team, size_t count,
                       int root, weft_comm_h comm);

#endif
