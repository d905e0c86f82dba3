#include "comm/matrix.h"

#include <math.h>
#include <stdlib.h>

#include "base/settings.h"
#include "comm/call.h"
#include "comm/data.h"
#include "comm/memory.h"
#include "comm/tuner.h"
#include "device/device.h"
#include "kernel/kernel.h"

#define GUARD 256 /* bytes around a buffer that nobody may touch */
#define SHIFT 32  /* room to start at odd elements */
#define POISON 0x5c

/* Memory from weft_malloc, from malloc, or different from rank to rank. */
enum { DEVICE, PLAIN, MIXED, KINDS };
static const char *const kind_names[KINDS] = {"device", "plain", "mixed"};

typedef struct matrix {
    team_t *team;
    weft_comm_h comms[WEFT_ALGO_COUNT];
    size_t room;           /* bytes of each buffer */
    buffer_t memory[2][2]; /* [DEVICE or PLAIN][source or destination] */
    unsigned cases;
} matrix_t;

typedef struct mcase {
    weft_coll_t coll;
    weft_algo_t algo;
    weft_dtype_t type;
    weft_op_t op;
    size_t count;
    bool in_place;
    int kind;
    int root;
} mcase_t;

/* Where a case has its data on this rank, as the host sees it. */
typedef struct place {
    const buffer_t *src_in, *dst_in;
    char *src, *dst;
    size_t block, src_bytes, dst_bytes;
    bool in_place;
    data_t data;
} place_t;

/* ---- set up ------------------------------------------------------------------------------ */

/* GPUs carry out all other algorithms as direct. */
static int algorithms(void)
{
    return weft__device_is_cuda() ? WEFT_ALGO_DIRECT + 1 : WEFT_ALGO_COUNT;
}

/* With WEFT_POOL=0 a short run is one under memcheck, where every buffer has bounds of its own.
 * That tool refuses what was mapped after a kernel had been launched, which ranks do with new
 * memory of others. So all memory is old there, and none is staged. */
static bool checks_bounds(void)
{
    return team_short() && !weft__settings()->pool;
}

static int kinds(void)
{
    return checks_bounds() ? DEVICE + 1 : KINDS;
}

/* Let all ranks map both buffers: what a rank sends to itself, others could have received. */
static void show_memory(matrix_t *m)
{
    const buffer_t *both = m->memory[DEVICE];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_send(both[i].at, m->room, WEFT_U8, m->team->rank, m->team->comm, NULL));
        CHECK_OK(weft_recv(both[!i].at, m->room, WEFT_U8, m->team->rank, m->team->comm, NULL));
        CHECK_OK(weft_group_end());
    }
}

static void matrix_open(matrix_t *m, team_t *team, size_t room)
{
    *m = (matrix_t){.team = team, .room = room};
    for (int a = 0; a < algorithms(); a++) {
        weft_comm_config_t config = team_config();
        config.algo = weft__algo_name((weft_algo_t)a);
        team_note("splitting for %s", config.algo);
        CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &m->comms[a], &config));
    }
    for (int i = 0; i < 2; i++) {
        buffer_open(&m->memory[DEVICE][i], room + 2 * GUARD + SHIFT, false);
        buffer_open(&m->memory[PLAIN][i], room + 2 * GUARD + SHIFT, true);
    }
    if (checks_bounds()) {
        show_memory(m);
    }
    team_meet(team);
}

static void matrix_close(matrix_t *m)
{
    for (int a = 0; a < algorithms(); a++) {
        CHECK_OK(weft_comm_destroy(m->comms[a]));
    }
    for (int i = 0; i < 2; i++) {
        buffer_close(&m->memory[DEVICE][i]);
        buffer_close(&m->memory[PLAIN][i]);
    }
}

/* A buffer for source (0) or destination (1), and where data starts in it: not always aligned. */
static const buffer_t *pick(const matrix_t *m, int kind, int which, size_t element, char **at_p)
{
    int where = kind;
    if (kind == MIXED) {
        where = (int)((unsigned)m->team->rank + m->cases + (which ? m->cases >> 1 : 0)) & 1;
    }
    const buffer_t *buffer = &m->memory[where][which];
    *at_p = buffer->host + GUARD + element * (m->cases % 3);
    return buffer;
}

