/* Ranks that disagree, leave, abort, or pass nonsense. For any kind of device; every function but
 * the last breaks communicators of its own and leaves the team's whole. */
#ifndef WEFT_TEST_COMM_ERROR_CASES_H
#define WEFT_TEST_COMM_ERROR_CASES_H

#include "comm/harness.h"

/* Functions for a team with a communicator. */
void error_disputes(team_t *team);   /* another operation, count, type, root, ... on one rank */
void error_order(team_t *team);      /* the same calls in another order */
void error_after_many(team_t *team); /* another count after many equal calls */
void error_groups(team_t *team);     /* other groups */
void error_ragged(team_t *team);     /* counts of an alltoallv that do not match */
void error_messages(team_t *team);   /* sender and receiver disagree */
void error_left(team_t *team);       /* a rank destroys its handle */
void error_abort(team_t *team);      /* one aborts while all are blocked */
void error_abort_any_moment(team_t *team); /* all abort, whatever they are in */
void error_break(
    team_t *team); /* one gives up while all others are blocked, and keeps its handle */
void error_arguments(team_t *team);   /* wrong arguments change nothing */
void error_interleaved(team_t *team); /* no error: blocks that lie between each other */
void error_no_memory(team_t *team);   /* under a small WEFT_DEVICE_MEMORY: staging fails */

#endif
