/* Do all ranks have the same? If not, who differs? */
#ifndef WEFT_PARALLEL_AGREE_H
#define WEFT_PARALLEL_AGREE_H

#include <stddef.h>
#include <stdint.h>

#include <weft/comm.h>

/* Compare `bytes` at `memory` (device memory) on all ranks by their checksums. WEFT_ERR_MISMATCH on
 * all ranks, naming those that differ from rank 0 and `what` it is, if they are not equal.
 * Collective; returns when done. */
weft_status_t weft__agree_check(const void *memory, size_t bytes, const char *what,
                                weft_comm_h comm);

/* The same for a small value on the host. */
weft_status_t weft__agree_value(uint64_t value, const char *what, weft_comm_h comm);

#endif