static bool has_root(const mcase_t *c)
{
    const weft_coll_info_t *info = &weft__coll_info[c->coll];
    return info->src_where == 'r' || info->dst_where == 'r';
}

/* ---- one case ---------------------------------------------------------------------------- */

static place_t find_place(const matrix_t *m, const mcase_t *c)
{
    const weft_coll_info_t *info = &weft__coll_info[c->coll];
    size_t element = weft_dtype_size(c->type), block = c->count * element;
    int rank = m->team->rank, size = m->team->size;
    weft_call_t shape = {.coll = c->coll, .root = c->root};
    place_t p = {.block = block,
                 .src_bytes = block * (size_t)weft__call_src_blocks(&shape, rank, size),
                 .dst_bytes = block * (size_t)weft__call_dst_blocks(&shape, rank, size),
                 .in_place = c->in_place && (!has_root(c) || rank == c->root),
                 .data = {c->type, info->reduces ? c->op : DATA_RAW, size, m->cases}};
    CHECK(p.src_bytes <= m->room && p.dst_bytes <= m->room);
    p.src_in = pick(m, c->kind, 0, element, &p.src);
    p.dst_in = pick(m, c->kind, 1, element, &p.dst);
    if (p.in_place) {
        p.dst_in = p.src_in;
        p.dst = p.src;
        p.dst += p.src_bytes > p.dst_bytes ? (size_t)rank * block : 0;
        p.src += p.dst_bytes > p.src_bytes ? (size_t)rank * block : 0;
    }
    return p;
}

/* What is written, and the source with it if it is in place. */
static char *touched(const place_t *p, size_t *bytes_p)
{
    *bytes_p = p->in_place && p->src_bytes > p->dst_bytes ? p->src_bytes : p->dst_bytes;
    return p->in_place && p->src < p->dst ? p->src : p->dst;
}

static void fill(const matrix_t *m, const mcase_t *c, const place_t *p)
{
    size_t bytes;
    char *low = touched(p, &bytes);
    memset(low - GUARD / 2, POISON, GUARD / 2);
    memset(low + bytes, POISON, GUARD / 2);
    if (p->dst_bytes) {
        memset(p->dst, POISON, p->dst_bytes);
    }
    data_fill(&p->data, m->team->rank, 0, p->src_bytes / weft_dtype_size(c->type), p->src);
    buffer_push(p->dst_in, low - GUARD / 2, bytes + GUARD);
    buffer_push(p->src_in, p->src, p->src_bytes);
}

static void look(const place_t *p)
{
    size_t bytes;
    char *low = touched(p, &bytes);
    buffer_pull(p->dst_in, low - GUARD / 2, bytes + GUARD);
    buffer_pull(p->src_in, p->src, p->src_bytes);
}

static weft_status_t issue(const mcase_t *c, const place_t *p, weft_comm_h comm)
{
    /* A rank without a source or destination passes none. */
    const void *src = p->src_bytes || c->count == 0 ? buffer_at(p->src_in, p->src) : NULL;
    void *dst = p->dst_bytes || c->count == 0 ? buffer_at(p->dst_in, p->dst) : NULL;
    switch (c->coll) {
    case WEFT_COLL_ALLREDUCE:
        return weft_allreduce(src, dst, c->count, c->type, c->op, comm, NULL);
    case WEFT_COLL_REDUCE:
        return weft_reduce(src, dst, c->count, c->type, c->op, c->root, comm, NULL);
    case WEFT_COLL_BROADCAST:
        return weft_broadcast(src, dst, c->count, c->type, c->root, comm, NULL);
    case WEFT_COLL_REDUCE_SCATTER:
        return weft_reduce_scatter(src, dst, c->count, c->type, c->op, comm, NULL);
    case WEFT_COLL_ALLGATHER:
        return weft_allgather(src, dst, c->count, c->type, comm, NULL);
    case WEFT_COLL_GATHER:
        return weft_gather(src, dst, c->count, c->type, c->root, comm, NULL);
    case WEFT_COLL_SCATTER:
        return weft_scatter(src, dst, c->count, c->type, c->root, comm, NULL);
    case WEFT_COLL_ALLTOALL:
        return weft_alltoall(src, dst, c->count, c->type, comm, NULL);
    default:
        return weft_barrier(comm, NULL);
    }
}

