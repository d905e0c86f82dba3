#include "kernel/scale_cases.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel/reference.h"
#include <weft/weft.h>

enum { MOST = 70001, EDGE = 64, ROOM = MOST * 8 + 3 * EDGE };

static char wrong[400];

/* In a function that returns what was wrong. */
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            int end_ = snprintf(wrong, sizeof(wrong), "%s: ", #condition);                         \
            snprintf(wrong + end_, sizeof(wrong) - (size_t)end_, __VA_ARGS__);                     \
            return wrong;                                                                          \
        }                                                                                          \
    } while (0)
#define EXPECT_STATUS(call, expected)                                                              \
    do {                                                                                           \
        weft_status_t status_ = (call);                                                            \
        EXPECT(status_ == (expected), "%s is %s, not %s (%s)", #call, weft_status_name(status_),   \
               weft_status_name(expected), weft_last_error());                                     \
    } while (0)
#define EXPECT_OK(call) EXPECT_STATUS(call, WEFT_OK)

static struct {
    char *src, *dst; /* of the device */
    void *scalar;    /* of the device */
    char *in, *out, *want, *same;
    weft_stream_h stream;
} rig;

static const char *rig_open(void)
{
    EXPECT_OK(weft_malloc((void **)&rig.src, ROOM));
    EXPECT_OK(weft_malloc((void **)&rig.dst, ROOM));
    EXPECT_OK(weft_malloc(&rig.scalar, 8));
    EXPECT_OK(weft_stream_create(&rig.stream));
    rig.in = malloc(ROOM);
    rig.out = malloc(ROOM);
    rig.want = malloc(ROOM);
    rig.same = malloc(ROOM);
    EXPECT(rig.in && rig.out && rig.want && rig.same, "no memory");
    return NULL;
}

static const char *rig_close(void)
{
    EXPECT_OK(weft_stream_destroy(rig.stream));
    EXPECT_OK(weft_free(rig.src));
    EXPECT_OK(weft_free(rig.dst));
    EXPECT_OK(weft_free(rig.scalar));
    free(rig.in);
    free(rig.out);
    free(rig.want);
    free(rig.same);
    return NULL;
}

typedef struct scale_case {
    weft_dtype_t type;
    size_t count;
    size_t shift[2]; /* elements that dst and src lie above what is aligned */
    bool in_place, on_stream, device_scalar;
} scale_case_t;

/* rig.want becomes what the multiplication gives, with bytes around it that stay. */
static void expect_products(const scale_case_t *c, size_t at, void *scalar)
{
    size_t element = weft_dtype_size(c->type);
    const void *factors[] = {rig.in + at, rig.same};
    reference_fill(rig.in + at, c->count, c->type, c->count, 7);
    reference_fill(scalar, 1, c->type, c->count + 1, c->count % 5 == 1 ? 1 : 0);
    for (size_t i = 0; i < c->count; i++) {
        memcpy(rig.same + i * element, scalar, element);
    }
    reference_reduce(rig.want + at, factors, 2, c->count, c->type, WEFT_PROD);
}

static const char *try(const scale_case_t *c)
{
    size_t element = weft_dtype_size(c->type), bytes = c->count * element;
    size_t at = EDGE + c->shift[0] * element;
    char scalar[8];
    char *dst = rig.dst + at, *src = c->in_place ? dst : rig.src + EDGE + c->shift[1] * element;
    weft_stream_h stream = c->on_stream ? rig.stream : NULL;
    memset(rig.want, 0x5c, ROOM);
    expect_products(c, at, scalar);
    EXPECT_OK(weft_memset(rig.dst, 0x5c, at + bytes + EDGE, stream));
    EXPECT_OK(weft_memcpy(src, rig.in + at, bytes, stream));
    EXPECT_OK(weft_memcpy(rig.scalar, rig.same, element, stream));
    EXPECT_OK(
        weft_scale(dst, src, c->count, c->type, c->device_scalar ? rig.scalar : scalar, stream));
    memset(scalar, 0x11, sizeof(scalar)); /* it was read, wherever it was */
    EXPECT_OK(weft_memcpy(rig.out, rig.dst, at + bytes + EDGE, stream));
    EXPECT_OK(weft_stream_synchronize(stream));
    size_t first = reference_differs(rig.out + at, rig.want + at, c->count, c->type);
    EXPECT(first == c->count, "%zu %s, element %zu", c->count, weft_dtype_name(c->type), first);
    EXPECT(memcmp(rig.out, rig.want, at) == 0 &&
               memcmp(rig.out + at + bytes, rig.want + at + bytes, EDGE) == 0,
           "%zu %s: what is around", c->count, weft_dtype_name(c->type));
    return NULL;
}

