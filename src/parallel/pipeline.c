/* Messages between the stages of a pipeline: see pipeline.h. */
#include "parallel/pipeline.h"

#include "base/log.h"
#include "device/device.h"

weft_status_t weft__pipeline_create(const weft_mesh_t *mesh, weft_stream_h stream,
                                    weft_timeline_t *timeline, weft_pipeline_t *pipeline)
{
    *pipeline = (weft_pipeline_t){
        .stream = stream,
        .timeline = timeline,
        .ways = {[WEFT_FORWARD_IN] = {mesh->before.forward, 0, NULL, NULL},
                 [WEFT_FORWARD_OUT] = {mesh->after.forward, 1, NULL, NULL},
                 [WEFT_BACKWARD_IN] = {mesh->after.backward, 1, NULL, NULL},
                 [WEFT_BACKWARD_OUT] = {mesh->before.backward, 0, NULL, NULL}}};
    for (int i = 0; i < WEFT_WAYS; i++) {
        if (pipeline->ways[i].comm != NULL) {
            WEFT_TRY(weft_event_create(&pipeline->ways[i].ready));
            WEFT_TRY(weft__comm_stream_create(&pipeline->ways[i].comm_stream));
        }
    }
    return WEFT_OK;
}

void weft__pipeline_destroy(weft_pipeline_t *pipeline)
{
    for (int i = 0; i < WEFT_WAYS; i++) {
        weft_stream_destroy(pipeline->ways[i].comm_stream);
        weft_event_destroy(pipeline->ways[i].ready);
    }
    *pipeline = (weft_pipeline_t){0};
}

weft_status_t weft__pipeline_receive(weft_pipeline_t *pipeline, weft_way_t way, void *buffer,
                                     size_t count, weft_dtype_t type, weft_event_h free,
                                     weft_event_h arrived)
{
    weft_stream_h comm_stream = pipeline->ways[way].comm_stream;
    WEFT_TRY(weft_stream_wait(comm_stream, free));
    WEFT_TRY(weft_recv(buffer, count, type, pipeline->ways[way].peer, pipeline->ways[way].comm,
                       comm_stream));
    return weft_event_record(arrived, comm_stream);
}

weft_status_t weft__pipeline_send(weft_pipeline_t *pipeline, weft_way_t way, const void *buffer,
                                  size_t count, weft_dtype_t type, weft_event_h sent)
{
    weft_stream_h comm_stream = pipeline->ways[way].comm_stream;
    WEFT_TRY(weft_event_record(pipeline->ways[way].ready, pipeline->stream));
    WEFT_TRY(weft_stream_wait(comm_stream, pipeline->ways[way].ready));
    int span = weft__timeline_begin(
        pipeline->timeline, way == WEFT_FORWARD_OUT ? WEFT_TRACK_FORWARD : WEFT_TRACK_BACKWARD,
        way == WEFT_FORWARD_OUT ? "activations" : "gradients",
        (int64_t)(count * weft_dtype_size(type)), comm_stream);
    WEFT_TRY(weft_send(buffer, count, type, pipeline->ways[way].peer, pipeline->ways[way].comm,
                       comm_stream));
    weft__timeline_end(pipeline->timeline, span, comm_stream);
    return weft_event_record(sent, comm_stream);
}
