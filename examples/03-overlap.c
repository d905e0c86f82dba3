/* Communication beside computation: an all-reduce on a stream while this thread works on.
 *
 *     weft run -n 2 ./03-overlap                                                              */
#include <stdio.h>
#include <weft/weft.h>

#define COUNT ((size_t)1 << 20)
#define TRY(call)                                                                                  \
    if ((call) != WEFT_OK) {                                                                       \
        fprintf(stderr, "%s\n", weft_last_error());                                                \
        return 1;                                                                                  \
    }

int main(void)
{
    weft_comm_h comm;
    weft_stream_h stream;
    weft_event_h start, end;
    float *gradient, *host;
    int rank;
    TRY(weft_comm_init_job(&comm, NULL));
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_stream_create(&stream));
    TRY(weft_event_create(&start));
    TRY(weft_event_create(&end));
    TRY(weft_malloc((void **)&gradient, COUNT * sizeof(float)));
    TRY(weft_host_malloc((void **)&host, COUNT * sizeof(float)));
    for (size_t i = 0; i < COUNT; i++) {
        host[i] = (float)rank;
    }
    TRY(weft_memcpy(gradient, host, COUNT * sizeof(float), stream));
    TRY(weft_event_record(start, stream));
    TRY(weft_allreduce(gradient, gradient, COUNT, WEFT_F32, WEFT_AVG, comm, stream));
    TRY(weft_event_record(end, stream));
    TRY(weft_memcpy(host, gradient, COUNT * sizeof(float), stream));

    double work = 0; /* does not touch the gradient: the stream owns it until it has passed */
    for (int i = 1; i < 3000000; i++) {
        work += 1.0 / i;
    }
    TRY(weft_stream_synchronize(stream)); /* an error of the all-reduce is returned here */
    double ms;
    TRY(weft_event_elapsed(start, end, &ms));
    printf("rank %d: average %g after %.2f ms beside other work (%.3f)\n", rank, host[0], ms, work);

    weft_free(gradient);
    weft_host_free(host);
    weft_event_destroy(start);
    weft_event_destroy(end);
    weft_stream_destroy(stream);
    weft_comm_destroy(comm);
    return 0;
}
