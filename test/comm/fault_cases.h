/* Ranks that die, stop or come late: every other rank is told who, where, and in time. For any kind
 * of device. Those that kill or stop a rank need ranks that are processes. */
#ifndef WEFT_TEST_COMM_FAULT_CASES_H
#define WEFT_TEST_COMM_FAULT_CASES_H

#include "comm/any_call.h"

/* The arg of some. */
typedef struct fault {
    weft_coll_t coll;
    size_t count;
    int victim;
    bool plain; /* memory */
} fault_t;

/* Functions for a team with a communicator. */
void fault_killed(team_t *team);  /* (fault_t) the victim is killed inside its calls */
void fault_between(team_t *team); /* rank 1 between two calls */
void fault_gone_and_late(team_t *team);
void fault_gone_inside_and_late(team_t *team);   /* 3 ranks: 2 is dead, 1 comes after 3 s */
void fault_gone_and_late_messages(team_t *team); /* the same in a group of receives */
void fault_last_words(team_t *team);             /* rank 1, after it has sent something */
void fault_split(team_t *team);                  /* rank 2 in a split */
void fault_streams(team_t *team);                /* rank 0, with calls on streams */
void fault_all(team_t *team);                    /* all of them */

/* With 4 ranks and a timeout of 1 s. */
void fault_late(team_t *team);           /* (fault_t) rank 2 comes after 2.5 s */
void fault_stopped(team_t *team);        /* (fault_t) rank 2 stops before its fourth call */
void fault_stopped_inside(team_t *team); /* (fault_t) rank 2 stops anywhere */
void fault_late_messages(team_t *team);  /* 3 ranks: rank 1 neither sends nor receives */

#endif
