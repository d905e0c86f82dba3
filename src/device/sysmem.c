/* How much memory there is. See sysmem.h.
 *
 * A group's directory is the mount point of its hierarchy plus the group's path, less the part of
 * that path which the mount already stands for: a container often sees its own group mounted as if
 * it were the top. Limits apply at every level, so we walk from our group up to the mount point. */
#include "device/sysmem.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V1_UNLIMITED (UINT64_C(1) << 60) /* version 1 says "no limit" with a huge number */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number after the first line that starts with `key`; false if there is none. */
static bool read_keyed(const char *path, const char *key, uint64_t *value_p)
{
    char line[256];
    size_t length = strlen(key);
    bool found = false;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, length) == 0) {
            found = sscanf(line + length, "%" SCNu64, value_p) == 1;
        }
    }
    fclose(file);
    return found;
}

static bool read_number(const char *dir, const char *name, uint64_t *value_p)
{
    char path[WEFT_SYSMEM_PATH + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return read_keyed(path, "", value_p); /* "max" is no number, and no limit */
}

/* ---- finding the groups ----------------------------------------------------------------- */

/* Spaces and backslashes of a mount point are written as \040 and the like. */
static void unescape(char *text)
{
    char *to = text;
    while (*text != '\0') {
        if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' &&
            text[2] <= '7' && text[3] >= '0' && text[3] <= '7') {
            *to++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
            text += 4;
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
}

static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        char end = at[length];
        if ((at == list || at[-1] == ',') && (end == '\0' || end == ',' || end == '\n')) {
            return true;
        }
    }
    return false;
}

/* The path of our group: the line "0::PATH" for version 2, "N:...,memory,...:PATH" for 1. */
static bool group_path(const char *root, const char *controller, bool v2,
                       char path[WEFT_SYSMEM_PATH])
{
    char name[WEFT_SYSMEM_PATH];
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    FILE *file = fopen(name, "re");
    if (file == NULL) {
        return false;
    }
    while (!found && getline(&line, &room, file) > 0) {
        char *controllers = strchr(line, ':');
        char *at = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (at == NULL) {
            continue;
        }
        *at++ = '\0';
        at[strcspn(at, "\n")] = '\0';
        controllers++;
        if (v2 ? strcmp(line, "0:") == 0 && *controllers == '\0'
               : list_has(controllers, controller)) {
            snprintf(path, WEFT_SYSMEM_PATH, "%s", at);
            found = true;
        }
    }
    free(line);
    fclose(file);
    return found;
}

/* One line of mountinfo: "36 35 98:0 ROOT POINT options [fields] - TYPE source SUPEROPTIONS". */
static bool parse_mount(char *line, const char *controller, char **root_p, char **point_p,
                        bool *v2_p)
{
    char *rest = strstr(line, " - ");
    char *save = NULL;
    if (rest == NULL) {
        return false;
    }
    *rest = '\0';
    rest += 3;
    char *word = strtok_r(line, " ", &save);
    for (int i = 0; i < 3 && word != NULL; i++) {
        word = strtok_r(NULL, " ", &save);
    }
    *root_p = word;
    *point_p = strtok_r(NULL, " ", &save);
    char *type = strtok_r(rest, " ", &save);
    strtok_r(NULL, " ", &save);
    char *options = strtok_r(NULL, " ", &save);
    if (*root_p == NULL || *point_p == NULL || type == NULL || options == NULL) {
        return false;
    }
    unescape(*root_p);
    unescape(*point_p);
    *v2_p = strcmp(type, "cgroup2") == 0;
    return *v2_p || (strcmp(type, "cgroup") == 0 && list_has(options, controller));
}

/* The groups of one controller, while they are found. */
typedef struct search {
    const char *root, *controller;
    weft_sysmem_group_t *groups; /* room for 2 */
    int count;
} search_t;

static void add_group(search_t *search, const char *mount_root, const char *point, bool v2)
{
    char path[WEFT_SYSMEM_PATH];
    if (search->count == 2 || (search->count == 1 && search->groups[0].v2 == v2)) {
        return; /* mounted again elsewhere */
    }
    if (!group_path(search->root, search->controller, v2, path)) {
        return;
    }
    size_t skip = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    const char *below = path;
    if (strncmp(path, mount_root, skip) == 0 && (path[skip] == '/' || path[skip] == '\0')) {
        below += skip;
    } else {
        below = ""; /* our group lies outside of what is mounted: its top is all we can see */
    }
    if (strcmp(below, "/") == 0 || strstr(below, "/..") != NULL) {
        below = "";
    }
    weft_sysmem_group_t *group = &search->groups[search->count];
    int length = snprintf(group->path, sizeof(group->path), "%s%s%s", search->root, point, below);
    if (length > 0 && (size_t)length < sizeof(group->path)) {
        group->mount_length = strlen(search->root) + strlen(point);
        group->v2 = v2;
        search->count++;
    }
}

