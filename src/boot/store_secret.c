/* The secret of a job: made by the launcher, handed to its ranks through their environment. */
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "boot/store.h"

weft_status_t weft__secret_create(uint8_t secret[WEFT_SECRET_BYTES])
{
    return weft__random_bytes(secret, WEFT_SECRET_BYTES);
}

void weft__secret_print(const uint8_t secret[WEFT_SECRET_BYTES],
                        char hex[2 * WEFT_SECRET_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < WEFT_SECRET_BYTES; i++) {
        hex[2 * i] = digits[secret[i] >> 4];
        hex[2 * i + 1] = digits[secret[i] & 15];
    }
    hex[2 * WEFT_SECRET_BYTES] = '\0';
}

static int digit_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    if (digit >= 'A' && digit <= 'F') {
        return digit - 'A' + 10;
    }
    return -1;
}

weft_status_t weft__secret_parse(const char *hex, uint8_t secret[WEFT_SECRET_BYTES])
{
    uint8_t bytes[WEFT_SECRET_BYTES];
    bool good = hex != NULL && strlen(hex) == 2 * WEFT_SECRET_BYTES;
    for (int i = 0; good && i < WEFT_SECRET_BYTES; i++) {
        int high = digit_value(hex[2 * i]);
        int low = digit_value(hex[2 * i + 1]);
        good = high >= 0 && low >= 0;
        bytes[i] = good ? (uint8_t)(high << 4 | low) : 0;
    }
    if (!good) {
        /* the text itself stays out of the sentence: it may be most of a secret */
        return weft__fail(WEFT_ERR_INVALID, "store: a secret is %d hex digits; this one is not",
                          2 * WEFT_SECRET_BYTES);
    }
    memcpy(secret, bytes, sizeof(bytes));
    return WEFT_OK;
}
