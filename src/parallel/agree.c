/* Do all ranks have the same? See agree.h. */
#include "parallel/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/checksum.h"
#include "base/log.h"

#define PIECE ((size_t)4 << 20)

static weft_status_t device_checksum(const void *memory, size_t bytes, uint32_t *crc_p)
{
    void *host = NULL;
    weft_status_t status = weft_host_malloc(&host, PIECE);
    *crc_p = 0;
    for (size_t at = 0; at < bytes && status == WEFT_OK; at += PIECE) {
        size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        status = weft_memcpy(host, (const char *)memory + at, piece, NULL);
        *crc_p = status == WEFT_OK ? weft__crc32c(*crc_p, host, piece) : *crc_p;
    }
    weft_host_free(host);
    return status;
}

/* "rank 3", "ranks 1 2 5" of those that differ from rank 0; false if none does. */
static bool name_others(const uint64_t *values, int count, char *out, size_t room)
{
    int differ = 0;
    size_t used = 0;
    char list[256] = "";
    for (int i = 1; i < count; i++) {
        if (values[i] != values[0]) {
            differ++;
            used += used < sizeof(list) - 16
                        ? (size_t)snprintf(list + used, sizeof(list) - used, " %d", i)
                        : 0;
        }
    }
    snprintf(out, room, "rank%s%s", differ > 1 ? "s" : "", list);
    return differ > 0;
}

weft_status_t weft__agree_value(uint64_t value, const char *what, weft_comm_h comm)
{
    int size;
    char who[300];
    WEFT_TRY(weft_comm_size(comm, &size));
    uint64_t *all = calloc((size_t)size, sizeof(*all));
    if (all == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the checksums of %d ranks", size);
    }
    weft_status_t status = weft_allgather(&value, all, 1, WEFT_U64, comm, NULL);
    if (status == WEFT_OK && name_others(all, size, who, sizeof(who))) {
        status = weft__fail(WEFT_ERR_MISMATCH, "%s: %s has another than rank 0", what, who);
    }
    free(all);
    return status;
}

weft_status_t weft__agree_check(const void *memory, size_t bytes, const char *what,
                                weft_comm_h comm)
{
    uint32_t crc;
    WEFT_TRY(device_checksum(memory, bytes, &crc));
    return weft__agree_value(crc, what, comm);
}
