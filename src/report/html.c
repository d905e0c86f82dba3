#include "report/html.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

/* Characters that HTML does not allow, whichever way they are written. */
static bool is_forbidden(uint32_t point)
{
    bool control = (point < 0x20 && point != '\t' && point != '\n') ||
                   (point >= 0x7F && point <= 0x9F);
    bool no_character = (point & 0xFFFE) == 0xFFFE || (point >= 0xFDD0 && point <= 0xFDEF);
    return control || no_character;
}

static void put_character(FILE *out, const unsigned char *at, int length)
{
    switch (*at) {
    case '&':
        fputs("&amp;", out);
        return;
    case '<':
        fputs("&lt;", out);
        return;
    case '>':
        fputs("&gt;", out);
        return;
    case '"':
        fputs("&quot;", out);
        return;
    case '\'':
        fputs("&#39;", out);
        return;
    default:
        fwrite(at, 1, (size_t)length, out);
    }
}

/* Returns the bytes that were used. */
static size_t put_next(FILE *out, const unsigned char *at, size_t room)
{
    int length = weft__utf8_length(at, room);
    if (length == 0 || is_forbidden(weft__utf8_decode(at, length))) {
        fputs(REPLACEMENT, out);
        return length == 0 ? 1 : (size_t)length;
    }
    put_character(out, at, length);
    return (size_t)length;
}

void weft__html_bytes(FILE *out, const char *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        at += put_next(out, (const unsigned char *)bytes + at, count - at);
    }
}

void weft__html_text(FILE *out, const char *text)
{
    if (text != NULL) {
        weft__html_bytes(out, text, strlen(text));
    }
}

int weft__html_length(const char *text)
{
    int count = 0;
    size_t size = text != NULL ? strlen(text) : 0;
    for (size_t at = 0; at < size && count < INT_MAX; count++) {
        int length = weft__utf8_length((const unsigned char *)text + at, size - at);
        at += length == 0 ? 1 : (size_t)length;
    }
    return count;
}

void weft__html_cut(FILE *out, const char *text, int most)
{
    if (weft__html_length(text) <= most) {
        weft__html_text(out, text);
        return;
    }
    size_t size = strlen(text), at = 0;
    for (int i = 0; i + 1 < most; i++) {
        at += put_next(out, (const unsigned char *)text + at, size - at);
    }
    fputs("\xE2\x80\xA6", out);
}

/* ---- tables --------------------------------------------------------------------------------- */

void weft__html_table(FILE *out, const char *const *columns, int count)
{
    fputs("<div class=\"wide\"><table><thead><tr>", out);
    for (int i = 0; i < count; i++) {
        bool number = columns[i][0] == '#';
        fputs(number ? "<th class=\"n\" scope=\"col\">" : "<th scope=\"col\">", out);
        weft__html_text(out, columns[i] + number);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
}

void weft__html_row(FILE *out)
{
    fputs("<tr>", out);
}

void weft__html_row_end(FILE *out)
{
    fputs("</tr>\n", out);
}

void weft__html_cell(FILE *out, const char *text)
{
    fputs("<td>", out);
    weft__html_text(out, text);
    fputs("</td>", out);
}

void weft__html_number(FILE *out, double value, const char *shown)
{
    if (!isfinite(value)) {
        fputs("<td class=\"n\"></td>", out);
        return;
    }
    fprintf(out, "<td class=\"n\" data-v=\"%.6g\">", value);
    weft__html_text(out, shown);
    fputs("</td>", out);
}

void weft__html_table_end(FILE *out)
{
    fputs("</tbody></table></div>\n", out);
}
