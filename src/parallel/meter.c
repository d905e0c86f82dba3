/* How long the compute stream spends in something: see meter.h. */
#include "parallel/meter.h"

#include <stdlib.h>

void weft__meter_open(weft_meter_t *meter, weft_stream_h stream, weft_timeline_t *timeline)
{
    *meter = (weft_meter_t){.stream = stream, .timeline = timeline};
}

void weft__meter_close(weft_meter_t *meter)
{
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < meter->steps[s].room; i++) {
            weft_event_destroy(meter->steps[s].pairs[i].begin);
            weft_event_destroy(meter->steps[s].pairs[i].end);
        }
        free(meter->steps[s].pairs);
    }
    *meter = (weft_meter_t){0};
}

void weft__meter_step(weft_meter_t *meter, int step)
{
    meter->now = step;
    meter->steps[step].count = 0;
}

static int more_room(weft_meter_t *meter)
{
    weft_mark_pair_t pair = {0}, *pairs = meter->steps[meter->now].pairs;
    int room = meter->steps[meter->now].room;
    pairs = realloc(pairs, (size_t)(room + 1) * sizeof(*pairs));
    if (pairs == NULL) {
        return -1;
    }
    meter->steps[meter->now].pairs = pairs;
    if (weft_event_create(&pair.begin) != WEFT_OK) {
        return -1;
    }
    if (weft_event_create(&pair.end) != WEFT_OK) {
        weft_event_destroy(pair.begin);
        return -1;
    }
    pairs[room] = pair;
    meter->steps[meter->now].room++;
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
    int number = meter->steps[meter->now].count;
    if (number == meter->steps[meter->now].room && more_room(meter) < 0) {
        return -1;
    }
    weft_mark_pair_t *pair = &meter->steps[meter->now].pairs[number];
    if (weft_event_record(pair->begin, meter->stream) != WEFT_OK) {
        return -1;
    }
    pair->kind = kind;
    pair->span = begin_span(meter, kind);
    meter->steps[meter->now].count++;
    return number;
}

void weft__meter_end(weft_meter_t *meter, int number)
{
    if (number >= 0) {
        const weft_mark_pair_t *pair = &meter->steps[meter->now].pairs[number];
        weft__timeline_end(meter->timeline, pair->span, meter->stream);
        weft_event_record(pair->end, meter->stream);
    }
}

void weft__meter_take(const weft_meter_t *meter, int step, double seconds[WEFT_STRETCHES])
{
    for (int i = 0; i < WEFT_STRETCHES; i++) {
        seconds[i] = 0.0;
    }
    for (int i = 0; i < meter->steps[step].count; i++) {
        double ms;
        const weft_mark_pair_t *pair = &meter->steps[step].pairs[i];
        if (weft_event_elapsed(pair->begin, pair->end, &ms) == WEFT_OK) {
            seconds[pair->kind] += ms / 1e3;
        }
    }
}
