/* Groups: many calls as one, sends and receives in any order, several ranks driven by one thread.
 * For any kind of device; buffers are device memory and plain memory by turns. */
#ifndef WEFT_TEST_COMM_GROUP_CASES_H
#define WEFT_TEST_COMM_GROUP_CASES_H

#include "comm/harness.h"

/* Functions for a team with a communicator. */
void group_mixed(team_t *team);     /* 100 calls of all kinds */
void group_fused(team_t *team);     /* 300 small all-reduces */
void group_pieces(team_t *team);    /* the same, of all types, at odd places of one buffer */
void group_messages(team_t *team);  /* messages of all pairs, oneself included, in any order */
void group_ring(team_t *team);      /* a large message to the right, before one from the left */
void group_self(team_t *team);      /* messages to oneself */
void group_self_anew(team_t *team); /* of memory that is new each time */
void group_nested(team_t *team);    /* groups in groups */
void group_refused(team_t *team);   /* a wrong call in a group */
void group_destroyed(team_t *team); /* a communicator destroyed in a group */
void group_streams(team_t *team);   /* a batch whose calls have different streams, or none */

/* Functions for a bare team. */
void group_driven(team_t *team);        /* 1 rank: drives *(int *)arg ranks of weft_comm_init_all */
void group_joined(team_t *team);        /* the same, joined by weft_comm_init_rank in a group */
void group_joined_by_two(team_t *team); /* 2 ranks: processes that drive three ranks each */
void group_join_refused(team_t *team);  /* 1 rank: a wrong join in a group */

#endif
