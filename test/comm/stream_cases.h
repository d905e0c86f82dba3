/* Collectives on streams: queued, in order, tied to other work by events, errors told by the
 * stream. For any kind of device. */
#ifndef WEFT_TEST_COMM_STREAM_CASES_H
#define WEFT_TEST_COMM_STREAM_CASES_H

#include "comm/harness.h"

/* Functions for a team with a communicator. */
void stream_row(team_t *team);        /* each call works on the result of the one before */
void stream_queues(team_t *team);     /* a call returns when it is queued; at least 2 ranks */
void stream_ahead(team_t *team);      /* thousands of calls while rank 0 has yet to come */
void stream_then_group(team_t *team); /* a group on no stream, behind a call on one */
void stream_order(team_t *team);      /* one communicator, several streams and none */
void stream_comms(team_t *team);      /* two communicators, two streams */
void stream_overlap(team_t *team);    /* computation and communication, tied by events */
void stream_messages(team_t *team);   /* sends and receives */
void stream_vectors(team_t *team);    /* the counts of an alltoallv are copied */
void stream_destroy(team_t *team);    /* destroying a communicator finishes its calls */
void stream_errors(team_t *team);     /* a mismatch, and what comes after */
void stream_many(team_t *team);       /* a mismatch in the first of many communicators */

#endif
