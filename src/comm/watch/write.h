/* The sentences, for the judge: each of a fault that it has found. */
#ifndef WEFT_COMM_WATCH_WRITE_H
#define WEFT_COMM_WATCH_WRITE_H

#include "comm/watch.h"

void weft__write_dead(const weft_waiting_t *waiting, const weft_seen_t *dead,
                      weft_fault_t *fault_p);
void weft__write_left(const weft_waiting_t *waiting, const weft_seen_t *left,
                      weft_fault_t *fault_p);
/* Also of the same call, if it is an alltoallv whose counts differ. */
void weft__write_different(const weft_waiting_t *waiting, const weft_seen_t *theirs,
                           weft_fault_t *fault_p);
/* `culprit`: -1 if it is not known. */
void weft__write_late(const weft_waiting_t *waiting, int culprit, const weft_seen_t *seen, int n,
                      weft_fault_t *fault_p);

#endif