/* Block `b` of `at` is elements [first, first + count) of `rank`. */
static void check_block(const mcase_t *c, const place_t *p, const char *at, size_t b, int rank,
                        size_t first)
{
    size_t wrong;
    if (!data_check(&p->data, rank, first, c->count, at + b * p->block, &wrong)) {
        FAIL("%s is wrong from element %zu of block %zu on", at == p->src ? "src" : "dst", wrong,
             b);
    }
}

static void check_result(const matrix_t *m, const mcase_t *c, const place_t *p)
{
    size_t rank = (size_t)m->team->rank, size = (size_t)m->team->size;
    if (p->dst_bytes == 0) {
        return;
    }
    switch (c->coll) {
    case WEFT_COLL_ALLREDUCE:
    case WEFT_COLL_REDUCE:
        check_block(c, p, p->dst, 0, DATA_REDUCED, 0);
        break;
    case WEFT_COLL_REDUCE_SCATTER:
        check_block(c, p, p->dst, 0, DATA_REDUCED, rank * c->count);
        break;
    case WEFT_COLL_BROADCAST:
        check_block(c, p, p->dst, 0, c->root, 0);
        break;
    case WEFT_COLL_SCATTER:
        check_block(c, p, p->dst, 0, c->root, rank * c->count);
        break;
    default: /* a block from every rank */
        for (size_t b = 0; b < size; b++) {
            bool moves = c->coll == WEFT_COLL_ALLTOALL;
            check_block(c, p, p->dst, b, (int)b, moves ? rank * c->count : 0);
        }
    }
}

static void check_guard(const char *at, const char *what)
{
    for (int i = 0; i < GUARD / 2; i++) {
        if (at[i] != POISON) {
            FAIL("wrote %s its buffer", what);
        }
    }
}

/* Nothing changed that should not have. */
static void check_rest(const matrix_t *m, const mcase_t *c, const place_t *p)
{
    int rank = m->team->rank;
    size_t blocks = p->block ? p->src_bytes / p->block : 0;
    for (size_t b = 0; b < blocks; b++) {
        bool overwritten = p->in_place && (p->src_bytes <= p->dst_bytes || b == (size_t)rank);
        if (!overwritten) {
            check_block(c, p, p->src, b, rank, b * c->count);
        }
    }
    size_t bytes;
    char *low = touched(p, &bytes);
    check_guard(low - GUARD / 2, "before");
    check_guard(low + bytes, "behind");
}

static void run_case(matrix_t *m, mcase_t c)
{
    c.root = (int)(m->cases % (unsigned)m->team->size);
    team_note("%s by %s of %zu %s, %s, root %d, %s, %s memory", weft__coll_info[c.coll].name,
              weft__algo_name(c.algo), c.count, weft_dtype_name(c.type), weft_op_name(c.op), c.root,
              c.in_place ? "in place" : "out of place", kind_names[c.kind]);
    place_t p = find_place(m, &c);
    fill(m, &c, &p);
    CHECK_OK(issue(&c, &p, m->comms[c.algo]));
    look(&p);
    check_result(m, &c, &p);
    check_rest(m, &c, &p);
    m->cases++;
}

/* ---- products of cases -------------------------------------------------------------------- */

/* In place or not, by every algorithm the collective has, in every kind of memory, or (`turns`) in
 * one kind after the other. */
static void ways(matrix_t *m, mcase_t c, bool turns)
{
    for (int a = 0; a < algorithms(); a++) {
        if (!weft__tuner_has(c.coll, (weft_algo_t)a)) {
            continue;
        }
        for (int k = 0; k < kinds(); k++) {
            if (turns && k != (int)(m->cases % (unsigned)kinds())) {
                continue;
            }
            c.algo = (weft_algo_t)a;
            c.kind = k;
            c.in_place = false;
            run_case(m, c);
            c.in_place = true;
            run_case(m, c);
        }
    }
}

static bool is_pairwise(weft_coll_t coll)
{
    return coll == WEFT_COLL_ALLTOALLV || coll == WEFT_COLL_SEND || coll == WEFT_COLL_RECV;
}

