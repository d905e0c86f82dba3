#include "bench/scaling/lost.h"

void weft__lost(const weft_breakdown_t *one, double tokens_one, const weft_breakdown_t *many,
                double tokens_many, int ranks, weft_lost_t *lost_p)
{
    double scale = tokens_many / (tokens_one * ranks), step = many->step;
    weft_lost_t lost = {.efficiency = one->step * scale / step,
                        .compute = (many->compute - one->compute * scale) / step};
#define LOSE(field, head) lost.field = (many->field - one->field * scale) / step;
    WEFT_LOST_TABLE(LOSE)
#undef LOSE
    lost.rest += lost.compute;
    *lost_p = lost;
}

double weft__lost_sum(const weft_lost_t *lost)
{
    double sum = 0.0;
#define ADD(field, head) sum += lost->field;
    WEFT_LOST_TABLE(ADD)
#undef ADD
    return sum;
}
