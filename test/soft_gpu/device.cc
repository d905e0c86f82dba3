/* See device.h. One lock for everything: it is held for moments, and what streams do is done
 * without it. */
#include "soft_gpu/device.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

typedef std::function<void()> work_fn;
typedef std::unique_lock<std::mutex> guard_t;

namespace
{

/* ---- what there is ------------------------------------------------------------------------ */

/* Held by all that name it: its handle, streams that are captured for it, events. */
struct graph {
    std::vector<work_fn> work; /* in the order of the calls, one that every stream's order allows */
    bool spoiled = false;
    std::vector<struct stream *> streams; /* that are captured for it */
    bool ended = false;
};

/* The moment an event was recorded at; events are recorded anew, while others wait for the moment
 * before. */
struct moment {
    bool passed = false;
    std::shared_ptr<graph> within; /* recorded while this was captured */
    std::chrono::steady_clock::time_point at;
};

struct event {
    std::shared_ptr<moment> last; /* NULL: not recorded yet, which counts as passed */
};

struct stream {
    std::deque<work_fn> queue;
    std::condition_variable more;
    bool busy = false, closing = false;
    std::shared_ptr<graph> captured;
};

struct memory {
    size_t bytes;
    int gpu; /* -1: pinned host memory */
    int fd;  /* of device memory of this process, or -1 */
    uint64_t serial; /* tells it from what was at the same place before */
    int opened = 0;
    std::string handle; /* of memory of other processes */
};

/* Never destroyed: streams may work when the process ends. */
struct machine {
    std::mutex lock;
    std::condition_variable changed; /* a stream has done something */
    std::map<const char *, memory> all; /* by address */
    size_t used = 0;
    uint64_t made = 0;

    /* Every allocation has a file descriptor. */
    machine()
    {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
            limit.rlim_cur = limit.rlim_max;
            setrlimit(RLIMIT_NOFILE, &limit);
        }
    }
};

} // namespace

static machine &m()
{
    static machine *all = new machine;
    return *all;
}

static const size_t total_bytes = (size_t)8 << 30, own_bytes = (size_t)64 << 20;

static int gpus()
{
    const char *text = getenv("SOFT_GPUS"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && atoi(visible) < 0) {
        return 0;
    }
    return text && atoi(text) > 0 ? atoi(text) : 1;
}

static const char *error_text(int error)
{
    switch (error) {
    case SOFT_NO_MEMORY:
        return "out of memory";
    case SOFT_NO_DEVICE:
        return "no CUDA-capable device is detected";
    case SOFT_ILLEGAL_ADDRESS:
        return "an illegal memory access was encountered";
    case SOFT_CAPTURED:
        return "operation not permitted when stream is capturing";
    case SOFT_CAPTURE_ENDED:
        return "operation failed due to a previous error during capture";
    case SOFT_CAPTURE_APART:
        return "dependency created on uncaptured work in another stream";
    default:
        return "invalid argument";
    }
}

static int count(int *count_p)
{
    *count_p = gpus();
    return *count_p > 0 ? 0 : SOFT_NO_DEVICE;
}