/* Leave out this type and operation? `few`: sum for all types, the other operations for one type
 * each. */
static bool leave_out(weft_coll_t coll, int type, int op, bool few)
{
    bool reduces = weft__coll_info[coll].reduces;
    if (!reduces && op > 0) {
        return true;
    }
    if (team_short()) { /* each type has a kernel of its own, which knows all operations */
        return reduces ? op != (type + (int)coll) % WEFT_OP_COUNT
                       : type != (int)coll % WEFT_DTYPE_COUNT;
    }
    if (UNDER_TSAN) { /* races do not depend on types, and are slow to look for */
        return type != (int)coll % WEFT_DTYPE_COUNT || (few && op > 0);
    }
    return few && op != WEFT_SUM && type != (op + (int)coll) % WEFT_DTYPE_COUNT;
}

static void types_and_ops(matrix_t *m, weft_coll_t coll, size_t count, bool few)
{
    int size = m->team->size;
    bool turns = few || UNDER_SANITIZER || team_short() || size > 4 ||
                 (weft__device_is_cuda() && size != 2);
    for (int t = 0; t < WEFT_DTYPE_COUNT; t++) {
        for (int o = 0; o < WEFT_OP_COUNT; o++) {
            if (!leave_out(coll, t, o, few)) {
                ways(m,
                     (mcase_t){
                         .coll = coll, .type = (weft_dtype_t)t, .op = (weft_op_t)o, .count = count},
                     turns);
            }
        }
    }
}

void matrix_small(team_t *team)
{
    static const size_t counts[] = {0, 1, 3, 1000};
    matrix_t m;
    matrix_open(&m, team, 1000 * 8 * (size_t)team->size);
    for (size_t i = team_short() ? 2 : 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
            if (!is_pairwise((weft_coll_t)coll)) {
                types_and_ops(&m, (weft_coll_t)coll, counts[i], false);
            }
        }
    }
    matrix_close(&m);
}

void matrix_medium(team_t *team)
{
    matrix_t m;
    matrix_open(&m, team, 65537 * 8 * (size_t)team->size);
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        if (!is_pairwise((weft_coll_t)coll) && coll != WEFT_COLL_BARRIER) {
            types_and_ops(&m, (weft_coll_t)coll, 65537, true);
        }
    }
    matrix_close(&m);
}

void matrix_large(team_t *team)
{
    const size_t large = 1000003;
    matrix_t m;
    matrix_open(&m, team, large * 4);
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        const weft_coll_info_t *info = &weft__coll_info[coll];
        bool blocks = info->src_blocks == 'S' || info->dst_blocks == 'S';
        size_t count = blocks ? large / (size_t)team->size : large;
        if (is_pairwise((weft_coll_t)coll) || coll == WEFT_COLL_BARRIER) {
            continue;
        }
        for (int t = 0; t < WEFT_DTYPE_COUNT; t++) {
            if (t != WEFT_F32 && (UNDER_TSAN || (t != WEFT_BF16 && t != WEFT_I8))) {
                continue;
            }
            weft_op_t op = t == WEFT_F32 ? WEFT_SUM : t == WEFT_BF16 ? WEFT_AVG : WEFT_MAX;
            ways(&m,
                 (mcase_t){
                     .coll = (weft_coll_t)coll, .type = (weft_dtype_t)t, .op = op, .count = count},
                 true);
        }
    }
    matrix_close(&m);
}

/* ---- alltoallv ---------------------------------------------------------------------------- */

typedef struct ragged {
    size_t counts[TEAM_MOST], offsets[TEAM_MOST];
    size_t end;
} ragged_t;

static size_t ragged_count(const matrix_t *m, int from, int to, size_t most)
{
    uint64_t x = data_mix((uint64_t)m->cases << 16 | (uint64_t)from << 8 | (uint64_t)to);
    return x % 4 == 0 || most == 0 ? 0 : x / 4 % (most + 1);
}

