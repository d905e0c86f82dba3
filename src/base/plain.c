#include "base/plain.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Bytes of the character at `at`, which may be shown; 0: its first byte may not. */
static int shown(const char *at, size_t left, bool lines)
{
    const unsigned char *bytes = (const unsigned char *)at;
    int length = weft__utf8_length(bytes, left);
    bool control = length == 1
                       ? (bytes[0] < 0x20 && !(lines && bytes[0] == '\n')) || bytes[0] == 0x7F
                       : length == 2 && bytes[0] == 0xC2 && bytes[1] < 0xA0; /* C1 */
    return control ? 0 : length;
}

char *weft__plain(char *out, size_t room, const char *text, bool lines)
{
    size_t used = 0;
    for (size_t left = strlen(text); left > 0;) {
        char escape[8];
        int length = shown(text, left, lines), taken = length > 0 ? length : 1;
        const char *from = text;
        if (length == 0) {
            length = snprintf(escape, sizeof(escape), "\\x%02x", (unsigned char)*text);
            from = escape;
        }
        if (used + (size_t)length + 1 > room) {
            break;
        }
        memcpy(out + used, from, (size_t)length);
        used += (size_t)length;
        text += taken;
        left -= (size_t)taken;
    }
    out[used] = '\0';
    return out;
}

bool weft__is_plain(const char *text, bool lines)
{
    for (size_t left = strlen(text); left > 0;) {
        int length = shown(text, left, lines);
        if (length == 0) {
            return false;
        }
        text += length;
        left -= (size_t)length;
    }
    return true;
}