const char *scale_values(void)
{
    static const size_t counts[] = {0, 1, 2, 7, 16, 17, 63, 1000, 4097, MOST};
    const char *why = rig_open();
    for (int t = 0; t < WEFT_DTYPE_COUNT && !why; t++) {
        for (unsigned i = 0; i < 10 * 8 && !why; i++) {
            scale_case_t c = {.type = (weft_dtype_t)t, .count = counts[i / 8]};
            c.in_place = i & 1;
            c.on_stream = i & 2;
            c.device_scalar = i & 4;
            c.shift[0] = (i / 8 + (unsigned)t) % 3;
            c.shift[1] = i / 8 % 2;
            why = try(&c);
        }
    }
    const char *closed = rig_close();
    return why ? why : closed;
}

static void nap(void *arg)
{
    (void)arg;
    usleep(50000);
}

/* On a stream that is held up: a scalar of the host is read at once, one of the device when its
 * turn comes, between the copies around it. */
const char *scale_order(void)
{
    float x[3] = {1, 2, 3}, factor = 2, two = 2, three = 3, out[3];
    weft_stream_h stream;
    char *device;
    EXPECT_OK(weft_stream_create(&stream));
    EXPECT_OK(weft_malloc((void **)&device, 1024));
    float *values = (float *)device, *scalar = (float *)(device + 512);
    EXPECT_OK(weft_memcpy(values, x, sizeof(x), stream));
    EXPECT_OK(weft_stream_call(stream, nap, NULL));
    EXPECT_OK(weft_scale(values, values, 3, WEFT_F32, &factor, stream));
    factor = 100;
    EXPECT_OK(weft_memcpy(scalar, &two, sizeof(two), stream));
    EXPECT_OK(weft_scale(values, values, 3, WEFT_F32, scalar, stream));
    EXPECT_OK(weft_memcpy(scalar, &three, sizeof(three), stream));
    EXPECT_OK(weft_scale(values, values, 3, WEFT_F32, scalar, stream));
    EXPECT_OK(weft_memcpy(out, values, sizeof(out), stream));
    EXPECT_OK(weft_stream_synchronize(stream));
    for (int i = 0; i < 3; i++) {
        EXPECT(out[i] == x[i] * 12, "element %d is %g", i, (double)out[i]);
    }
    EXPECT_OK(weft_free(device));
    EXPECT_OK(weft_stream_destroy(stream));
    return NULL;
}

const char *scale_arguments(void)
{
    float two = 2;
    char *memory;
    int capturing = 7;
    EXPECT_OK(weft_malloc((void **)&memory, 4096));
    EXPECT_STATUS(weft_scale(NULL, memory, 1, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    EXPECT_STATUS(weft_scale(memory, NULL, 1, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    EXPECT_STATUS(weft_scale(memory, memory, 1, WEFT_F32, NULL, NULL), WEFT_ERR_INVALID);
    EXPECT(strstr(weft_last_error(), "scalar is NULL"), "%s", weft_last_error());
    EXPECT_OK(weft_scale(NULL, NULL, 0, WEFT_F32, NULL, NULL));
    static const int types[] = {-1, WEFT_DTYPE_COUNT, 1000};
    for (int i = 0; i < 3; i++) {
        EXPECT_STATUS(weft_scale(memory, memory, 1, (weft_dtype_t)types[i], &two, NULL),
                      WEFT_ERR_INVALID);
        EXPECT(strstr(weft_last_error(), "unknown element type"), "%s", weft_last_error());
    }
    EXPECT_STATUS(weft_scale(memory, memory, SIZE_MAX, WEFT_F64, &two, NULL), WEFT_ERR_INVALID);
    EXPECT_STATUS(weft_scale(memory, memory, (size_t)1 << 61, WEFT_F64, &two, NULL),
                  WEFT_ERR_INVALID);
    EXPECT_STATUS(weft_scale(memory + 2, memory, 1, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    EXPECT_STATUS(weft_scale(memory, memory + 1, 1, WEFT_F16, &two, NULL), WEFT_ERR_INVALID);
    EXPECT_STATUS(weft_scale(memory, memory, 1, WEFT_F32, memory + 3, NULL), WEFT_ERR_INVALID);
    EXPECT(strstr(weft_last_error(), "not aligned"), "%s", weft_last_error());
    EXPECT_STATUS(weft_scale(memory + 8, memory, 4, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    EXPECT_STATUS(weft_scale(memory, memory + 8, 4, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    EXPECT(strstr(weft_last_error(), "overlap"), "%s", weft_last_error());
    EXPECT_OK(weft_scale(memory + 16, memory, 4, WEFT_F32, &two, NULL));
    EXPECT_STATUS(weft_stream_capturing(NULL, NULL), WEFT_ERR_INVALID);
    EXPECT_OK(weft_stream_capturing(NULL, &capturing));
    EXPECT(capturing == 0, "%d", capturing);
    EXPECT_OK(weft_free(memory));
    return NULL;
}