/* Blocks to (or from) every rank, in an order of their own and with gaps between. */
static ragged_t ragged_layout(const matrix_t *m, bool receives, size_t most)
{
    ragged_t r = {.end = 0};
    int me = m->team->rank, size = m->team->size;
    for (int i = 0; i < size; i++) {
        int p = receives ? (me + i) % size : size - 1 - i;
        r.counts[p] = receives ? ragged_count(m, p, me, most) : ragged_count(m, me, p, most);
        r.offsets[p] = r.end;
        r.end += r.counts[p] + (size_t)(i % 3);
    }
    return r;
}

static void ragged_case(matrix_t *m, weft_dtype_t type, size_t most, int kind, weft_algo_t algo)
{
    int rank = m->team->rank, size = m->team->size;
    size_t element = weft_dtype_size(type);
    ragged_t out = ragged_layout(m, false, most), in = ragged_layout(m, true, most);
    data_t data = {type, DATA_RAW, size, m->cases};
    team_note("alltoallv of up to %zu %s, %s memory", most, weft_dtype_name(type),
              kind_names[kind]);
    CHECK(out.end * element <= m->room && in.end * element <= m->room);
    char *src, *dst, *expected = malloc(in.end * element + 1);
    const buffer_t *src_in = pick(m, kind, 0, element, &src);
    const buffer_t *dst_in = pick(m, kind, 1, element, &dst);
    CHECK(expected);
    memset(dst, POISON, in.end * element);
    memset(expected, POISON, in.end * element);
    for (int p = 0; p < size; p++) {
        data_fill(&data, rank, (size_t)p * 7, out.counts[p], src + out.offsets[p] * element);
        data_fill(&data, p, (size_t)rank * 7, in.counts[p], expected + in.offsets[p] * element);
    }
    buffer_push(src_in, src, out.end * element);
    buffer_push(dst_in, dst, in.end * element);
    CHECK_OK(weft_alltoallv(buffer_at(src_in, src), out.counts, out.offsets, buffer_at(dst_in, dst),
                            in.counts, in.offsets, type, m->comms[algo], NULL));
    buffer_pull(dst_in, dst, in.end * element);
    CHECK(memcmp(dst, expected, in.end * element) == 0);
    free(expected);
    m->cases++;
}

void matrix_ragged(team_t *team)
{
    static const size_t most[] = {0, 1, 5, 1000, 30011};
    matrix_t m;
    matrix_open(&m, team, (30011 + 3) * 8 * (size_t)team->size);
    for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
        for (int t = 0; t < (team_short() ? 1 : WEFT_DTYPE_COUNT); t++) {
            for (int k = 0; k < kinds(); k++) {
                ragged_case(&m, (weft_dtype_t)t, most[i], k, WEFT_ALGO_AUTO);
                ragged_case(&m, (weft_dtype_t)t, most[i], k, WEFT_ALGO_DIRECT);
            }
        }
    }
    matrix_close(&m);
}

/* ---- sends and receives ------------------------------------------------------------------- */

static void pair_case(matrix_t *m, int from, int to, size_t count, weft_dtype_t type, int kind)
{
    int rank = m->team->rank;
    size_t wrong, element = weft_dtype_size(type);
    data_t data = {type, DATA_RAW, m->team->size, m->cases};
    weft_comm_h comm = m->comms[WEFT_ALGO_AUTO];
    char *src, *dst;
    const buffer_t *src_in = pick(m, kind, 0, element, &src);
    const buffer_t *dst_in = pick(m, kind, 1, element, &dst);
    team_note("%d sends %zu %s to %d, %s memory", from, count, weft_dtype_name(type), to,
              kind_names[kind]);
    m->cases++;
    if (rank == from) {
        data_fill(&data, rank, 0, count, src);
        buffer_push(src_in, src, count * element);
        CHECK_OK(weft_send(buffer_at(src_in, src), count, type, to, comm, NULL));
    } else if (rank == to) {
        memset(dst - GUARD / 2, POISON, count * element + GUARD);
        buffer_push(dst_in, dst - GUARD / 2, count * element + GUARD);
        CHECK_OK(weft_recv(buffer_at(dst_in, dst), count, type, from, comm, NULL));
        buffer_pull(dst_in, dst - GUARD / 2, count * element + GUARD);
        if (!data_check(&data, from, 0, count, dst, &wrong)) {
            FAIL("received wrong data from element %zu on", wrong);
        }
        check_guard(dst - GUARD / 2, "before");
        check_guard(dst + count * element, "behind");
    }
}

