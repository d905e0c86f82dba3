#include "topo/network.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of a file; "" if it cannot be read. */
static void read_line(const char *path, char *line, int room)
{
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(line, room, file) == NULL) {
        line[0] = '\0'; /* asking a card that is down for its speed fails */
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* The largest number, times `unit`, that begins a file of the pattern. `beside` is a file in the
 * same folder that must begin with `word`. */
static int largest(const char *root, const char *pattern, double unit, const char *beside,
                   const char *word)
{
    char path[4096], line[256];
    glob_t found;
    int most = 0;
    snprintf(path, sizeof(path), "%s%s", root, pattern);
    if (glob(path, 0, NULL, &found) != 0) {
        return 0;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = found.gl_pathv[i];
        int folder = (int)(strrchr(name, '/') - name);
        snprintf(path, sizeof(path), "%.*s/%s", folder, name, beside);
        read_line(path, line, sizeof(line));
        if (strncmp(line, word, strlen(word)) != 0) {
            continue;
        }
        read_line(name, line, sizeof(line));
        int rate = (int)(strtod(line, NULL) * unit + 0.5);
        most = rate > most ? rate : most;
    }
    globfree(&found);
    return most;
}

int weft__network_rate(const char *root, bool *infiniband_p)
{
    /* "200 Gb/sec (4X HDR)" beside "4: ACTIVE"; Mb/s beside "up" */
    int rate = largest(root, "/sys/class/infiniband/*/ports/*/rate", 1, "state", "4:");
    *infiniband_p = rate > 0;
    return rate > 0 ? rate : largest(root, "/sys/class/net/*/speed", 1e-3, "operstate", "up");
}
