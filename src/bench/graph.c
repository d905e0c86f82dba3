#include "bench/graph.h"

#include "device/cuda.h"

weft_status_t weft__bench_record(weft_stream_h stream)
{
    return weft__cuda_status(
        weft__cuda()->graph_begin(weft__cuda_stream_gpu(stream), weft__cuda_stream(stream)),
        "recording a graph");
}

weft_status_t weft__bench_recorded(weft_stream_h stream, void **graph_p)
{
    return weft__cuda_status(
        weft__cuda()->graph_end(weft__cuda_stream_gpu(stream), weft__cuda_stream(stream), graph_p),
        "recording a graph");
}

weft_status_t weft__bench_replay(void *graph, weft_stream_h stream)
{
    return weft__cuda_status(
        weft__cuda()->graph_launch(weft__cuda_stream_gpu(stream), graph, weft__cuda_stream(stream)),
        "replaying a graph");
}

void weft__bench_forget(void *graph, weft_stream_h stream)
{
    weft__cuda()->graph_destroy(weft__cuda_stream_gpu(stream), graph);
}
