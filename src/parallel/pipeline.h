/* Messages between the stages of a pipeline.
 *
 * Four ways: in and out, forward and backward. Each has a communicator and a stream of its own, on
 * which messages wait for each other and for nothing else, so that computation never waits for a
 * message to leave, and no order of sends and receives can lock up: what one way carries is sent
 * and received in the same order, that of the schedule. */
#ifndef WEFT_PARALLEL_PIPELINE_H
#define WEFT_PARALLEL_PIPELINE_H

#include <weft/device.h>

#include "parallel/mesh.h"
#include "parallel/timeline.h"

typedef enum weft_way {
    WEFT_FORWARD_IN, /* activations from the stage before */
    WEFT_FORWARD_OUT,
    WEFT_BACKWARD_IN, /* gradients from the stage after */
    WEFT_BACKWARD_OUT,
    WEFT_WAYS
} weft_way_t;

typedef struct weft_pipeline {
    weft_stream_h stream; /* of computation */
    weft_timeline_t *timeline;
    struct {
        weft_comm_h comm; /* NULL: there is no such neighbour */
        int peer;
        weft_stream_h comm_stream;
        weft_event_h ready;
    } ways[WEFT_WAYS];
} weft_pipeline_t;

/* Destroy after failures too; the mesh and the timeline (may be NULL) must outlive it. */
weft_status_t weft__pipeline_create(const weft_mesh_t *mesh, weft_stream_h stream,
                                    weft_timeline_t *timeline, weft_pipeline_t *pipeline);
void weft__pipeline_destroy(weft_pipeline_t *pipeline);

/* Receive into `buffer` once `free` has passed; `arrived` is recorded when the message is there. */
weft_status_t weft__pipeline_receive(weft_pipeline_t *pipeline, weft_way_t way, void *buffer,
                                     size_t count, weft_dtype_t type, weft_event_h free,
                                     weft_event_h arrived);

/* Send `buffer` as the compute stream has left it; `sent` is recorded when it may be
 * overwritten. */
weft_status_t weft__pipeline_send(weft_pipeline_t *pipeline, weft_way_t way, const void *buffer,
                                  size_t count, weft_dtype_t type, weft_event_h sent);

#endif
