/* The environment variables of the specification. See env.h. */
#include "symm/shmem/env.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/shmem_types.h>

#include "base/log.h"

/* The value of SHMEM_<name>, or of SMA_<name>. NULL: neither is set. */
static const char *look_up(const char *name)
{
    char full[64];
    snprintf(full, sizeof(full), "SHMEM_%s", name);
    const char *value = getenv(full);
    if (value == NULL) {
        snprintf(full, sizeof(full), "SMA_%s", name);
        value = getenv(full);
    }
    return value;
}

bool weft__shmem_parse_size(const char *text, size_t *bytes_p)
{
    static const char factors[] = "kmgt";
    char *end;
    if (strspn(text, "0123456789.") == 0) {
        return false; /* no sign, no space, neither "inf" nor "nan" */
    }
    double number = strtod(text, &end);
    if (end == text || (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))) {
        return false;
    }
    if (*end != '\0') {
        int letter = *end >= 'A' && *end <= 'Z' ? *end - 'A' + 'a' : *end;
        const char *factor = strchr(factors, letter);
        if (factor == NULL) {
            return false;
        }
        number = ldexp(number, 10 * (int)(factor - factors + 1));
    }
    number = ceil(number);
    if (!(number < (double)WEFT_SHMEM_HEAP_MOST)) {
        return false;
    }
    *bytes_p = (size_t)number;
    return true;
}

weft_status_t weft__shmem_env_read(weft_shmem_env_t *env_p)
{
    const char *text = look_up("SYMMETRIC_SIZE");
    *env_p = (weft_shmem_env_t){.heap_text = text != NULL ? text : WEFT_SHMEM_HEAP_DEFAULT,
                                .version = look_up("VERSION") != NULL,
                                .info = look_up("INFO") != NULL,
                                .debug = look_up("DEBUG") != NULL};
    if (!weft__shmem_parse_size(env_p->heap_text, &env_p->heap_bytes)) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "SHMEM_SYMMETRIC_SIZE=%s is no size; write bytes, or a number with k, m, g "
            "or t: 64m, 1.5g",
            env_p->heap_text);
    }
    return WEFT_OK;
}

void weft__shmem_env_print(const weft_shmem_env_t *env)
{
    if (env->version) {
        printf("%s: OpenSHMEM %d.%d\n", SHMEM_VENDOR_STRING, SHMEM_MAJOR_VERSION,
               SHMEM_MINOR_VERSION);
    }
    if (env->info) {
        printf("SHMEM_VERSION         any value: print the library's version at the start\n"
               "SHMEM_INFO            any value: print this text\n"
               "SHMEM_SYMMETRIC_SIZE  bytes of the symmetric heap of each PE, with k, m, g or t; "
               "now %s (%zu)\n"
               "SHMEM_DEBUG           any value: say on stderr what the library does\n"
               "weft info lists Weft's own variables.\n",
               env->heap_text, env->heap_bytes);
    }
    fflush(stdout);
}
