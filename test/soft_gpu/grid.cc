/* See grid.h. */
#include "soft_gpu/grid.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <sched.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define WARP 32
#define STACK_BYTES 32768
#define STACK_STEP                                                                                 \
    (STACK_BYTES + 320) /* so that their ends do not meet in the same lines of a cache */

/* ---- switching stacks --------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Leave what a function has to keep on this stack, and go on where `to` was left. */
extern "C" void soft_switch(void **from_p, void *to);
asm(R"(
.text
.type soft_switch, @function
soft_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size soft_switch, .-soft_switch
)");

typedef void *context_t;

static void switch_to(context_t *from, context_t *to)
{
    soft_switch(from, *to);
}

static void prepare(context_t *context, char *stack, void (*start)())
{
    /* As if it had called soft_switch: where to return to, then six registers. The 8 bytes above
     * keep the alignment that a function finds when it is called. */
    void **top = (void **)(stack + STACK_BYTES) - 2;
    *top = (void *)start;
    for (int i = 0; i < 6; i++) {
        *--top = nullptr;
    }
    *context = top;
}
#else
#include <ucontext.h>

typedef ucontext_t context_t;

static void switch_to(context_t *from, context_t *to)
{
    swapcontext(from, to);
}

static void prepare(context_t *context, char *stack, void (*start)())
{
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = STACK_BYTES;
    context->uc_link = nullptr;
    makecontext(context, start, 0);
}
#endif

/* ---- a block ------------------------------------------------------------------------------ */

namespace
{

/* Threads that wait for each other, again and again. */
struct meeting {
    unsigned arrived = 0;
    uint64_t round = 0; /* how often all have come */
};

struct gpu_thread {
    context_t context;
    soft_place place;
    const meeting *waits = nullptr; /* until its round is no longer `since` */
    uint64_t since = 0;
    bool ended = false;
};

struct warp {
    meeting all;
    uint64_t value[2][WARP]; /* by rounds, since a thread may be a round ahead of one that has yet
                                to read */
};

struct block {
    const std::function<void()> *kernel;
    std::vector<gpu_thread> threads;
    std::vector<warp> warps;
    meeting all;
    unsigned alive;
    unsigned polls; /* threads that found nothing, in this turn */
    gpu_thread *self;
    context_t outside;
    char *stacks = nullptr; /* of all threads */
    size_t stack_bytes = 0;

    void make_room(unsigned n)
    {
        if (n <= threads.size()) {
            return;
        }
        drop_stacks();
        threads.resize(n);
        warps.resize((n + WARP - 1) / WARP);
        stack_bytes = (size_t)n * STACK_STEP;
        stacks = (char *)mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) {
            perror("soft GPU: no memory for stacks");
            abort();
        }
    }

    void drop_stacks()
    {
        if (stacks) {
            munmap(stacks, stack_bytes);
        }
    }

    ~block()
    {
        drop_stacks();
    }
};

} // namespace

__thread const soft_place *soft_self;
static __thread block *here;

/* The block of this thread of the operating system; its room is kept for the next one. */
static block *own_block()
{
    static thread_local block own;
    return &own;
}

static void leave()
{
    switch_to(&here->self->context, &here->outside);
}

static void start()
{
    (*here->kernel)();
    here->self->ended = true;
    here->alive--;
    if (here->alive > 0 &&
        here->all.arrived == here->alive) { /* those at a barrier need not wait for this one */
        here->all.arrived = 0;
        here->all.round++;
    }
    leave();
}

static void meet(meeting *m, unsigned all)
{
    if (++m->arrived == all) {
        m->arrived = 0;
        m->round++;
        return;
    }
    here->self->waits = m;
    here->self->since = m->round;
    leave();
    here->self->waits = nullptr;
}

/* Nobody got any further: others have to, in other threads and processes. */
static void rest(unsigned *turns)
{
    if (++*turns < 20) {
        sched_yield();
    } else {
        usleep(*turns < 200 ? 50 : 500);
    }
}

static void run_block(unsigned index, unsigned blocks, unsigned threads,
                      const std::function<void()> &kernel)
{
    unsigned idle = 0;
    here = own_block();
    here->make_room(threads);
    here->kernel = &kernel;
    here->alive = threads;
    here->all = meeting();
    for (unsigned i = 0; i < threads; i++) {
        gpu_thread *t = &here->threads[i];
        t->place = {{i}, {index}, {threads}, {blocks}};
        t->ended = false;
        here->warps[i / WARP].all = meeting();
        prepare(&t->context, here->stacks + (size_t)i * STACK_STEP, start);
    }
    while (here->alive > 0) {
        unsigned ran = 0;
        here->polls = 0;
        for (unsigned i = 0; i < threads; i++) {
            gpu_thread *t = &here->threads[i];
            if (t->ended || (t->waits && t->waits->round == t->since)) {
                continue;
            }
            here->self = t;
            soft_self = &t->place;
            ran++;
            switch_to(&here->outside, &t->context);
        }
        if (ran > here->polls) {
            idle = 0;
        } else {
            rest(&idle);
        }
    }
}

/* ---- threads for blocks ------------------------------------------------------------------- */

namespace
{

struct crew {
    std::mutex lock;
    std::condition_variable work;
    std::deque<std::function<void()>> jobs;
    unsigned idle = 0;
};

} // namespace

static crew &workers()
{
    static crew *all = new crew; /* never destroyed: some may run when the process ends */
    return *all;
}

static void work_for_ever()
{
    crew &c = workers();
    std::unique_lock<std::mutex> guard(c.lock);
    for (;;) {
        c.idle++;
        c.work.wait(guard, [&] { return !c.jobs.empty(); });
        c.idle--;
        std::function<void()> job = std::move(c.jobs.front());
        c.jobs.pop_front();
        guard.unlock();
        job();
        guard.lock();
    }
}

/* Every job has a thread at once: blocks that wait for each other must all run. */
static void hand_out(std::function<void()> job)
{
    crew &c = workers();
    std::lock_guard<std::mutex> guard(c.lock);
    c.jobs.push_back(std::move(job));
    if (c.jobs.size() > c.idle) {
        std::thread(work_for_ever).detach();
    } else {
        c.work.notify_one();
    }
}

void soft_run_grid(unsigned blocks, unsigned threads, const std::function<void()> &kernel)
{
    std::mutex lock;
    std::condition_variable ended;
    unsigned left = blocks - 1;
    for (unsigned b = 1; b < blocks; b++) {
        hand_out([&, b] {
            run_block(b, blocks, threads, kernel);
            std::lock_guard<std::mutex> guard(lock);
            left--;
            ended.notify_one();
        });
    }
    run_block(0, blocks, threads, kernel);
    std::unique_lock<std::mutex> guard(lock);
    ended.wait(guard, [&] { return left == 0; });
}

/* ---- for kernels -------------------------------------------------------------------------- */

void soft_sync_block()
{
    meet(&here->all, here->alive);
}

uint64_t soft_shuffle(uint64_t value, unsigned from)
{
    unsigned me = here->self->place.thread.x;
    warp *w = &here->warps[me / WARP];
    uint64_t *values = w->value[w->all.round % 2];
    values[me % WARP] = value;
    meet(&w->all, WARP);
    return values[from];
}

bool soft_any(bool value)
{
    unsigned me = here->self->place.thread.x;
    warp *w = &here->warps[me / WARP];
    const uint64_t *values = w->value[w->all.round % 2];
    soft_shuffle(value, 0);
    for (int i = 0; i < WARP; i++) {
        if (values[i]) {
            return true;
        }
    }
    return false;
}

void soft_poll()
{
    here->polls++;
    leave();
}
