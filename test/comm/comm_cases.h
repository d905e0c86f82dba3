/* Making, splitting and destroying communicators. For any kind of device. */
#ifndef WEFT_TEST_COMM_COMM_CASES_H
#define WEFT_TEST_COMM_COMM_CASES_H

#include "comm/harness.h"

/* Functions for a team with a communicator. */
void comm_colours(team_t *team);
void comm_negative_colour(team_t *team);
void comm_keys(team_t *team);
void comm_split_of_split(team_t *team);
void comm_split_config(team_t *team);
void comm_destroyed(team_t *team);  /* a destroyed handle is refused everywhere */
void comm_leaving(team_t *team);    /* destroying is not collective */
void comm_growth(team_t *team);     /* 200 communicators leave nothing behind; not under TSan */
void comm_busy(team_t *team);       /* 50 come and go while another one is in use */
void comm_memory(team_t *team);     /* what a rank takes */
void comm_after_fork(team_t *team); /* the handle in a child process; ranks are processes */

/* Functions for a bare team, of as many ranks as they say. */
void comm_growth_all(team_t *team); /* 1 */
void comm_arguments(team_t *team);  /* 1 */
void comm_job_of_one(team_t *team); /* 1 */
void comm_devices(team_t *team);    /* 1 */
void comm_duplicate(team_t *team);
void comm_duplicate_first(team_t *team);
void comm_first_again(team_t *team);     /* 3 */
void comm_sizes_differ(team_t *team);    /* 2 */
void comm_settings_differ(team_t *team); /* 3, processes */
void comm_late(team_t *team);            /* 3: rank 2 does not join */
void comm_first_late(team_t *team);      /* 3: rank 0 does not join */

#endif
