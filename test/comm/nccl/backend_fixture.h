/* What tests of the nccl backend share: a fake NCCL and a fake GPU, and a real store. All ranks are
 * in this process; one that dies is one whose connection to the store ends. */
#ifndef WEFT_TEST_COMM_NCCL_BACKEND_FIXTURE_H
#define WEFT_TEST_COMM_NCCL_BACKEND_FIXTURE_H

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "boot/store_fixture.h"
#include "comm/nccl/fake_nccl.h"
#include "comm/nccl/host_gpu.h"
#include "comm/nccl/member.h"

#define MOST 4
#define SRC ((char *)0x1000)
#define DST ((char *)0x200000)

static fake_nccl_t *fake;
static weft_nccl_binding_t binding = {.device = 0, .gpu = 0, .ops = &host_gpu};
static struct weft_comm comms[MOST], children[MOST];
static weft_rendezvous_t road;

static inline weft_nccl_member_t *member_of(int rank)
{
    return comms[rank].ctx;
}

static inline void nap(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static inline void assert_text(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("\"%s\" has no \"%s\"", text, part);
    }
}

static inline void assert_said(const char *part)
{
    assert_text(weft_last_error(), part);
}

/* ---- a GPU that ends what is aborted ---------------------------------------------------- */

static pthread_t gpu;
static _Atomic int gpu_stop, living; /* ranks: their calls end when all of them have aborted */

static inline void *run_gpu(void *arg)
{
    (void)arg;
    while (!atomic_load(&gpu_stop)) {
        int most = atomic_load(&living);
        if (most > 0 && atomic_load(&fake->aborted) >= most) {
            atomic_store(&host_gpu_passed, HOST_GPU_ALL);
        }
        nap(1);
    }
    return NULL;
}

static inline int set_up(void **state)
{
    (void)state;
    static int number;
    fake->fails = NULL;
    fake->text = "";
    atomic_store(&fake->stalls, NULL);
    atomic_store(&fake->stalled, 0);
    atomic_store(&fake->async, WEFT_NCCL_SUCCESS);
    atomic_store(&fake->aborted, 0);
    atomic_store(&fake->destroyed, 0);
    fake->log[0] = host_gpu_log[0] = '\0';
    fake->logged = 0;
    host_gpu_fails = NULL;
    atomic_store(&host_gpu_passed, HOST_GPU_ALL);
    memset(comms, 0, sizeof(comms));
    memset(children, 0, sizeof(children));
    road = (weft_rendezvous_t){.host = HOST, .port = port};
    memcpy(road.secret, secret, sizeof(secret));
    snprintf(road.key, sizeof(road.key), "comm/%d", ++number);
    atomic_store(&gpu_stop, 0);
    atomic_store(&living, 0);
    return pthread_create(&gpu, NULL, run_gpu, NULL);
}

static inline int tear_down(void **state)
{
    (void)state;
    atomic_store(&fake->stalls, NULL);
    for (int r = 0; r < MOST; r++) {
        if (children[r].ctx) {
            weft__backend_nccl.close(children[r].ctx);
        }
        if (comms[r].ctx) {
            weft__backend_nccl.close(comms[r].ctx);
        }
    }
    atomic_store(&gpu_stop, 1);
    pthread_join(gpu, NULL);
    for (int i = 0;
         i < 1000 && (atomic_load(&fake->communicators) > 0 || atomic_load(&host_gpu_things) > 0);
         i++) {
        nap(5);
    }
    assert_int_equal(atomic_load(&fake->communicators), 0);
    assert_int_equal(atomic_load(&host_gpu_things), 0);
    return 0;
}

static inline weft_status_t enter(int rank, int size, int timeout_ms)
{
    comms[rank].timeout_ms = timeout_ms;
    weft_nccl_member_t *member = weft__nccl_member_create(&comms[rank], &road, &binding, rank,
                                                          size);
    assert_non_null(member);
    return weft__nccl_member_enter(member);
}

static inline void join(int size, int timeout_ms)
{
    for (int r = 0; r < size; r++) {
        assert_int_equal(enter(r, size, timeout_ms), WEFT_OK);
    }
    for (int r = 0; r < size; r++) {
        assert_int_equal(weft__nccl_comm_meet(&comms[r]), WEFT_OK);
    }
    atomic_store(&living, size);
}

/* What the communicator says is wrong, once it does. */
static inline const char *wait_error(struct weft_comm *comm)
{
    const char *text = "";
    for (int i = 0; i < 3000 && weft__backend_nccl.error(comm->ctx, &text) == WEFT_OK; i++) {
        nap(10);
    }
    return text;
}

/* From here on the GPU finishes nothing. */
static inline void block_gpu(void)
{
    atomic_store(&host_gpu_passed, atomic_load(&host_gpu_recorded));
}

/* ---- calls in threads of their own ------------------------------------------------------ */

typedef struct caller {
    pthread_t thread;
    int rank;
    weft_coll_t coll;
    weft_status_t status;
    char text[WEFT_ERROR_TEXT];
    double ms;
} caller_t;

static inline weft_call_t call_of(weft_coll_t coll)
{
    return (weft_call_t){.coll = coll, .src = SRC, .dst = DST, .count = 8, .type = WEFT_F32};
}

static inline weft_status_t make_call(int rank, weft_coll_t coll)
{
    weft_call_t call = call_of(coll);
    call.root = coll == WEFT_COLL_SEND ? 1 - rank : 0;
    return weft__backend_nccl.launch(comms[rank].ctx, &call, 1, NULL);
}

static inline void *run_caller(void *arg)
{
    caller_t *caller = arg;
    uint64_t start = weft__now_ns();
    caller->status = make_call(caller->rank, caller->coll);
    snprintf(caller->text, sizeof(caller->text), "%s", weft_last_error());
    caller->ms = ms_since(start);
    return NULL;
}

static inline void start_call(caller_t *caller, int rank, weft_coll_t coll)
{
    *caller = (caller_t){.rank = rank, .coll = coll};
    pthread_create(&caller->thread, NULL, run_caller, caller);
}

static inline void expect(caller_t *caller, weft_status_t status, const char *part)
{
    pthread_join(caller->thread, NULL);
    if (caller->status != status) {
        fail_msg("rank %d got %s, not %s: %s", caller->rank, weft_status_name(caller->status),
                 weft_status_name(status), caller->text);
    }
    assert_text(caller->text, part);
}

static inline void leave(int rank)
{
    weft__backend_nccl.close(comms[rank].ctx);
    comms[rank].ctx = NULL;
    atomic_fetch_sub(&living, 1);
}

/* As if its process had ended. */
static inline void die(int rank)
{
    atomic_fetch_sub(&living, 1);
    weft_nccl_member_t *member = member_of(rank);
    weft__nccl_watch_stop(member);
    weft__store_close(member->store);
    member->store = NULL;
}

/* ---- running ---------------------------------------------------------------------------- */

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* Whether the fake NCCL and GPU are there. */
static inline bool load_fakes(void)
{
    char module[1024];
    snprintf(module, sizeof(module), "%s/test/comm/nccl/fake_cuda.so", getenv("WEFT_BUILD"));
    setenv("WEFT_CUDA_MODULE", module, 1);
    setenv("WEFT_DEVICE", "cuda", 1);
    fake = fake_nccl_load();
    return fake != NULL;
}

#endif
