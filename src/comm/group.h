/* Groups, as the rest of comm sees them. */
#ifndef WEFT_COMM_GROUP_H
#define WEFT_COMM_GROUP_H

#include "comm/comm.h"
#include "comm/init.h"

/* Is a group open in this thread? The initial-exec model makes this, part of every call, a plain
 * load. */
extern _Thread_local int weft__group_depth __attribute__((tls_model("initial-exec")));
static inline bool weft__group_open(void)
{
    return weft__group_depth > 0;
}

/* Defer a call, or a rank that joins, to the end of the group. */
weft_status_t weft__group_add(weft_call_t *call);
weft_status_t weft__group_add_joiner(const weft_joiner_t *joiner);

/* A call inside the group was refused: the group will not run. No effect outside a group. */
void weft__group_fail(weft_status_t status);

#endif
