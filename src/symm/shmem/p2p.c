/* wait_until and test: of one variable, and of arrays (all, any, some).
 *
 * One variable is compared in its own type. Arrays go through one set of functions for all types:
 * an element is read as a 64-bit number with or without sign. */
#include "symm/shmem/wait.h"

#include <limits.h>

#include "symm/shmem/api.h"

static _Noreturn void bad_cmp(const char *call, int cmp)
{
    weft__shmem_die("%s on PE %d: cmp %d is none of SHMEM_CMP_EQ, NE, GT, GE, LT, LE", call,
                    weft__shmem.me, cmp);
}

#define COMPARE(a, cmp, b, call)                                                                   \
    ((cmp) == SHMEM_CMP_EQ   ? (a) == (b)                                                          \
     : (cmp) == SHMEM_CMP_NE ? (a) != (b)                                                          \
     : (cmp) == SHMEM_CMP_GE ? (a) >= (b)                                                          \
     : (cmp) == SHMEM_CMP_GT ? (a) > (b)                                                           \
     : (cmp) == SHMEM_CMP_LE ? (a) <= (b)                                                          \
     : (cmp) == SHMEM_CMP_LT ? (a) < (b)                                                           \
                             : (bad_cmp(call, cmp), 0))

/* What a test has found; `none` is a miss. */
#define HIT(found, none)                                                                           \
    ({                                                                                             \
        __typeof__(found) found_ = (found);                                                        \
        if (found_ == (none)) {                                                                    \
            weft__shmem_missed(CALL);                                                              \
        }                                                                                          \
        found_;                                                                                    \
    })

/* ---- one variable ------------------------------------------------------------------------- */

/* Acquire: partner of whatever store is waited for, and of the fence or the release before it. */
#define WAIT_WHILE(condition)                                                                      \
    weft_shmem_waiter_t waiter = {.pe = WEFT_SHMEM_ANYBODY};                                       \
    weft__shmem_check(ivar, sizeof(*ivar), CALL);                                                  \
    while (condition) {                                                                            \
        weft__shmem_pause(&waiter, CALL);                                                          \
    }
#define NOW __atomic_load_n(ivar, __ATOMIC_ACQUIRE)

