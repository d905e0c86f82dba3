/* Teams and contexts: start and end of the predefined ones. */
#ifndef WEFT_SYMM_SHMEM_TEAM_H
#define WEFT_SYMM_SHMEM_TEAM_H

void weft__shmem_teams_init(void);

/* Free teams and contexts that the program did not. */
void weft__shmem_teams_cleanup(void);

#endif
