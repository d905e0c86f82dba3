#include "bench/links/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/median.h"

#define POLISHES 10

typedef struct work {
    weft_judge_t *judge;
    double *room;  /* size x size, or sweeps, values */
    double *level; /* [kind]: the logarithm of its median; NAN: too few links */
    int kind_count;
} work_t;

/* ---- the time of a link ----------------------------------------------------------------- */

static double usual(const double *samples, int sweeps, size_t links, size_t link, double *room)
{
    int count = 0;
    for (int i = 0; i < sweeps; i++) {
        double ns = samples[(size_t)i * links + link];
        if (ns > 0) {
            room[count++] = ns;
        }
    }
    return weft__median(room, (size_t)count);
}

/* slowdown[sweep]: how much longer than usual a link took in it, the median over links. */
static void find_slowdowns(const weft_judge_t *judge, int sweeps, const double *samples,
                           double *room, double *slowdown)
{
    size_t links = (size_t)judge->size * (size_t)judge->size;
    for (int i = 0; i < sweeps; i++) {
        int count = 0;
        for (size_t link = 0; link < links; link++) {
            double ns = samples[(size_t)i * links + link];
            if (ns > 0 && judge->ns[link] > 0) {
                room[count++] = ns / judge->ns[link];
            }
        }
        slowdown[i] = count > 0 ? weft__median(room, (size_t)count) : 1;
    }
}

static void find_times(weft_judge_t *judge, int sweeps, const double *samples, double *room,
                       double *slowdown)
{
    size_t links = (size_t)judge->size * (size_t)judge->size;
    for (size_t link = 0; link < links; link++) {
        judge->ns[link] = usual(samples, sweeps, links, link, room);
    }
    find_slowdowns(judge, sweeps, samples, room, slowdown);
    for (size_t link = 0; link < links; link++) {
        int count = 0;
        for (int i = 0; i < sweeps; i++) {
            double ns = samples[(size_t)i * links + link];
            if (ns > 0) {
                room[count++] = ns / slowdown[i];
            }
        }
        judge->ns[link] = weft__median(room, (size_t)count);
    }
}

/* ---- what is expected of it ------------------------------------------------------------- */

static bool is_judged(const work_t *work, size_t link)
{
    const weft_judge_t *judge = work->judge;
    int kind = judge->kinds[link];
    return kind >= 0 && judge->ns[link] > 0 && !isnan(work->level[kind]);
}

static void find_levels(work_t *work)
{
    const weft_judge_t *judge = work->judge;
    size_t links = (size_t)judge->size * (size_t)judge->size;
    for (int kind = 0; kind < work->kind_count; kind++) {
        int count = 0;
        for (size_t link = 0; link < links; link++) {
            if (judge->kinds[link] == kind && judge->ns[link] > 0) {
                work->room[count++] = log(judge->ns[link]);
            }
        }
        work->level[kind] = count < WEFT_JUDGE_LINKS ? NAN
                                                     : weft__median(work->room, (size_t)count);
    }
}

/* Take the median of a row (step 1) or a column (step size) out of its residuals. */
static double take_out(work_t *work, size_t first, size_t step)
{
    const weft_judge_t *judge = work->judge;
    size_t size = (size_t)judge->size;
    int count = 0;
    for (size_t i = 0; i < size; i++) {
        if (is_judged(work, first + i * step)) {
            work->room[count++] = judge->residual[first + i * step];
        }
    }
    double median = weft__median(work->room, (size_t)count);
    for (size_t i = 0; i < size && count > 0; i++) {
        if (is_judged(work, first + i * step)) {
            judge->residual[first + i * step] -= median;
        }
    }
    return median;
}

/* Take the median of a kind out of its residuals: its level was found before anything was known of
 * rows and columns. */
static void take_out_level(work_t *work, int kind)
{
    const weft_judge_t *judge = work->judge;
    size_t links = (size_t)judge->size * (size_t)judge->size;
    int count = 0;
    for (size_t link = 0; link < links; link++) {
        if (judge->kinds[link] == kind && is_judged(work, link)) {
            work->room[count++] = judge->residual[link];
        }
    }
    double median = weft__median(work->room, (size_t)count);
    for (size_t link = 0; link < links; link++) {
        if (judge->kinds[link] == kind && is_judged(work, link)) {
            judge->residual[link] -= median;
        }
    }
}

