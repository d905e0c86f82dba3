#include "topo/host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ p[i]) * 0x100000001b3ull; /* FNV-1a */
    }
    return hash;
}

/* Is it hidden from all processes here, rather than from this one just now? */
static bool is_hidden(int error)
{
    return error == ENOENT || error == EACCES || error == EPERM;
}

weft_status_t weft__host_id(uint64_t *id_p)
{
    static const char boot[] = "/proc/sys/kernel/random/boot_id",
                      name_space[] = "/proc/self/ns/pid";
    char text[128];
    struct stat info = {.st_ino = 0};
    ssize_t n = 0;
    int fd = open(boot, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        do {
            n = read(fd, text, sizeof(text));
        } while (n < 0 && errno == EINTR);
    }
    if ((fd < 0 || n < 0) && !is_hidden(errno)) {
        weft_status_t status = weft__fail(WEFT_ERR_SYSTEM, "cannot read %s: %s", boot,
                                          strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (stat(name_space, &info) != 0 && !is_hidden(errno)) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot look at %s: %s", name_space, strerror(errno));
    }
    uint64_t hash = hash_bytes(0xcbf29ce484222325ull, text, n > 0 ? (size_t)n : 0);
    *id_p = hash_bytes(hash, &info.st_ino, sizeof(info.st_ino));
    return WEFT_OK;
}
