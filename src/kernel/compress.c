/* Which table of compression this process uses. */
#include "kernel/compress.h"

#include <string.h>

#include <weft/device.h>

#include "kernel/cpu/compress.h"
#include "kernel/cuda/compress.h"

weft_status_t weft__compress_ops(const weft_compress_ops_t **table_p)
{
    const char *kind;
    weft_status_t status = weft_device_kind(&kind);
    if (status == WEFT_OK) {
        bool cpu = strcmp(kind, weft__compress_cpu.kind) == 0;
        *table_p = cpu ? &weft__compress_cpu : &weft__compress_cuda;
    }
    return status;
}
