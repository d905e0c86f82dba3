#include "base/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/status.h>

#include "base/file.h"

static char folder[256];
static pid_t owner;

const char *fixture(const char *area, const char *name)
{
    static char paths[4][4096];
    static int turn;
    char *path = paths[turn++ % 4];
    const char *source = getenv("WEFT_SOURCE"), *slash = strrchr(__FILE__, '/');
    if (source != NULL) {
        snprintf(path, 4096, "%s/test/%s/fixtures/%s", source, area, name);
    } else { /* not started by ctest */
        snprintf(path, 4096, "%.*s/../%s/fixtures/%s", (int)(slash - __FILE__), __FILE__, area,
                 name);
    }
    return path;
}

static void remove_scratch(void)
{
    if (getpid() == owner) {
        weft__path_remove(folder);
    }
}

const char *scratch(void)
{
    if (owner != getpid() && folder[0] == '\0') {
        /* In memory where possible: what is tested is killed, not cut off from its power. */
        const char *tmp = getenv("TMPDIR");
        tmp = tmp != NULL ? tmp : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(folder, sizeof(folder), "%.200s/weft-test-XXXXXX", tmp);
        if (mkdtemp(folder) == NULL) {
            perror(folder);
            abort();
        }
        owner = getpid();
        atexit(remove_scratch);
    }
    return folder;
}

const char *in_scratch(const char *name)
{
    static char paths[64][4096];
    static int turn;
    char *path = paths[turn++ % 64];
    snprintf(path, 4096, "%s/%s", scratch(), name);
    return path;
}

void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *out = fopen(path, "wb");
    if (out == NULL || fwrite(bytes, 1, size, out) != size || fclose(out) != 0) {
        perror(path);
        abort();
    }
}

int error_says(const char *part)
{
    int says = strstr(weft_last_error(), part) != NULL;
    if (!says) {
        fprintf(stderr, "the error is: %s\nit should say: %s\n", weft_last_error(), part);
    }
    return says;
}