void matrix_pairs(team_t *team)
{
    static const size_t counts[] = {0, 1, 32, 33, 8192, 8193, (1 << 20) + 3};
    matrix_t m;
    matrix_open(&m, team, (1 << 20) + 3 + 8 * 1000);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int from = 0; from < team->size; from++) {
            for (int to = 0; to < team->size; to++) {
                bool large = counts[i] > 100000;
                for (int k = 0; k < kinds() && from != to; k++) {
                    if (!large || (from + to) % kinds() == k || team->size < 4) {
                        pair_case(&m, from, to, counts[i], WEFT_U8, k);
                    }
                }
            }
        }
    }
    for (int t = 0; t < WEFT_DTYPE_COUNT && team->size > 1; t++) {
        pair_case(&m, 0, team->size - 1, 999, (weft_dtype_t)t, t % kinds());
    }
    matrix_close(&m);
}

/* ---- random floats ------------------------------------------------------------------------ */

/* Element i of a rank, as its type holds it: between -1 and 1, with all bits in use. */
static double random_float(weft_dtype_t type, int rank, size_t i, void *to)
{
    uint64_t x = data_mix((uint64_t)rank << 40 | (uint64_t)i);
    data_from_double(type, (double)(x >> 11) * 0x1p-52 - 1, to);
    return data_to_double(type, to);
}

/* How far a sum may be off, relative to the sum of the magnitudes. */
static double tolerance(weft_dtype_t type, int ranks)
{
    double unit = type == WEFT_F64      ? 0x1p-52
                  : type == WEFT_F32    ? 0x1p-23
                  : type == WEFT_F16    ? 0x1p-10
                  : type == WEFT_BF16   ? 0x1p-7
                  : type == WEFT_F8E4M3 ? 0x1p-3
                                        : 0x1p-2;
    return unit * ranks;
}

static void check_sums(const team_t *team, weft_dtype_t type, size_t count, const char *got)
{
    char scratch[8];
    size_t element = weft_dtype_size(type);
    for (size_t i = 0; i < count; i++) {
        double sum = 0, magnitude = 0;
        for (int p = 0; p < team->size; p++) {
            double x = random_float(type, p, i, scratch);
            sum += x;
            magnitude += fabs(x);
        }
        double value = data_to_double(type, got + i * element);
        double least = weft_dtype_size(type) == 1 ? 0x1p-10 * team->size : 1e-7;
        double most = tolerance(type, team->size) * magnitude + least;
        if (!(fabs(value - sum) <= most)) {
            FAIL("element %zu is %.9g, not %.9g", i, value, sum);
        }
    }
}

static uint64_t hash(const char *bytes, size_t n)
{
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++) {
        h = data_mix(h ^ (unsigned char)bytes[i]);
    }
    return h;
}

static void float_case(matrix_t *m, weft_algo_t algo, weft_dtype_t type, size_t count)
{
    team_t *team = m->team;
    size_t element = weft_dtype_size(type), bytes = count * element;
    const buffer_t *src = &m->memory[DEVICE][0], *dst = &m->memory[DEVICE][1];
    char *again = m->memory[PLAIN][1].host;
    uint64_t *hashes = (uint64_t *)team->shared;
    team_note("sum of %zu random %s by %s", count, weft_dtype_name(type), weft__algo_name(algo));
    for (size_t i = 0; i < count; i++) {
        random_float(type, team->rank, i, src->host + i * element);
    }
    buffer_push(src, src->host, bytes);
    CHECK_OK(weft_allreduce(src->at, dst->at, count, type, WEFT_SUM, m->comms[algo], NULL));
    buffer_pull(dst, dst->host, bytes);
    check_sums(team, type, count, dst->host);
    memcpy(again, dst->host, bytes);
    memset(dst->host, POISON, bytes);
    buffer_push(dst, dst->host, bytes);
    CHECK_OK(weft_allreduce(src->at, dst->at, count, type, WEFT_SUM, m->comms[algo], NULL));
    buffer_pull(dst, dst->host, bytes);
    CHECK(memcmp(dst->host, again, bytes) == 0);
    hashes[team->rank] = hash(dst->host, bytes);
    team_meet(team);
    CHECK_EQ(hashes[team->rank], hashes[0]);
    team_meet(team);
}

