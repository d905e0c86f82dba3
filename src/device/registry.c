/* Memory that programs have registered: who did, and how to undo it. */
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/cpu/memory.h"
#include "device/ops.h"

typedef struct range {
    void *ptr;
    void *entry; /* the device's; NULL: there is nothing to undo */
    struct range *next;
} range_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range_t *ranges; /* the latest first */

weft_status_t weft_register(void *ptr, size_t bytes)
{
    const weft_device_ops_t *ops;
    int device;
    WEFT_TRY(weft__fork_guard("weft_register"));
    WEFT_TRY(weft__device_ops(&ops));
    WEFT_TRY(weft_device_get(&device));
    if (!ptr || bytes == 0) {
        return weft__fail(WEFT_ERR_INVALID, "weft_register: %s",
                          ptr ? "0 bytes cannot be registered" : "the address is NULL");
    }
    if ((uintptr_t)ptr + bytes < (uintptr_t)ptr) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_register: %zu bytes at %p go past the end of memory", bytes, ptr);
    }
    range_t *range = calloc(1, sizeof(*range));
    if (!range) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_register: no memory to remember %p", ptr);
    }
    range->ptr = ptr;
    weft_status_t status = ops->enlist ? ops->enlist(device, ptr, bytes, &range->entry) : WEFT_OK;
    if (status != WEFT_OK) {
        free(range);
        return status;
    }
    pthread_mutex_lock(&lock);
    range->next = ranges;
    ranges = range;
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

weft_status_t weft_unregister(void *ptr)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(weft__fork_guard("weft_unregister"));
    WEFT_TRY(weft__device_ops(&ops));
    pthread_mutex_lock(&lock);
    range_t **at = &ranges;
    while (*at && (*at)->ptr != ptr) {
        at = &(*at)->next;
    }
    range_t *range = *at;
    if (range) {
        *at = range->next;
    }
    pthread_mutex_unlock(&lock);
    if (!range) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_unregister: %p is not registered, or was unregistered already",
                          ptr);
    }
    weft_status_t status = range->entry ? ops->delist(range->entry) : WEFT_OK;
    free(range);
    return status;
}
