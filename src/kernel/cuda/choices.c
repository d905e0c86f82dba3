#include "kernel/cuda/choices.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output.h"
#include "base/settings.h"

/* A file is the key, the choice and a checksum of both. Its name is a hash of the key: another key
 * of the same hash finds a file that is not its own, and nothing stands for it. */
enum { MOST_BYTES = 1024, SUM_BYTES = 4 };

static bool find_folder(char *folder)
{
    const char *asked = weft__settings()->matmul_choices, *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;
    if (asked[0] != '\0') {
        n = snprintf(folder, WEFT_PATH_BYTES, "%s", asked);
    } else if (cache != NULL && cache[0] == '/') {
        n = snprintf(folder, WEFT_PATH_BYTES, "%s/weft/products", cache);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(folder, WEFT_PATH_BYTES, "%s/.cache/weft/products", home);
    }
    return n > 0 && n < WEFT_PATH_BYTES;
}

static bool find_path(const char *folder, const void *key, size_t key_bytes, char *path)
{
    char name[32];
    uint32_t low = weft__crc32c(0, key, key_bytes), high = weft__crc32c(~low, key, key_bytes);
    snprintf(name, sizeof(name), "%08" PRIx32 "%08" PRIx32, high, low);
    return weft__path_join(path, folder, name) == WEFT_OK;
}

/* The file that belongs to key and choice; returns its size. */
static size_t pack(const void *key, size_t key_bytes, const void *choice, size_t bytes, char *file)
{
    size_t size = key_bytes + bytes;
    memcpy(file, key, key_bytes);
    memcpy(file + key_bytes, choice, bytes);
    uint32_t sum = weft__crc32c(0, file, size);
    memcpy(file + size, &sum, SUM_BYTES);
    return size + SUM_BYTES;
}

static bool read_choice(const char *path, const void *key, size_t key_bytes, void *choice,
                        size_t bytes)
{
    char file[MOST_BYTES + 1], expected[MOST_BYTES];
    size_t size = key_bytes + bytes + SUM_BYTES;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t count = read(fd, file, size + 1);
    close(fd);
    if (count != (ssize_t)size || memcmp(file, key, key_bytes) != 0) {
        return false;
    }
    pack(key, key_bytes, file + key_bytes, bytes, expected);
    if (memcmp(file, expected, size) != 0) {
        return false;
    }
    memcpy(choice, file + key_bytes, bytes);
    return true;
}

bool weft__choice_find(const void *key, size_t key_bytes, void *choice, size_t bytes)
{
    char folder[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES];
    return key_bytes + bytes + SUM_BYTES <= MOST_BYTES && find_folder(folder) &&
           find_path(folder, key, key_bytes, path) &&
           read_choice(path, key, key_bytes, choice, bytes);
}

static void complain(const char *folder, const char *why)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&told)) {
        weft__warn(
            "algorithms of matrix products that were measured cannot be kept in %s: %s; other "
            "ranks and later runs may round differently. WEFT_MATMUL_CHOICES names another "
            "folder, WEFT_MATMUL_TUNE=0 takes the same ones always",
            folder, why);
    }
}

/* The file, which gets its name if nobody has that name yet. */
static bool put_file(const char *folder, const char *path, const char *file, size_t size)
{
    weft_output_t *out;
    if (weft__folder_make(folder) != WEFT_OK || weft__output_open(path, &out) != WEFT_OK) {
        complain(folder, weft_last_error());
        return false;
    }
    fwrite(file, 1, size, weft__output_stream(out));
    if (weft__output_offer(out) != WEFT_OK) {
        complain(folder, weft_last_error());
        return false;
    }
    return true;
}

void weft__choice_offer(const void *key, size_t key_bytes, void *choice, size_t bytes)
{
    char folder[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES], file[MOST_BYTES];
    if (key_bytes + bytes + SUM_BYTES > MOST_BYTES) {
        return;
    }
    if (!find_folder(folder) || !find_path(folder, key, key_bytes, path)) {
        complain("a folder of its own", "neither XDG_CACHE_HOME nor HOME is set");
        return;
    }
    size_t size = pack(key, key_bytes, choice, bytes, file);
    if (put_file(folder, path, file, size) && !read_choice(path, key, key_bytes, choice, bytes)) {
        /* Damaged, or another key's: it gives way. */
        unlink(path);
        if (put_file(folder, path, file, size)) {
            (void)read_choice(path, key, key_bytes, choice, bytes);
        }
    }
}