int weft__cgroups_find(const char *root, const char *controller, weft_sysmem_group_t groups[2])
{
    search_t search = {.root = root, .controller = controller, .groups = groups};
    char name[WEFT_SYSMEM_PATH];
    char *line = NULL;
    size_t room = 0;
    snprintf(name, sizeof(name), "%s/proc/self/mountinfo", root);
    FILE *file = fopen(name, "re");
    if (file == NULL) {
        return 0;
    }
    while (getline(&line, &room, file) > 0) {
        char *mount_root, *point;
        bool v2;
        if (parse_mount(line, controller, &mount_root, &point, &v2)) {
            add_group(&search, mount_root, point, v2);
        }
    }
    free(line);
    fclose(file);
    return search.count;
}

void weft__sysmem_find(const char *root, weft_sysmem_t *sysmem_p)
{
    memset(sysmem_p, 0, sizeof(*sysmem_p));
    snprintf(sysmem_p->meminfo, sizeof(sysmem_p->meminfo), "%s/proc/meminfo", root);
    sysmem_p->group_count = weft__cgroups_find(root, "memory", sysmem_p->groups);
}

static weft_sysmem_t ours; /* written once, inside find_ours */
static pthread_once_t ours_once = PTHREAD_ONCE_INIT;

static void find_ours(void)
{
    weft__sysmem_find("", &ours);
}

const weft_sysmem_t *weft__sysmem(void)
{
    pthread_once(&ours_once, find_ours);
    return &ours;
}

/* ---- reading them ----------------------------------------------------------------------- */

/* What the group at `dir` may hold, and what of that it could still take. */
static void read_group(const char *dir, bool v2, uint64_t *limit_p, uint64_t *room_p)
{
    char stat[WEFT_SYSMEM_PATH + 64];
    uint64_t used, cache, active = 0, inactive = 0;
    *limit_p = *room_p = WEFT_SYSMEM_UNKNOWN;
    if (!read_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", limit_p) ||
        (!v2 && *limit_p >= V1_UNLIMITED)) {
        *limit_p = WEFT_SYSMEM_UNKNOWN;
        return;
    }
    if (!read_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", &used)) {
        return;
    }
    snprintf(stat, sizeof(stat), "%s/memory.stat", dir);
    read_keyed(stat, v2 ? "active_file " : "total_active_file ", &active);
    read_keyed(stat, v2 ? "inactive_file " : "total_inactive_file ", &inactive);
    cache = least(active + inactive, used);
    used -= cache;
    *room_p = *limit_p > used ? *limit_p - used : 0;
}

/* The least limit and the least room from our group up to the mount point. */
static void walk_groups(const weft_sysmem_t *sysmem, uint64_t *limit_p, uint64_t *room_p)
{
    *limit_p = *room_p = WEFT_SYSMEM_UNKNOWN;
    for (int i = 0; i < sysmem->group_count; i++) {
        const weft_sysmem_group_t *group = &sysmem->groups[i];
        char dir[WEFT_SYSMEM_PATH];
        memcpy(dir, group->path, sizeof(dir));
        for (;;) {
            uint64_t limit, room;
            read_group(dir, group->v2, &limit, &room);
            *limit_p = least(*limit_p, limit);
            *room_p = least(*room_p, room);
            char *slash = strrchr(dir, '/');
            if (slash == NULL || strlen(dir) <= group->mount_length) {
                break;
            }
            *slash = '\0';
        }
    }
}

static uint64_t read_meminfo(const weft_sysmem_t *sysmem, const char *key)
{
    uint64_t kib;
    return read_keyed(sysmem->meminfo, key, &kib) ? kib * 1024 : WEFT_SYSMEM_UNKNOWN;
}

uint64_t weft__sysmem_total(const weft_sysmem_t *sysmem)
{
    uint64_t limit, room;
    walk_groups(sysmem, &limit, &room);
    return least(limit, read_meminfo(sysmem, "MemTotal:"));
}

uint64_t weft__sysmem_room(const weft_sysmem_t *sysmem)
{
    uint64_t limit, room;
    walk_groups(sysmem, &limit, &room);
    return least(room, read_meminfo(sysmem, "MemAvailable:"));
}

const char *weft__bytes_text(uint64_t bytes, char text[WEFT_BYTES_TEXT])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    bool whole = bytes % (UINT64_C(1) << (10 * unit)) == 0;
    snprintf(text, WEFT_BYTES_TEXT, whole ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}
