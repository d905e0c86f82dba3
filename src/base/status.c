/* Names and texts of the public enums, and the version. */
#include <weft/status.h>
#include <weft/types.h>

#include "base/version.h"

const char *weft_status_text(weft_status_t status)
{
    switch (status) {
#define CASE(name, value, text)                                                                    \
    case name:                                                                                     \
        return text;
        WEFT_STATUS_TABLE(CASE)
#undef CASE
    }
    return "unknown status";
}

const char *weft_status_name(weft_status_t status)
{
    switch (status) {
#define CASE(name, value, text)                                                                    \
    case name:                                                                                     \
        return #name;
        WEFT_STATUS_TABLE(CASE)
#undef CASE
    }
    return "WEFT_ERR_UNKNOWN";
}

const char *weft__commit = "";

const char *weft_version(void)
{
    return WEFT_VERSION_TEXT;
}

const unsigned char weft__dtype_sizes[WEFT_DTYPE_COUNT] = {
#define SIZE(name, text, bytes) bytes,
    WEFT_DTYPE_TABLE(SIZE)
#undef SIZE
};

size_t weft_dtype_size(weft_dtype_t type)
{
    return (unsigned)type < WEFT_DTYPE_COUNT ? weft__dtype_sizes[type] : 0;
}

const char *weft_dtype_name(weft_dtype_t type)
{
    static const char *const names[] = {
#define NAME(name, text, bytes) #text,
        WEFT_DTYPE_TABLE(NAME)
#undef NAME
    };
    return (unsigned)type < WEFT_DTYPE_COUNT ? names[type] : "?";
}

const char *weft_op_name(weft_op_t op)
{
    static const char *const names[WEFT_OP_COUNT] = {
        [WEFT_SUM] = "sum", [WEFT_PROD] = "prod", [WEFT_MIN] = "min",
        [WEFT_MAX] = "max", [WEFT_AVG] = "avg",
    };
    return (unsigned)op < WEFT_OP_COUNT ? names[op] : "?";
}
