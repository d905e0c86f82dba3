#include "gpu/twins.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "base/half.h"
#include "base/rng.h"

enum { MOST_TENSORS = 24, MOST_NAMES = 96 };

typedef struct tensor {
    twin_t twin;
    int64_t count;
    size_t bytes; /* on the device */
    weft_dtype_t type;
    bool result;
    void *start, *found; /* at the start; after the first run on the device */
} tensor_t;

typedef struct name {
    const char *name;
    weft_dtype_t type;
    double largest, rms; /* worst differences: of one element, of the whole */
    int cases, failed;
} name_t;

static tensor_t tensors[MOST_TENSORS];
static int tensor_count;
static name_t names[MOST_NAMES];
static int name_count;
static char note[200];
static double magnitude; /* of this case: twin_magnitude */

void twin_check(weft_status_t status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", note, weft_last_error());
        exit(1);
    }
}

void twin_note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(note, sizeof(note), format, list);
    va_end(list);
}

/* ---- making ------------------------------------------------------------------------------- */

static void *get(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    if (memory == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return memory;
}

static tensor_t *add(int64_t count, size_t host_bytes, size_t device_bytes, weft_dtype_t type)
{
    if (tensor_count == MOST_TENSORS) {
        fprintf(stderr, "too many tensors\n");
        exit(1);
    }
    tensor_t *tensor = &tensors[tensor_count++];
    *tensor = (tensor_t){.count = count, .bytes = device_bytes, .type = type};
    tensor->twin.host = get(host_bytes);
    twin_check(weft_malloc(&tensor->twin.device, device_bytes + 256));
    return tensor;
}

static void start(tensor_t *tensor)
{
    tensor->start = get(tensor->bytes);
    memcpy(tensor->start, tensor->twin.host, tensor->bytes);
    twin_check(weft_memcpy(tensor->twin.device, tensor->start, tensor->bytes, NULL));
}

void twin_magnitude(double given)
{
    magnitude = given;
}

void twin_restart(const void *host)
{
    for (int i = 0; i < tensor_count; i++) {
        if (tensors[i].twin.host == host) {
            free(tensors[i].start);
            start(&tensors[i]);
        }
    }
}

static double value(const void *data, int64_t i, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return ((const double *)data)[i];
    case WEFT_F32:
        return (double)((const float *)data)[i];
    case WEFT_BF16:
        return (double)weft__bf16_to_f32(((const uint16_t *)data)[i]);
    case WEFT_F16:
        return (double)weft__f16_to_f32(((const uint16_t *)data)[i]);
    default:
        return (double)((const int32_t *)data)[i];
    }
}

static void set_value(void *data, int64_t i, weft_dtype_t type, double x)
{
    if (type == WEFT_BF16) {
        ((uint16_t *)data)[i] = weft__f32_to_bf16((float)x);
    } else if (type == WEFT_F16) {
        ((uint16_t *)data)[i] = weft__f32_to_f16((float)x);
    } else if (type == WEFT_F32) {
        ((float *)data)[i] = (float)x;
    } else {
        ((double *)data)[i] = x;
    }
}

void twin_put(const void *host, int64_t at, double x)
{
    for (int i = 0; i < tensor_count; i++) {
        if (tensors[i].twin.host == host) {
            set_value(tensors[i].twin.host, at, tensors[i].type, x);
        }
    }
    twin_restart(host);
}

static tensor_t *make(twins_t *twins, int64_t count, weft_dtype_t type, double scale)
{
    size_t bytes = (size_t)count * weft_dtype_size(type);
    tensor_t *tensor = add(count, bytes, bytes, type);
    uint64_t key = weft__rng_at(twins->seed++, 7);
    for (int64_t i = 0; i < count; i++) {
        double x = scale * ((double)(weft__rng_at(key, (uint64_t)i) >> 11) * 0x1p-52 - 1.0);
        set_value(tensor->twin.host, i, type, x);
    }
    start(tensor);
    return tensor;
}

twin_t twin_input(twins_t *twins, int64_t count, weft_dtype_t type, double scale)
{
    return make(twins, count, type, scale)->twin;
}

twin_t twin_result(twins_t *twins, int64_t count, weft_dtype_t type, double scale)
{
    tensor_t *tensor = make(twins, count, type, scale);
    tensor->result = true;
    return tensor->twin;
}

twin_t twin_numbers(twins_t *twins, int64_t count, int32_t from, int32_t to)
{
    size_t bytes = (size_t)count * sizeof(int32_t);
    tensor_t *tensor = add(count, bytes, bytes, WEFT_I32);
    uint64_t key = weft__rng_at(twins->seed++, 7);
    for (int64_t i = 0; i < count; i++) {
        ((int32_t *)tensor->twin.host)[i] = from + (int32_t)(weft__rng_at(key, (uint64_t)i) %
                                                             (uint64_t)(to - from));
    }
    start(tensor);
    return tensor->twin;
}

twin_t twin_work(twins_t *twins, size_t host_bytes, size_t device_bytes)
{
    (void)twins;
    tensor_t *tensor = add(0, host_bytes, device_bytes, WEFT_U8);
    twin_check(weft_memset(tensor->twin.device, 0xee, device_bytes, NULL));
    return tensor->twin;
}