/* Only differences between ranks are theirs: what all have in common belongs to the kinds. */
static void centre(work_t *work, double *effects)
{
    int size = work->judge->size;
    memcpy(work->room, effects, (size_t)size * sizeof(*effects));
    double median = weft__median(work->room, (size_t)size);
    for (int i = 0; i < size; i++) {
        effects[i] -= median;
    }
}

static void find_residuals(work_t *work)
{
    const weft_judge_t *judge = work->judge;
    size_t size = (size_t)judge->size, links = size * size;
    for (size_t link = 0; link < links; link++) {
        judge->residual[link] = is_judged(work, link)
                                    ? log(judge->ns[link]) - work->level[judge->kinds[link]]
                                    : 0;
    }
    for (int i = 0; i < POLISHES && judge->size >= WEFT_JUDGE_RANKS; i++) {
        for (size_t rank = 0; rank < size; rank++) {
            judge->sends[rank] += take_out(work, rank * size, 1);
        }
        for (size_t rank = 0; rank < size; rank++) {
            judge->receives[rank] += take_out(work, rank, size);
        }
        for (int kind = 0; kind < work->kind_count; kind++) {
            take_out_level(work, kind);
        }
    }
    centre(work, judge->sends);
    centre(work, judge->receives);
    for (size_t link = 0; link < links; link++) {
        judge->likely[link] = is_judged(work, link) ? judge->ns[link] * exp(-judge->residual[link])
                                                    : 0;
    }
}

/* ---- who is slow ------------------------------------------------------------------------ */

/* The noise of a link's time, as a standard deviation, from the sizes of residuals.
 *
 * The fit of N links has p parameters: a level for each kind, and for all ranks but one what its
 * row and its column have in common. With H, the projection onto what these can fit, residuals are
 * r = (1 - H) e, so the variance of one is (1 - h) sigma^2. The h of all links sum up to p. So
 *
 *     sum of r^2 = (N - p) sigma^2     and over all links     rms(r) = sigma * sqrt((N - p) / N)
 *
 * It is variances that shrink by the share p / N; deviations shrink by its square root only. But a
 * MAD is no rms. Medians go through values: about p of the residuals are 0, or nearly so, whatever
 * the noise, and the N - p others have all of the sum above, sigma^2 each. So the p smallest are
 * left out, as is usual in fits by least absolute deviations, and the median of the others, scaled
 * as that of a normal distribution, is sigma as it is. With the p smallest it would be 0.44 sigma
 * on 5 ranks and 0.67 on 8, of which no factor that comes from variances makes 1.
 *
 * `share` is p / N; `sizes` are sorted by it. */
static double noise_of(double *sizes, int count, double share)
{
    int left_out = (int)(share * count + 0.5);
    weft__sort(sizes, (size_t)count);
    return WEFT_JUDGE_SCALE * weft__middle(sizes + left_out, (size_t)(count - left_out));
}

/* Parameters of the fit for each link: p / N. */
static double parameters(const work_t *work)
{
    const weft_judge_t *judge = work->judge;
    size_t links = (size_t)judge->size * (size_t)judge->size;
    int count = 0, p = judge->size < WEFT_JUDGE_RANKS ? 0 : 2 * (judge->size - 1);
    for (int kind = 0; kind < work->kind_count; kind++) {
        p += !isnan(work->level[kind]);
    }
    for (size_t link = 0; link < links; link++) {
        count += is_judged(work, link);
    }
    return count > 2 * p ? (double)p / count : 0.5; /* half of them always count */
}

/* Sizes of residuals of a kind, or of all (-1), into work->room. */
static int gather_sizes(const work_t *work, int kind)
{
    const weft_judge_t *judge = work->judge;
    size_t links = (size_t)judge->size * (size_t)judge->size;
    int count = 0;
    for (size_t link = 0; link < links; link++) {
        if (is_judged(work, link) && (kind < 0 || judge->kinds[link] == kind)) {
            work->room[count++] = fabs(judge->residual[link]);
        }
    }
    return count;
}

/* The noise of a kind is that of its links. A few of them are alike by chance, and say little: then
 * it is that of all links, if that is more. */
