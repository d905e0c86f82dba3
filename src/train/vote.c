/* What ranks tell each other in every step. */
#include <string.h>

#include <weft/device.h>

#include "base/try.h"
#include "train/trainer.h"

#define DOUBLES (sizeof(weft_vote_t) / sizeof(double))

weft_status_t weft__vote(weft_trainer_t *t, const weft_vote_t *mine)
{
    weft_vote_t *all = t->vote_memory + 1, *host = t->votes + t->size;
    *host = *mine; /* behind everybody's, in memory that a GPU reaches */
    WEFT_TRY(weft_memcpy(t->vote_memory, host, sizeof(*mine), t->side));
    WEFT_TRY(weft_allgather(t->vote_memory, all, DOUBLES, WEFT_F64, t->comm, t->side));
    WEFT_TRY(weft_memcpy(t->votes, all, (size_t)t->size * sizeof(*mine), t->side));
    return weft_stream_synchronize(t->side);
}
