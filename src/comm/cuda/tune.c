#include "comm/cuda/tune.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/output.h"
#include "base/settings.h"

#define NCCL_MIN ((uint64_t)1 << 20) /* until somebody measures */
#define LINE_ROOM 256

/* false: there is no place for it. */
static bool find_path(char *path, size_t room)
{
    const char *asked = weft__settings()->tune_file, *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    int n = -1;
    if (asked[0] != '\0') {
        n = snprintf(path, room, "%s", asked);
    } else if (config && config[0] == '/') {
        n = snprintf(path, room, "%s/weft/tune", config);
    } else if (home && home[0] == '/') {
        n = snprintf(path, room, "%s/.config/weft/tune", home);
    }
    return n > 0 && (size_t)n < room;
}

/* What a line is for; names have no spaces there. */
static void make_key(const char *gpu, int ranks, bool shared, weft_coll_t coll, char *key,
                     size_t room)
{
    snprintf(key, room, "%s %d %s %s ", gpu, ranks, shared ? "shared" : "distinct",
             weft__coll_info[coll].name);
    for (char *c = key; c < key + strlen(gpu) && *c; c++) {
        *c = *c == ' ' ? '_' : *c;
    }
}

static bool parse_values(const char *text, uint64_t *ll_p, uint64_t *nccl_p)
{
    char end;
    return sscanf(text, "ll %" SCNu64 " nccl %" SCNu64 " %c", ll_p, nccl_p, &end) == 2;
}

void weft__tune_read(const char *gpu, int ranks, bool shared, weft_cuda_tune_t *tune_p)
{
    char path[PATH_MAX], line[LINE_ROOM], key[LINE_ROOM];
    memset(tune_p, 0, sizeof(*tune_p));
    for (int c = 0; c < WEFT_COLL_COUNT; c++) {
        tune_p->nccl_min[c] = NCCL_MIN;
    }
    FILE *file = find_path(path, sizeof(path)) ? fopen(path, "re") : NULL;
    while (file && fgets(line, sizeof(line), file)) {
        for (int c = 0; c < WEFT_COLL_COUNT; c++) {
            uint64_t ll, nccl;
            make_key(gpu, ranks, shared, (weft_coll_t)c, key, sizeof(key));
            if (strncmp(line, key, strlen(key)) != 0) {
                continue;
            }
            if (!parse_values(line + strlen(key), &ll, &nccl)) {
                weft__warn("%s: this line makes no sense and is skipped: %s", path, line);
                continue;
            }
            tune_p->ll_most[c] = ll;
            tune_p->nccl_min[c] = nccl ? nccl : WEFT_TUNE_NEVER;
        }
    }
    if (file) {
        fclose(file);
    }
}

static weft_status_t make_folder_of(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) {
        return WEFT_OK;
    }
    *slash = '\0';
    weft_status_t status = weft__folder_make(path);
    *slash = '/';
    return status;
}

/* All lines of the old file but those of `key`, each a line again: the last may lack its end. */
static void copy_others(const char *path, const char *key, FILE *to)
{
    char line[LINE_ROOM];
    FILE *from = fopen(path, "re");
    while (from && fgets(line, sizeof(line), from)) {
        if (strncmp(line, key, strlen(key)) != 0) {
            fprintf(to, "%.*s\n", (int)strcspn(line, "\n"), line);
        }
    }
    if (from) {
        fclose(from);
    }
}

weft_status_t weft__tune_write(const char *gpu, int ranks, bool shared, weft_coll_t coll,
                               uint64_t ll_most, uint64_t nccl_min, char *path, size_t room)
{
    char key[LINE_ROOM];
    make_key(gpu, ranks, shared, coll, key, sizeof(key));
    if (!find_path(path, room)) {
        return weft__fail(WEFT_ERR_SYSTEM, "there is no place for the file of thresholds: set "
                                           "WEFT_TUNE_FILE, or HOME");
    }
    weft_output_t *file;
    WEFT_TRY(make_folder_of(path));
    WEFT_TRY(weft__output_open(path, &file));
    copy_others(path, key, weft__output_stream(file));
    fprintf(weft__output_stream(file), "%sll %" PRIu64 " nccl %" PRIu64 "\n", key, ll_most,
            nccl_min == WEFT_TUNE_NEVER ? 0 : nccl_min);
    return weft__output_commit(file);
}
