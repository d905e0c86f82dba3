/* Pass a failure up, where there is nothing to undo. */
#ifndef WEFT_BASE_TRY_H
#define WEFT_BASE_TRY_H

#include <weft/status.h>

/* Return the status of `call` from the calling function unless it is WEFT_OK. */
#define WEFT_TRY(call)                                                                             \
    do {                                                                                           \
        weft_status_t try_status_ = (call);                                                        \
        if (try_status_ != WEFT_OK) {                                                              \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

#endif
