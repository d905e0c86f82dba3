/* Random damage of safetensors files never crashes the reader, and what it accepts lies inside of
 * the file. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

#include "train/safetensors.h"

/* The length of the header is made right in most inputs: a wrong one ends the reading at once. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[64];
    static uint8_t copy[8192];
    static int fd = -1;
    if (fd < 0) { /* in memory: 10,000 files would take their time on a disk */
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    fuzz_data = data;
    fuzz_size = size;
    size = size < sizeof(copy) ? size : sizeof(copy);
    memcpy(copy, data, size);
    const uint8_t *end = size > 8 ? memchr(copy + 8, '~', size - 8) : NULL;
    if (end != NULL && size > 8 && (data[0] & 7) != 0) {
        uint64_t length = (uint64_t)(end - copy - 8);
        memcpy(copy, &length, 8);
    }
    CHECK(ftruncate(fd, (off_t)size) == 0 && pwrite(fd, copy, size, 0) == (ssize_t)size);
    weft_tensors_t *tensors;
    if (weft__tensors_open(path, &tensors) != WEFT_OK) {
        CHECK(strlen(weft_last_error()) > 0);
        return 0;
    }
    uint64_t total = 0;
    for (int i = 0; i < weft__tensors_count(tensors); i++) {
        const weft_tensor_t *tensor = weft__tensors_at(tensors, i);
        CHECK(weft__tensors_find(tensors, tensor->form.name) == tensor);
        for (size_t b = 0; b < tensor->bytes; b++) { /* a sanitizer sees what is out of bounds */
            total += ((const volatile uint8_t *)tensor->data)[b] * 0u + 1u;
        }
    }
    CHECK(total < size);
    weft__tensors_close(tensors);
    return 0;
}

#define T(dtype, shape, from, to)                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

static const char seed_two[] = "\x7f\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"},"
                               "\"a\":" T("F32", "2,1", "0", "8") ",\"b\":" T("BF16", "3", "8",
                                                                              "14") "}"
                                                                                    "~234567890123";
static const char seed_one[] = "\x7f\0\0\0\0\0\0\0{\"w\":" T("F16", "", "0", "2") "}~1";
static const char seed_none[] = "\x7f\0\0\0\0\0\0\0{}~";

static const fuzz_seed_t seeds[] = {{seed_two, sizeof(seed_two) - 1},
                                    {seed_one, sizeof(seed_one) - 1},
                                    {seed_none, sizeof(seed_none) - 1}};

FUZZ_MAIN(seeds, 3, 10000)