void matrix_floats(team_t *team)
{
    static const weft_dtype_t types[] = {WEFT_F64,  WEFT_F32,    WEFT_F16,
                                         WEFT_BF16, WEFT_F8E4M3, WEFT_F8E5M2};
    matrix_t m;
    matrix_open(&m, team, 70001 * 8);
    for (int a = 0; a < algorithms(); a++) {
        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
            float_case(&m, (weft_algo_t)a, types[t], 777);
            float_case(&m, (weft_algo_t)a, types[t], 20011);
        }
        if (!UNDER_TSAN) {
            float_case(&m, (weft_algo_t)a, WEFT_F32, 70001);
        }
    }
    matrix_close(&m);
}

/* ---- float8, every pair of codes ---------------------------------------------------------- */

enum { CODES = 256, PAIRS = CODES * CODES };

/* Rank 0 has one code of a pair and rank 1 the other; the rest have what changes nothing, so that
 * the order of the operands does not matter. */
static void fill_pairs(weft_dtype_t type, weft_op_t op, int rank, unsigned char *to)
{
    int one = type == WEFT_F8E4M3 ? 0x38 : 0x3c, minus_zero = 0x80;
    for (int i = 0; i < PAIRS; i++) {
        to[i] = (unsigned char)(rank == 0 || (rank > 1 && (op == WEFT_MIN || op == WEFT_MAX))
                                    ? i / CODES
                                : rank == 1       ? i % CODES
                                : op == WEFT_PROD ? one
                                                  : minus_zero);
    }
}

/* Which of 0 and -0, or of a NaN and a number, is the least or the greatest is not defined. */
static bool is_open(weft_op_t op, unsigned char a, unsigned char b, weft_dtype_t type)
{
    double x = data_to_double(type, &a), y = data_to_double(type, &b);
    return (op == WEFT_MIN || op == WEFT_MAX) && ((x == 0 && y == 0) || isnan(x) || isnan(y));
}

static void float8_case(matrix_t *m, weft_dtype_t type, weft_op_t op)
{
    static unsigned char all[8][PAIRS], want[PAIRS];
    const void *srcs[8];
    void *dst = want;
    const buffer_t *in = &m->memory[DEVICE][0], *out = &m->memory[DEVICE][1];
    team_note("%s of every pair of %s", weft_op_name(op), weft_dtype_name(type));
    for (int p = 0; p < m->team->size; p++) {
        fill_pairs(type, op, p, all[p]);
        srcs[p] = all[p];
    }
    weft__kernels()->reduce(&dst, 1, srcs, m->team->size, PAIRS, type, op, WEFT_STORE_CACHED);
    memcpy(in->host, all[m->team->rank], PAIRS);
    buffer_push(in, in->host, PAIRS);
    for (int small = 0; small < 2; small++) { /* by both families of kernels */
        size_t step = small ? 4096 : PAIRS;
        for (size_t at = 0; at < PAIRS; at += step) {
            CHECK_OK(weft_allreduce((const char *)in->at + at, (char *)out->at + at, step, type, op,
                                    m->comms[small ? WEFT_ALGO_ONESHOT : WEFT_ALGO_DIRECT], NULL));
        }
        buffer_pull(out, out->host, PAIRS);
        for (int i = 0; i < PAIRS; i++) {
            bool open = is_open(op, (unsigned char)(i / CODES), (unsigned char)i, type);
            if (!open && (unsigned char)out->host[i] != want[i]) {
                FAIL("of %#x and %#x it is %#x, not %#x", i / CODES, i % CODES,
                     (unsigned)(unsigned char)out->host[i], (unsigned)want[i]);
            }
        }
    }
    team_meet(m->team);
}

void matrix_float8(team_t *team)
{
    matrix_t m;
    matrix_open(&m, team, PAIRS);
    for (int type = WEFT_F8E4M3; type <= WEFT_F8E5M2; type++) {
        for (int op = 0; op < WEFT_OP_COUNT; op++) {
            float8_case(&m, (weft_dtype_t)type, (weft_op_t)op);
        }
    }
    matrix_close(&m);
}