#define DEFINE_ONE(name, type)                                                                     \
    DEFINE(void, name##_wait_until, type *ivar, int cmp, type cmp_value){WAIT_WHILE(!COMPARE(      \
        NOW, cmp, cmp_value, CALL))} DEFINE(int, name##_test, type *ivar, int cmp, type cmp_value) \
    {                                                                                              \
        weft__shmem_check(ivar, sizeof(*ivar), CALL);                                              \
        return HIT(COMPARE(NOW, cmp, cmp_value, CALL), 0);                                         \
    }                                                                                              \
    DEFINE(void, name##_wait, type *ivar, type cmp_value)                                          \
    {                                                                                              \
        WAIT_WHILE(NOW == cmp_value)                                                               \
    }
SHMEM_TYPES_WAIT(DEFINE_ONE)

DEFINE(void, wait_until, long *ivar, int cmp,
       long cmp_value){WAIT_WHILE(!COMPARE(NOW, cmp, cmp_value, CALL))}

DEFINE(void, wait, long *ivar, long cmp_value){WAIT_WHILE(NOW == cmp_value)}

DEFINE(uint64_t, signal_fetch, const uint64_t *sig_addr)
{
    weft__shmem_check(sig_addr, sizeof(*sig_addr), CALL);
    return __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE);
}

DEFINE(uint64_t, signal_wait_until, uint64_t *sig_addr, int cmp, uint64_t cmp_value)
{
    weft_shmem_waiter_t waiter = {.pe = WEFT_SHMEM_ANYBODY};
    uint64_t now;
    weft__shmem_check(sig_addr, sizeof(*sig_addr), CALL);
    while (now = __atomic_load_n(sig_addr, __ATOMIC_ACQUIRE), !COMPARE(now, cmp, cmp_value, CALL)) {
        weft__shmem_pause(&waiter, CALL);
    }
    return now;
}

/* ---- arrays ------------------------------------------------------------------------------- */

typedef struct set {
    const void *ivars;
    size_t nelems;
    const int *status; /* NULL: all count */
    const void *values;
    bool vector; /* a value for each, not one for all */
    size_t size; /* of an element */
    bool with_sign;
    int cmp;
    const char *call;
} set_t;

static bool counts(const set_t *set, size_t i)
{
    return set->status == NULL || set->status[i] == 0;
}

/* Element `i` of an array of `size` bytes each, as 64 bits. */
static uint64_t widen(const void *array, size_t i, const set_t *set)
{
    /* Acquire: as for one variable. */
    if (set->size == 8) {
        return __atomic_load_n((const uint64_t *)array + i, __ATOMIC_ACQUIRE);
    }
    if (set->size == 4) {
        uint32_t now = __atomic_load_n((const uint32_t *)array + i, __ATOMIC_ACQUIRE);
        return set->with_sign ? (uint64_t)(int32_t)now : now;
    }
    uint16_t now = __atomic_load_n((const uint16_t *)array + i, __ATOMIC_ACQUIRE);
    return set->with_sign ? (uint64_t)(int16_t)now : now;
}

static bool holds(const set_t *set, size_t i)
{
    uint64_t now = widen(set->ivars, i, set);
    uint64_t value = widen(set->values, set->vector ? i : 0, set);
    return set->with_sign ? COMPARE((int64_t)now, set->cmp, (int64_t)value, set->call)
                          : COMPARE(now, set->cmp, value, set->call);
}

static void check_set(const set_t *set)
{
    if (set->nelems > 0) {
        weft__shmem_check(set->ivars, weft__shmem_bytes(set->nelems, set->size), set->call);
    }
}

static bool is_empty(const set_t *set)
{
    for (size_t i = 0; i < set->nelems; i++) {
        if (counts(set, i)) {
            return false;
        }
    }
    return true;
}

static int test_all(const set_t *set)
{
    check_set(set);
    for (size_t i = 0; i < set->nelems; i++) {
        if (counts(set, i) && !holds(set, i)) {
            return 0;
        }
    }
    return 1;
}

static void wait_all(const set_t *set)
{
    check_set(set);
    for (size_t i = 0; i < set->nelems; i++) {
        weft_shmem_waiter_t waiter = {.pe = WEFT_SHMEM_ANYBODY};
        while (counts(set, i) && !holds(set, i)) {
            weft__shmem_pause(&waiter, set->call);
        }
    }
}

/* Each call starts where the one before ended, so that every element gets its turn. */
static size_t test_any(const set_t *set)
{
    static _Thread_local size_t turn;
    check_set(set);
    for (size_t k = 0; k < set->nelems; k++) {
        size_t i = (turn + k) % set->nelems;
        if (counts(set, i) && holds(set, i)) {
            turn = i + 1;
            return i;
        }
    }
    return SIZE_MAX;
}

static size_t wait_any(const set_t *set)
{
    weft_shmem_waiter_t waiter = {.pe = WEFT_SHMEM_ANYBODY};
    size_t found;
    if (is_empty(set)) {
        return SIZE_MAX;
    }
    while ((found = test_any(set)) == SIZE_MAX) {
        weft__shmem_pause(&waiter, set->call);
    }
    return found;
}

static size_t test_some(const set_t *set, size_t *indices)
{
    size_t found = 0;
    check_set(set);
    for (size_t i = 0; i < set->nelems; i++) {
        if (counts(set, i) && holds(set, i)) {
            indices[found++] = i;
        }
    }
    return found;
}

static size_t wait_some(const set_t *set, size_t *indices)
{
    weft_shmem_waiter_t waiter = {.pe = WEFT_SHMEM_ANYBODY};
    size_t found;
    if (is_empty(set)) {
        return 0;
    }
    while ((found = test_some(set, indices)) == 0) {
        weft__shmem_pause(&waiter, set->call);
    }
    return found;
}

#define SET(type, compared, several)                                                               \
    &(const set_t)                                                                                 \
    {                                                                                              \
        .ivars = ivars, .nelems = nelems, .status = status, .values = compared, .vector = several, \
        .size = sizeof(type), .with_sign = (type)-1 < (type)1, .cmp = cmp, .call = CALL            \
    }

#define DEFINE_SET(name, type, suffix, parameter, compared, several)                               \
    DEFINE(void, name##_wait_until_all##suffix, type *ivars, size_t nelems, const int *status,     \
           int cmp, type parameter)                                                                \
    {                                                                                              \
        wait_all(SET(type, compared, several));                                                    \
    }                                                                                              \
    DEFINE(size_t, name##_wait_until_any##suffix, type *ivars, size_t nelems, const int *status,   \
           int cmp, type parameter)                                                                \
    {                                                                                              \
        return wait_any(SET(type, compared, several));                                             \
    }                                                                                              \
    DEFINE(size_t, name##_wait_until_some##suffix, type *ivars, size_t nelems, size_t *indices,    \
           const int *status, int cmp, type parameter)                                             \
    {                                                                                              \
        return wait_some(SET(type, compared, several), indices);                                   \
    }                                                                                              \
    DEFINE(int, name##_test_all##suffix, type *ivars, size_t nelems, const int *status, int cmp,   \
           type parameter)                                                                         \
    {                                                                                              \
        return HIT(test_all(SET(type, compared, several)), 0);                                     \
    }                                                                                              \
    DEFINE(size_t, name##_test_any##suffix, type *ivars, size_t nelems, const int *status,         \
           int cmp, type parameter)                                                                \
    {                                                                                              \
        return HIT(test_any(SET(type, compared, several)), SIZE_MAX);                              \
    }                                                                                              \
    DEFINE(size_t, name##_test_some##suffix, type *ivars, size_t nelems, size_t *indices,          \
           const int *status, int cmp, type parameter)                                             \
    {                                                                                              \
        return HIT(test_some(SET(type, compared, several), indices), 0);                           \
    }
#define DEFINE_SETS(name, type)                                                                    \
    DEFINE_SET(name, type, , cmp_value, &cmp_value, false)                                         \
    DEFINE_SET(name, type, _vector, *cmp_values, cmp_values, true)
SHMEM_TYPES_WAIT(DEFINE_SETS)
