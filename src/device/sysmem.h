/* How much memory this machine has, and how much is left: /proc/meminfo and the memory limits of
 * our control group and the groups above it (versions 1 and 2, also both at once). */
#ifndef WEFT_DEVICE_SYSMEM_H
#define WEFT_DEVICE_SYSMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_SYSMEM_PATH 1024
#define WEFT_SYSMEM_UNKNOWN UINT64_MAX /* no limit known */

typedef struct weft_sysmem_group {
    char path[WEFT_SYSMEM_PATH]; /* directory of our group */
    size_t mount_length;         /* how much of path is the mount point: the topmost group we see */
    bool v2;
} weft_sysmem_group_t;

/* Our control groups of `controller` ("memory", "cpu"): of version 1, 2 or both; returns how many.
 * `root` is put before every path: "" for the real ones, a folder in tests. */
int weft__cgroups_find(const char *root, const char *controller, weft_sysmem_group_t groups[2]);

typedef struct weft_sysmem {
    char meminfo[WEFT_SYSMEM_PATH];
    weft_sysmem_group_t groups[2];
    int group_count;
} weft_sysmem_t;

/* Find the files. `root` as above. */
void weft__sysmem_find(const char *root, weft_sysmem_t *sysmem_p);

/* The files of this process, found once. */
const weft_sysmem_t *weft__sysmem(void);

/* Bytes of memory that this process could ever have: physical memory or the least limit above. */
uint64_t weft__sysmem_total(const weft_sysmem_t *sysmem);

/* Bytes that can still be had now without swapping or being killed. File cache that a group could
 * drop counts as room. */
uint64_t weft__sysmem_room(const weft_sysmem_t *sysmem);

/* "64 MiB", "1.53 GiB", "300 bytes": for sentences. Returns `text`. */
#define WEFT_BYTES_TEXT 32
const char *weft__bytes_text(uint64_t bytes, char text[WEFT_BYTES_TEXT]);

#endif
