/* Loss scaling, for training in fp16.
 *
 * Numbers of fp16 end at 65504 and lose bits below 2^-14, where most gradients of activations are.
 * So the loss is multiplied with a large power of two, and gradients are divided by it again, in
 * fp32, before they are clipped. If they are not finite then, it was too large: the step changes
 * nothing (weft_clip_t), and the next one has half of it. After many steps without that, it is
 * doubled: as large as it can be.
 *
 * A step's scale depends on all steps before, so in fp16 a step is settled before the next is
 * queued. The scale is part of a checkpoint: a resumed run goes on with the same bits. */
#ifndef WEFT_TRAIN_SCALE_H
#define WEFT_TRAIN_SCALE_H

#include "train/checkpoint.h"
#include "train/setup.h"

#define WEFT_SCALE_PATIENCE 2000 /* steps without overflow before it is doubled */

/* Does this run scale its loss? */
bool weft__scale_used(const weft_setup_t *setup);

/* The scale to begin with, in a state that is new or from a checkpoint, which may be of another
 * precision. */
void weft__scale_start(const weft_setup_t *setup, weft_train_state_t *state);

/* What becomes of it after a step with this norm of the gradient. False: it was not finite, and
 * there is no smaller scale. */
bool weft__scale_update(weft_train_state_t *state, double norm);

#endif