static void flag_links(work_t *work, double margin)
{
    weft_judge_t *judge = work->judge;
    size_t links = (size_t)judge->size * (size_t)judge->size;
    double share = parameters(work);
    int count = gather_sizes(work, -1);
    judge->noise = noise_of(work->room, count, share);
    for (int kind = 0; kind < work->kind_count; kind++) {
        count = gather_sizes(work, kind);
        double noise = noise_of(work->room, count, share);
        noise = count < WEFT_JUDGE_MANY && judge->noise > noise ? judge->noise : noise;
        double limit = WEFT_JUDGE_DEVIATIONS * noise;
        limit = limit > log(margin) ? limit : log(margin);
        judge->limit = count > 0 && limit > judge->limit ? limit : judge->limit;
        for (size_t link = 0; link < links; link++) {
            if (judge->kinds[link] == kind && is_judged(work, link) &&
                judge->residual[link] > limit) {
                judge->slow[link] |= WEFT_JUDGE_LINK;
            }
        }
    }
}

/* All links from, or to, a rank. */
static void flag_ranks(work_t *work, const double *effects, unsigned char flag)
{
    const weft_judge_t *judge = work->judge;
    size_t size = (size_t)judge->size;
    for (size_t rank = 0; rank < size; rank++) {
        work->room[rank] = fabs(effects[rank]);
    }
    double limit = WEFT_JUDGE_DEVIATIONS * WEFT_JUDGE_SCALE *
                   weft__median(work->room, (size_t)judge->size);
    limit = limit > log(WEFT_JUDGE_RANK) ? limit : log(WEFT_JUDGE_RANK);
    for (size_t link = 0; link < size * size; link++) {
        size_t rank = flag == WEFT_JUDGE_SENDS ? link / size : link % size;
        if (is_judged(work, link) && effects[rank] > limit) {
            judge->slow[link] |= flag;
        }
    }
}

static weft_status_t allocate(weft_judge_t *judge)
{
    size_t size = (size_t)judge->size, links = size * size;
    judge->ns = calloc(links, sizeof(double));
    judge->residual = calloc(links, sizeof(double));
    judge->likely = calloc(links, sizeof(double));
    judge->sends = calloc(size, sizeof(double));
    judge->receives = calloc(size, sizeof(double));
    judge->slow = calloc(links, 1);
    return judge->ns && judge->residual && judge->likely && judge->sends && judge->receives &&
                   judge->slow
               ? WEFT_OK
               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to judge %d ranks", judge->size);
}

weft_status_t weft__judge(int size, const int *kinds, int sweeps, const double *samples,
                          double margin, weft_judge_t *judge_p)
{
    weft_judge_t judge = {.size = size, .kinds = kinds};
    size_t links = (size_t)size * (size_t)size;
    work_t work = {.judge = &judge};
    for (size_t link = 0; link < links; link++) {
        work.kind_count = kinds[link] >= work.kind_count ? kinds[link] + 1 : work.kind_count;
    }
    work.level = calloc((size_t)work.kind_count + 1, sizeof(double));
    work.room = calloc(links > (size_t)sweeps ? links : (size_t)sweeps, sizeof(double));
    double *slowdown = calloc((size_t)sweeps + 1, sizeof(double));
    weft_status_t status = allocate(&judge);
    if (status == WEFT_OK && !(work.level && work.room && slowdown)) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory to judge %d sweeps", sweeps);
    }
    if (status == WEFT_OK) {
        find_times(&judge, sweeps, samples, work.room, slowdown);
        find_levels(&work);
        find_residuals(&work);
        flag_links(&work, margin);
        flag_ranks(&work, judge.sends, WEFT_JUDGE_SENDS);
        flag_ranks(&work, judge.receives, WEFT_JUDGE_RECEIVES);
        for (size_t link = 0; link < links; link++) {
            judge.slow_count += judge.slow[link] != 0;
        }
    }
    free(slowdown);
    free(work.room);
    free(work.level);
    if (status != WEFT_OK) {
        weft__judge_cleanup(&judge);
        return status;
    }
    *judge_p = judge;
    return WEFT_OK;
}

void weft__judge_cleanup(weft_judge_t *judge)
{
    free(judge->ns);
    free(judge->residual);
    free(judge->likely);
    free(judge->sends);
    free(judge->receives);
    free(judge->slow);
    memset(judge, 0, sizeof(*judge));
}
