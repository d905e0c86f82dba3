/* Loss scaling: see scale.h. */
#include "train/scale.h"

#include <math.h>

/* A scale of 1 is that of other precisions. */
#define SCALE_LEAST 2.0
#define SCALE_MOST 0x1p40

bool weft__scale_used(const weft_setup_t *setup)
{
    return setup->type == WEFT_F16;
}

/* A power of two, so that multiplying with it and dividing by it changes no bit. */
static double power_of_two(double scale)
{
    double power = exp2(floor(log2(scale)));
    return fmin(fmax(power, SCALE_LEAST), SCALE_MOST);
}

void weft__scale_start(const weft_setup_t *setup, weft_train_state_t *state)
{
    if (!weft__scale_used(setup)) {
        state->loss_scale = 1.0;
        state->loss_scale_steps = state->skipped = 0;
    } else if (!(state->loss_scale >= SCALE_LEAST)) {
        state->loss_scale = power_of_two(setup->config->loss_scale);
        state->loss_scale_steps = 0;
    }
}

bool weft__scale_update(weft_train_state_t *state, double norm)
{
    if (isfinite(norm)) {
        if (++state->loss_scale_steps == WEFT_SCALE_PATIENCE && state->loss_scale < SCALE_MOST) {
            state->loss_scale *= 2.0;
            state->loss_scale_steps = 0;
        }
        return true;
    }
    state->skipped++;
    state->loss_scale_steps = 0;
    if (state->loss_scale <= SCALE_LEAST) {
        return false;
    }
    state->loss_scale /= 2.0;
    return true;
}
