/* Functions for teams that try the structures which live on virtual GPUs and real ones. */
#ifndef WEFT_TEST_SYMM_SHARED_CASES_H
#define WEFT_TEST_SYMM_SHARED_CASES_H

#include "symm/symm_cases.h"

void tensor_slices(team_t *team);  /* random slices, random shards, against a copy */
void tensor_refused(team_t *team); /* wrong rows and shards */

void params_swapped(team_t *team); /* one rank swaps, all read: no version is ever torn */
void params_writers(team_t *team); /* all ranks swap, all read */

#endif
