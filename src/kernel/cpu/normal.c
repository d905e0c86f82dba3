/* Normal numbers by position: Box and Muller's method on the words of a counter-based generator. */
#include <math.h>

#include "base/rng.h"
#include "kernel/compute.h"
#include "kernel/cpu/launch.h"

enum { TASK = 16384 };

typedef struct fill {
    uint64_t key;
    int64_t first, count;
    float std;
    float *out;
} fill_t;

/* Four numbers from one call of the generator: 32 bits each are plenty for initial weights. */
static void four_normals(uint64_t key, uint64_t at, double out[4])
{
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
    const uint32_t keys[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    uint32_t words[4];
    weft__philox(counter, keys, words);
    for (int pair = 0; pair < 4; pair += 2) {
        double u = ((double)words[pair] + 0.5) / 4294967296.0;
        double angle = 2 * M_PI * ((double)words[pair + 1] / 4294967296.0);
        double radius = sqrt(-2 * log(u));
        out[pair] = radius * cos(angle);
        out[pair + 1] = radius * sin(angle);
    }
}

static void fill_task(const void *arg, int64_t task, void *scratch)
{
    const fill_t *fill = arg;
    int64_t end = weft__least((task + 1) * TASK, fill->count);
    (void)scratch;
    for (int64_t i = task * TASK; i < end;) {
        uint64_t index = (uint64_t)(fill->first + i);
        double values[4];
        four_normals(fill->key, index / 4, values);
        for (int lane = (int)(index % 4); lane < 4 && i < end; lane++, i++) {
            fill->out[i] = (float)values[lane] * fill->std;
        }
    }
}

weft_status_t weft__fill_normal(uint64_t key, int64_t first, int64_t count, float std, float *out)
{
    fill_t fill = {key, first, count, std, out};
    return weft__team_run(weft__ceil_div(count, TASK), 0, fill_task, &fill);
}
