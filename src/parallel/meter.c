/* How long the compute stream spends in something: see meter.h. */
#include "parallel/meter.h"

#include <stdlib.h>

void weft__meter_open(weft_meter_t *meter, weft_stream_h stream, weft_timeline_t *timeline)
{
    *meter = (weft_meter_t){.stream = stream, .timeline = timeline};
}

void weft__meter_close(weft_meter_t *meter)
{
    for (int i = 0; i < meter->room; i++) {
        weft_event_destroy(meter->pairs[i].begin);
        weft_event_destroy(meter->pairs[i].end);
    }
    free(meter->pairs);
    *meter = (weft_meter_t){0};
}

static int more_room(weft_meter_t *meter)
{
    weft_mark_pair_t pair = {0};
    weft_mark_pair_t *pairs = realloc(meter->pairs, (size_t)(meter->room + 1) * sizeof(*pairs));
    if (pairs == NULL) {
        return -1;
    }
    meter->pairs = pairs;
    if (weft_event_create(&pair.begin) != WEFT_OK) {
        return -1;
    }
    if (weft_event_create(&pair.end) != WEFT_OK) {
        weft_event_destroy(pair.begin);
        return -1;
    }
    meter->pairs[meter->room++] = pair;
    return 0;
}

static int begin_span(const weft_meter_t *meter, weft_stretch_t kind)
{
    switch (kind) {
    case WEFT_STRETCH_TENSOR:
        return weft__timeline_begin(meter->timeline, WEFT_TRACK_TENSOR, "exchange of activations",
                                    -1, meter->stream);
    case WEFT_STRETCH_PIPELINE:
        return weft__timeline_begin(meter->timeline, WEFT_TRACK_STAGE, "wait for a stage", -1,
                                    meter->stream);
    default:
        return -1;
    }
}

int weft__meter_begin(weft_meter_t *meter, weft_stretch_t kind)
{
    if (meter->count == meter->room && more_room(meter) < 0) {
        return -1;
    }
    int number = meter->count++;
    meter->pairs[number].kind = kind;
    if (weft_event_record(meter->pairs[number].begin, meter->stream) != WEFT_OK) {
        meter->count--;
        return -1;
    }
    meter->pairs[number].span = begin_span(meter, kind);
    return number;
}

void weft__meter_end(weft_meter_t *meter, int number)
{
    if (number >= 0) {
        weft__timeline_end(meter->timeline, meter->pairs[number].span, meter->stream);
        weft_event_record(meter->pairs[number].end, meter->stream);
    }
}

void weft__meter_take(weft_meter_t *meter, double seconds[WEFT_STRETCHES])
{
    for (int i = 0; i < WEFT_STRETCHES; i++) {
        seconds[i] = 0.0;
    }
    for (int i = 0; i < meter->count; i++) {
        double ms;
        const weft_mark_pair_t *pair = &meter->pairs[i];
        if (weft_event_elapsed(pair->begin, pair->end, &ms) == WEFT_OK) {
            seconds[pair->kind] += ms / 1e3;
        }
    }
    meter->count = 0;
}
