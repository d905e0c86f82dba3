/* reseal FILE...: give a trainer.json that was edited the checksum of its text, as older versions
 * would have written it. For tests. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file.h"

static bool reseal(const char *path)
{
    static const char key[] = "\"self_crc32c\": \"";
    char *text, crc[16];
    size_t size;
    if (weft__file_read(path, &text, &size) != WEFT_OK) {
        return false;
    }
    char *at = strstr(text, key);
    bool good = at != NULL;
    if (good) {
        at += strlen(key);
        memcpy(at, "00000000", 8);
        snprintf(crc, sizeof(crc), "%08" PRIx32, weft__crc32c(0, text, size));
        memcpy(at, crc, 8);
        good = weft__file_replace(path, text, size) == WEFT_OK;
    }
    free(text);
    return good;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!reseal(argv[i])) {
            fprintf(stderr, "reseal: %s\n", argv[i]);
            return 1;
        }
    }
    return 0;
}