static int props(int gpu, weft_cuda_props_t *props_p)
{
    *props_p = weft_cuda_props_t();
    snprintf(props_p->name, sizeof(props_p->name), "soft GPU");
    snprintf(props_p->pci, sizeof(props_p->pci), "0000:%02x:00.0", gpu + 1);
    props_p->uuid[0] = (uint8_t)(gpu + 1);
    props_p->memory = total_bytes;
    props_p->major = 9;
    props_p->sms = 8;
    props_p->l2 = 1 << 20;
    props_p->mps = getenv("CUDA_MPS_PIPE_DIRECTORY") == nullptr;
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* With the lock: what `ptr` is in, or the end. */
static std::map<const char *, memory>::iterator find(const void *ptr)
{
    auto it = m().all.upper_bound((const char *)ptr);
    if (it == m().all.begin()) {
        return m().all.end();
    }
    --it;
    return (const char *)ptr < it->first + it->second.bytes ? it : m().all.end();
}

static int memory_left(int, size_t *free_p, size_t *total_p)
{
    guard_t guard(m().lock);
    *total_p = total_bytes;
    *free_p = total_bytes - own_bytes - m().used;
    return 0;
}

static int alloc(int gpu, void **ptr_p, size_t bytes)
{
    size_t whole = (bytes + 4095) / 4096 * 4096;
    guard_t guard(m().lock);
    if (bytes == 0 || whole > total_bytes - own_bytes - m().used) {
        return bytes == 0 ? SOFT_INVALID : SOFT_NO_MEMORY;
    }
    int fd = memfd_create("soft-gpu", MFD_CLOEXEC);
    void *at = fd >= 0 && ftruncate(fd, (off_t)whole) == 0
                   ? mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    if (at == MAP_FAILED) {
        close(fd);
        return SOFT_NO_MEMORY;
    }
    m().all[(char *)at] = {bytes, gpu, fd, ++m().made, 0, ""};
    m().used += whole;
    *ptr_p = at;
    return 0;
}

static int release(int, void *ptr)
{
    guard_t guard(m().lock);
    auto it = m().all.find((char *)ptr);
    if (ptr == nullptr || it == m().all.end() || it->second.fd < 0) {
        return ptr == nullptr ? 0 : SOFT_INVALID;
    }
    size_t whole = (it->second.bytes + 4095) / 4096 * 4096;
    munmap(ptr, whole);
    close(it->second.fd);
    m().used -= whole;
    m().all.erase(it);
    return 0;
}

static int host_register(void *ptr, size_t bytes)
{
    guard_t guard(m().lock);
    if (find(ptr) != m().all.end()) {
        return SOFT_INVALID;
    }
    m().all[(char *)ptr] = {bytes, -1, -1, 0, 0, ""};
    return 0;
}

static int host_unregister(void *ptr)
{
    guard_t guard(m().lock);
    auto it = m().all.find((char *)ptr);
    if (it == m().all.end() || it->second.gpu != -1) {
        return SOFT_INVALID;
    }
    m().all.erase(it);
    return 0;
}

static int host_alloc(void **ptr_p, size_t bytes)
{
    *ptr_p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *ptr_p ? host_register(*ptr_p, bytes) : SOFT_NO_MEMORY;
}

static int host_release(void *ptr)
{
    int error = host_unregister(ptr);
    if (error == 0) {
        free(ptr);
    }
    return error;
}

static int range(int, const void *ptr, void **base_p, size_t *bytes_p, bool *shares_p)
{
    guard_t guard(m().lock);
    auto it = find(ptr);
    if (it == m().all.end()) {
        return SOFT_INVALID;
    }
    *base_p = (void *)it->first;
    *bytes_p = it->second.bytes;
    *shares_p = it->second.fd >= 0;
    return 0;
}

static int where(const void *ptr, int *gpu_p)
{
    guard_t guard(m().lock);
    auto it = find(ptr);
    *gpu_p = it == m().all.end() ? -2 : it->second.gpu;
    return 0;
}

bool soft_reaches(const void *ptr, size_t bytes)
{
    guard_t guard(m().lock);
    return ptr == nullptr || bytes == 0 ||
           (find(ptr) != m().all.end() && find(ptr) == find((const char *)ptr + bytes - 1));
}

/* ---- memory of other processes ------------------------------------------------------------ */

namespace
{

struct handle {
    pid_t pid;
    int fd, gpu;
    size_t bytes;
    uint64_t serial;
};

} // namespace

static int ipc_export(int, void *ptr, uint8_t out[WEFT_CUDA_IPC_BYTES])
{
    guard_t guard(m().lock);
    auto it = m().all.find((char *)ptr);
    if (it == m().all.end() || it->second.fd < 0) {
        return SOFT_INVALID;
    }
    handle h = {getpid(), it->second.fd, it->second.gpu, it->second.bytes, it->second.serial};
    memset(out, 0, WEFT_CUDA_IPC_BYTES);
    memcpy(out, &h, sizeof(h));
    return 0;
}

static int ipc_open(int, const uint8_t in[WEFT_CUDA_IPC_BYTES], void **ptr_p)
{
    std::string name((const char *)in, WEFT_CUDA_IPC_BYTES);
    handle h;
    char path[64];
    memcpy(&h, in, sizeof(h));
    guard_t guard(m().lock);
    for (auto &entry : m().all) {
        if (entry.second.handle == name) {
            entry.second.opened++;
            *ptr_p = (void *)entry.first;
            return 0;
        }
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h.pid, h.fd);
    int fd = h.pid == getpid() ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *at = fd >= 0 ? mmap(nullptr, h.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    close(fd);
    if (at == MAP_FAILED) {
        return SOFT_INVALID;
    }
    m().all[(char *)at] = {h.bytes, h.gpu, -1, h.serial, 1, name};
    *ptr_p = at;
    return 0;
}

static int ipc_close(int, void *ptr)
{
    guard_t guard(m().lock);
    auto it = m().all.find((char *)ptr);
    if (it == m().all.end() || it->second.opened == 0) {
        return SOFT_INVALID;
    }
    if (--it->second.opened == 0) {
        munmap(ptr, it->second.bytes);
        m().all.erase(it);
    }
    return 0;
}

static int reach(int, int, bool *reached_p)
{
    *reached_p = true;
    return 0;
}

/* ---- streams ------------------------------------------------------------------------------ */

static void serve(stream *s)
{
    guard_t guard(m().lock);
    for (;;) {
        s->more.wait(guard, [&] { return !s->queue.empty() || s->closing; });
        if (s->queue.empty()) {
            break;
        }
        work_fn work = std::move(s->queue.front());
        s->queue.pop_front();
        s->busy = true;
        guard.unlock();
        work();
        work = nullptr;
        guard.lock();
        s->busy = false;
        m().changed.notify_all();
    }
    delete s;
}

static int stream_create(int, void **stream_p)
{
    stream *s = new stream;
    std::thread(serve, s).detach();
    *stream_p = s;
    return 0;
}

static int stream_destroy(int, void *stream_)
{
    stream *s = (stream *)stream_;
    guard_t guard(m().lock);
    if (s->captured) { /* its graph must not name it any more */
        auto &all = s->captured->streams;
        all.erase(std::remove(all.begin(), all.end(), s), all.end());
        s->captured = nullptr;
    }
    s->closing = true;
    s->more.notify_one();
    return 0;
}

namespace
{

struct thread_stream {
    void *s = nullptr;
    ~thread_stream()
    {
        if (s) {
            stream_destroy(0, s);
        }
    }
};

} // namespace

static stream *of(void *stream_)
{
    static thread_local thread_stream own;
    if (stream_ != WEFT_CUDA_THREAD_STREAM) {
        return (stream *)stream_;
    }
    if (!own.s) {
        stream_create(0, &own.s);
    }
    return (stream *)own.s;
}

/* With the lock. */
static void push(stream *s, work_fn work)
{
    s->queue.push_back(std::move(work));
    s->more.notify_one();
}

int soft_enqueue(void *stream_, work_fn work)
{
    stream *s = of(stream_);
    guard_t guard(m().lock);
    if (s->captured) {
        s->captured->work.push_back(std::move(work));
    } else {
        push(s, std::move(work));
    }
    return 0;
}

/* With the lock. What asks or waits for a captured stream spoils the capture. */
static int refuse_captured(stream *s)
{
    if (!s->captured) {
        return 0;
    }
    s->captured->spoiled = true;
    return SOFT_CAPTURED;
}

static int stream_sync(int, void *stream_)
{
    stream *s = of(stream_);
    guard_t guard(m().lock);
    int error = refuse_captured(s);
    if (error == 0) {
        m().changed.wait(guard, [&] { return s->queue.empty() && !s->busy; });
    }
    return error;
}

static int stream_idle(int, void *stream_, bool *idle_p)
{
    stream *s = of(stream_);
    guard_t guard(m().lock);
    *idle_p = s->queue.empty() && !s->busy;
    return refuse_captured(s);
}

static int stream_call(int, void *stream_, void (*fn)(void *arg), void *arg)
{
    return soft_enqueue(stream_, [=] { fn(arg); });
}

/* As CUDA has it: memory of a program's is read before this returns, and written when it does. */
static int copy(int gpu, void *dst, const void *src, size_t bytes, void *stream_)
{
    bool capturing;
    {
        guard_t guard(m().lock);
        capturing = of(stream_)->captured != nullptr;
    }
    if (capturing || (soft_reaches(src, bytes) && soft_reaches(dst, bytes))) {
        return soft_enqueue(stream_, [=] { memmove(dst, src, bytes); });
    }
    if (soft_reaches(dst, bytes)) {
        auto data = std::make_shared<std::string>((const char *)src, bytes);
        return soft_enqueue(stream_, [=] { memcpy(dst, data->data(), bytes); });
    }
    soft_enqueue(stream_, [=] { memmove(dst, src, bytes); });
    return stream_sync(gpu, stream_);
}

static int fill(int, void *dst, int value, size_t bytes, void *stream_)
{
    if (!soft_reaches(dst, bytes)) {
        return SOFT_INVALID;
    }
    return soft_enqueue(stream_, [=] { memset(dst, value, bytes); });
}

static int relax()
{
    return 0;
}

static int stream_capturing(int, void *stream_, bool *capturing_p)
{
    guard_t guard(m().lock);
    *capturing_p = of(stream_)->captured != nullptr;
    return 0;
}

/* ---- graphs ------------------------------------------------------------------------------- */

static int graph_begin(int, void *stream_)
{
    stream *s = of(stream_);
    guard_t guard(m().lock);
    if (s->captured) {
        return SOFT_CAPTURED;
    }
    s->captured = std::make_shared<graph>();
    s->captured->streams.push_back(s);
    return 0;
}

static int graph_end(int, void *stream_, void **graph_p)
{
    guard_t guard(m().lock);
    std::shared_ptr<graph> g = of(stream_)->captured;
    if (!g) {
        return SOFT_INVALID;
    }
    for (stream *s : g->streams) {
        s->captured = nullptr;
    }
    g->streams.clear();
    g->ended = true;
    if (g->spoiled) {
        return SOFT_CAPTURE_ENDED;
    }
    *graph_p = new std::shared_ptr<graph>(g);
    return 0;
}

static int graph_launch(int, void *graph_, void *stream_)
{
    for (const work_fn &work : (*(std::shared_ptr<graph> *)graph_)->work) {
        soft_enqueue(stream_, work);
    }
    return 0;
}

static int graph_destroy(int, void *graph_)
{
    delete (std::shared_ptr<graph> *)graph_; /* what was launched has copies */
    return 0;
}

/* ---- events ------------------------------------------------------------------------------- */

static int event_create(int, void **event_p)
{
    *event_p = new event;
    return 0;
}

static int event_destroy(int, void *event_)
{
    delete (event *)event_;
    return 0;
}

static void pass(const std::shared_ptr<moment> &when)
{
    guard_t guard(m().lock);
    when->passed = true;
    when->at = std::chrono::steady_clock::now();
    m().changed.notify_all();
}

static int event_record(int, void *event_, void *stream_)
{
    stream *s = of(stream_);
    auto when = std::make_shared<moment>();
    guard_t guard(m().lock);
    when->within = s->captured;
    ((event *)event_)->last = when;
    if (!s->captured) {
        push(s, [=] { pass(when); });
    }
    return 0;
}

static int stream_wait(int, void *stream_, void *event_)
{
    stream *s = of(stream_);
    guard_t guard(m().lock);
    std::shared_ptr<moment> when = ((event *)event_)->last;
    if (!when) {
        return 0;
    }
    if (when->within) {
        if (!s->captured && !when->within->ended) { /* becomes a part of the graph */
            s->captured = when->within;
            when->within->streams.push_back(s);
        }
        return s->captured == when->within ? 0 : SOFT_CAPTURE_APART;
    }
    if (s->captured) {
        s->captured->spoiled = true;
        return SOFT_CAPTURE_APART;
    }
    push(s, [=] {
        guard_t inner(m().lock);
        m().changed.wait(inner, [&] { return when->passed; });
    });
    return 0;
}

static int event_done(int, void *event_, bool *done_p)
{
    guard_t guard(m().lock);
    const std::shared_ptr<moment> &when = ((event *)event_)->last;
    if (when && when->within) {
        when->within->spoiled = true;
        return SOFT_CAPTURED;
    }
    *done_p = !when || when->passed;
    return 0;
}

static int event_sync(int, void *event_)
{
    guard_t guard(m().lock);
    std::shared_ptr<moment> when = ((event *)event_)->last;
    if (when && when->within) {
        return SOFT_CAPTURED;
    }
    m().changed.wait(guard, [&] { return !when || when->passed; });
    return 0;
}

static int event_elapsed(int, void *start, void *end, float *ms_p)
{
    guard_t guard(m().lock);
    const std::shared_ptr<moment> &a = ((event *)start)->last, &b = ((event *)end)->last;
    if (!a || !b || !a->passed || !b->passed) {
        return SOFT_INVALID;
    }
    *ms_p = std::chrono::duration<float, std::milli>(b->at - a->at).count();
    return 0;
}

/* ---- what launches ask for, and the module ------------------------------------------------ */

#include <cuda_runtime.h>

#include "comm/cuda/launch.h"

cudaError_t cudaSetDevice(int gpu)
{
    return gpu >= 0 && gpu < gpus() ? cudaSuccess : SOFT_INVALID;
}

cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least_p, int *greatest_p)
{
    *least_p = *greatest_p = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream_)
{
    return stream_sync(0, stream_);
}

extern "C" const int weft_cuda_version = 12000; /* it needs none */

extern "C" const weft_cuda_device_ops_t weft_cuda_device = {
    WEFT_CUDA_ABI, error_text,    count,        props,        memory_left,      alloc,
    release,       host_alloc,    host_release, host_register, host_unregister, range,
    where,         copy,          fill,
    stream_create, stream_destroy, stream_sync, stream_idle,  stream_wait,      stream_call,
    relax,         stream_capturing, graph_begin, graph_end,  graph_launch,     graph_destroy,
    event_create,  event_destroy, event_record, event_done,   event_sync,       event_elapsed,
    ipc_export,    ipc_open,      ipc_close,    reach,
};
