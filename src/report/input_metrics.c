/* metrics.jsonl: one object per line and step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/input.h"

static const char *const keys[] = {
#define COLUMN_KEY(name, key) key,
    WEFT_COLUMN_TABLE(COLUMN_KEY)
#undef COLUMN_KEY
};

static weft_status_t grow(weft_input_t *input, size_t room)
{
    for (int i = 0; i < WEFT_COLUMN_COUNT; i++) {
        double *column = realloc(input->columns[i], room * sizeof(*column));
        if (column == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu steps of %s", room,
                              input->path);
        }
        input->columns[i] = column;
    }
    return WEFT_OK;
}

static weft_status_t add_line(weft_input_t *input, const weft_json_value_t *line, size_t number,
                              size_t *room)
{
    double step;
    if (!weft__json_to_double(weft__json_get(line, "step"), &step)) {
        return weft__fail(WEFT_ERR_INVALID, "%s, line %zu: there is no \"step\" in it", input->path,
                          number);
    }
    if (input->count == *room) {
        *room = *room == 0 ? 1024 : 2 * *room;
        WEFT_TRY(grow(input, *room));
    }
    for (int i = 0; i < WEFT_COLUMN_COUNT; i++) {
        double value = NAN;
        weft__json_to_double(weft__json_get(line, keys[i]), &value);
        input->columns[i][input->count] = isfinite(value) ? value : NAN;
    }
    input->count++;
    return WEFT_OK;
}

/* The sentence of the JSON reader speaks of its only line. */
static weft_status_t parse_line(const weft_input_t *input, const char *line, size_t length,
                                size_t number, weft_json_doc_t *doc_p)
{
    if (weft__json_parse(line, length, "it", doc_p) == WEFT_OK) {
        return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_INVALID, "%s, line %zu is no JSON object of a step", input->path,
                      number);
}

weft_status_t weft__input_metrics(weft_input_t *input, const char *text, size_t size)
{
    size_t room = 0, number = 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - (text + at)) : size - at;
        weft_json_doc_t doc;
        number++;
        if (length > 0) {
            weft_status_t status = parse_line(input, text + at, length, number, &doc);
            if (status != WEFT_OK && end == NULL && input->count > 0) {
                input->torn = true;
                break;
            }
            WEFT_TRY(status);
            status = add_line(input, doc.root, number, &room);
            weft__json_free(&doc);
            WEFT_TRY(status);
        }
        at += length + 1;
    }
    return input->count > 0 ? WEFT_OK
                            : weft__fail(WEFT_ERR_INVALID, "%s has no steps in it", input->path);
}
