/* Every collective, every way it can be carried out: ranks x counts x types x operations x in place
 * or not x algorithms x kinds of memory. The same for ranks that are processes (test_matrix.c) and
 * threads (test_matrix_threads.c). */
#ifndef WEFT_TEST_COMM_MATRIX_H
#define WEFT_TEST_COMM_MATRIX_H

#include "comm/harness.h"

/* Functions for a team. */
void matrix_small(team_t *team);  /* all types x all operations, counts up to 1000 */
void matrix_medium(team_t *team); /* 65537 elements */
void matrix_large(team_t *team);  /* about a million */
void matrix_ragged(team_t *team); /* alltoallv */
void matrix_pairs(team_t *team);  /* sends and receives between all pairs */
void matrix_floats(team_t *team); /* random floats: the same bits everywhere, every time */

/* Every pair of float8 codes, at most 8 ranks: the bits that the CPU's kernels give. */
void matrix_float8(team_t *team);

#endif
