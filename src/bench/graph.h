/* Graphs of calls, for benchmarks: recorded once from a stream, replayed as one. GPUs only. */
#ifndef WEFT_BENCH_GRAPH_H
#define WEFT_BENCH_GRAPH_H

#include <weft/weft.h>

/* Calls on the stream between these two go into the graph and are not run. */
weft_status_t weft__bench_record(weft_stream_h stream);
weft_status_t weft__bench_recorded(weft_stream_h stream, void **graph_p);

weft_status_t weft__bench_replay(void *graph, weft_stream_h stream);
void weft__bench_forget(void *graph, weft_stream_h stream);

#endif
