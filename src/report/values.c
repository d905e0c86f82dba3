#include "report/values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/median.h"

static double number_of(const weft_json_value_t *value)
{
    double number = NAN;
    weft__json_to_double(value, &number);
    return isfinite(number) ? number : NAN;
}

double weft__value_number(const weft_json_value_t *object, const char *key)
{
    return number_of(weft__json_get(object, key));
}

const char *weft__value_text(const weft_json_value_t *object, const char *key)
{
    return weft__json_text(weft__json_get(object, key), "");
}

static const weft_json_value_t *container(const weft_json_value_t *object, const char *key,
                                          weft_json_kind_t kind)
{
    const weft_json_value_t *value = weft__json_get(object, key);
    return value != NULL && value->kind == kind && value->length > 0 ? value : NULL;
}

const weft_json_value_t *weft__value_array(const weft_json_value_t *object, const char *key)
{
    return container(object, key, WEFT_JSON_ARRAY);
}

const weft_json_value_t *weft__value_object(const weft_json_value_t *object, const char *key)
{
    return container(object, key, WEFT_JSON_OBJECT);
}

const char *weft__value_shown(const weft_json_value_t *value, char *room, size_t size)
{
    if (value == NULL || value->kind == WEFT_JSON_ARRAY || value->kind == WEFT_JSON_OBJECT) {
        return "";
    }
    if (value->kind == WEFT_JSON_STRING) {
        return value->as.text;
    }
    if (value->kind == WEFT_JSON_NUMBER) {
        snprintf(room, size, "%.*s", (int)value->length, value->as.text);
        return room;
    }
    return value->kind == WEFT_JSON_NULL ? "" : value->as.truth ? "yes" : "no";
}

weft_status_t weft__value_list(const weft_json_value_t *array, double **numbers_p, size_t *count_p)
{
    bool is_array = array != NULL && array->kind == WEFT_JSON_ARRAY;
    double *numbers = NULL;
    size_t count = 0;
    WEFT_TRY(weft__values_alloc(&numbers, is_array ? array->length : 0, sizeof(*numbers)));
    for (const weft_json_value_t *at = is_array ? weft__json_first(array) : NULL; at != NULL;
         at = weft__json_next(array, at)) {
        double number = number_of(at);
        if (!isnan(number)) {
            numbers[count++] = number;
        }
    }
    *numbers_p = numbers;
    *count_p = count;
    return WEFT_OK;
}

double weft__values_median(double *numbers, size_t count)
{
    return count == 0 ? NAN : weft__median(numbers, count);
}

weft_status_t weft__values_alloc(void *pointer_p, size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (memory == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu values of a report", count);
    }
    memcpy(pointer_p, &memory, sizeof(memory));
    return WEFT_OK;
}