/* ---- comparing ---------------------------------------------------------------------------- */

static name_t *find_name(const char *name, weft_dtype_t type)
{
    for (int i = 0; i < name_count; i++) {
        if (strcmp(names[i].name, name) == 0 && names[i].type == type) {
            return &names[i];
        }
    }
    if (name_count == MOST_NAMES) {
        fprintf(stderr, "too many functions\n");
        exit(1);
    }
    names[name_count] = (name_t){.name = name, .type = type};
    return &names[name_count++];
}

/* What has no size is the same or it is not: an infinity of the same sign, or any NaN. */
static double difference_of(double expected, double found)
{
    bool same = expected == found || (isnan(expected) && isnan(found));
    return same ? 0.0 : fabs(expected - found);
}

/* Of one tensor: largest difference and root of the mean square, both relative to the largest value
 * and the root of the mean square of what is expected and of what it was made of. */
static void differences(const tensor_t *tensor, double *largest_p, double *rms_p, int64_t *where_p)
{
    double most = 1e-30, apart = 0, apart_squares = 0;
    double squares = 1e-30 + magnitude * magnitude * (double)tensor->count;
    for (int64_t i = 0; i < tensor->count; i++) {
        double expected = value(tensor->twin.host, i, tensor->type);
        double difference = difference_of(expected, value(tensor->found, i, tensor->type));
        if (!(difference <= apart)) { /* nan too */
            apart = difference;
            *where_p = i;
        }
        apart_squares += difference * difference;
        if (isfinite(expected)) {
            most = fabs(expected) > most ? fabs(expected) : most;
            squares += expected * expected;
        }
    }
    *largest_p = apart / (most + magnitude);
    *rms_p = sqrt(apart_squares / squares);
}

static bool same_bits(const tensor_t *tensor)
{
    return memcmp(tensor->twin.host, tensor->found, tensor->bytes) == 0;
}

/* 2^-6 for bf16. f16 has three digits more: an eighth of it. A limit of 0 is 0 for all. */
static double allowed_of(weft_dtype_t type, double limit)
{
    double digits = type == WEFT_BF16 ? 0x1p-6 : type == WEFT_F16 ? 0x1p-9 : 0;
    return limit == 0 || limit > digits ? limit : digits;
}

static void judge(tensor_t *tensor, int number, const char *function, double limit)
{
    name_t *name = find_name(function, tensor->type);
    double largest = 0, rms = 0, allowed = allowed_of(tensor->type, limit);
    int64_t where = 0;
    differences(tensor, &largest, &rms, &where);
    bool good = tensor->type == WEFT_F64 ? same_bits(tensor) || largest <= limit
                                         : largest <= allowed && rms <= allowed;
    name->cases++;
    name->largest = !(largest <= name->largest) ? largest : name->largest;
    name->rms = !(rms <= name->rms) ? rms : name->rms;
    if (!good) {
        name->failed++;
        printf("%s, %s: tensor %d (%s): element %lld is %g, expected %g; off by %.2g of the "
               "largest, %.2g in all\n",
               function, note, number, weft_dtype_name(tensor->type), (long long)where,
               value(tensor->found, where, tensor->type),
               value(tensor->twin.host, where, tensor->type), largest, rms);
    }
}

static void *read_back(const tensor_t *tensor)
{
    void *copy = get(tensor->bytes);
    twin_check(weft_memcpy(copy, tensor->twin.device, tensor->bytes, NULL));
    return copy;
}

void twin_compare(twins_t *twins, const char *name, double limit)
{
    twin_check(weft_stream_synchronize(twins->stream));
    for (int i = 0; i < tensor_count; i++) {
        if (tensors[i].result) {
            tensors[i].found = read_back(&tensors[i]);
            judge(&tensors[i], i, name, limit);
        }
        if (tensors[i].start != NULL) {
            twin_check(
                weft_memcpy(tensors[i].twin.device, tensors[i].start, tensors[i].bytes, NULL));
        }
    }
}

void twin_repeat(twins_t *twins, const char *name)
{
    twin_check(weft_stream_synchronize(twins->stream));
    for (int i = 0; i < tensor_count; i++) {
        if (tensors[i].result) {
            void *again = read_back(&tensors[i]);
            if (memcmp(again, tensors[i].found, tensors[i].bytes) != 0) {
                find_name(name, tensors[i].type)->failed++;
                printf("%s, %s: tensor %d has other bits in a second run\n", name, note, i);
            }
            free(again);
        }
        free(tensors[i].twin.host);
        free(tensors[i].start);
        free(tensors[i].found);
        twin_check(weft_free(tensors[i].twin.device));
    }
    tensor_count = 0;
    magnitude = 0;
}

int twin_summary(void)
{
    int failed = 0;
    printf("%-20s %5s %8s %10s %10s %7s\n", "function", "type", "tensors", "largest", "rms",
           "failed");
    for (int i = 0; i < name_count; i++) {
        printf("%-20s %5s %8d %10.2e %10.2e %7d\n", names[i].name, weft_dtype_name(names[i].type),
               names[i].cases, names[i].largest, names[i].rms, names[i].failed);
        failed += names[i].failed;
    }
    return failed;
}
