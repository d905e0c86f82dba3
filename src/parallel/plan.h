/* A plan: how one training job is laid out over its ranks.
 *
 * Ranks are a grid of dp x pp x tp (mesh.h). What it means for one rank:
 *
 *   tp   has one of tp equal parts of every matrix; the ranks of a row sum activations
 *   pp   has the blocks of one stage (of several with interleaving); activations travel
 *   dp   has dp-th of the sequences of a batch; gradients are summed, and with ZeRO state is
 *        spread:
 *
 *             weights      gradients    optimizer
 *   zero 0    everywhere   everywhere   everywhere
 *   zero 1    everywhere   everywhere   spread
 *   zero 2    everywhere   spread       spread
 *   zero 3    spread       spread       spread
 *
 * Every combination is allowed as long as sizes divide, and gives the same numbers but for
 * rounding; the four stages of ZeRO give the same bits. For that, a step of several micro-batches
 * adds their gradients up on each rank before they are exchanged, in f32 and in full, whatever the
 * stage. With `lean`, stages 2 and 3 exchange after every micro-batch instead and never hold all
 * gradients: less memory, more communication, and sums in another order. With one micro-batch the
 * two are the same, and spread gradients are always lean. */
#ifndef WEFT_PARALLEL_PLAN_H
#define WEFT_PARALLEL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "model/config.h"

typedef enum weft_schedule {
    WEFT_GPIPE,      /* all micro-batches forward, then all backward */
    WEFT_1F1B,       /* one forward, one backward: at most pp micro-batches are under way */
    WEFT_INTERLEAVED /* 1F1B with several stages a rank: a smaller bubble, more messages */
} weft_schedule_t;

typedef enum weft_recompute {
    WEFT_RECOMPUTE_NONE,      /* backward reads what forward kept */
    WEFT_RECOMPUTE_SELECTIVE, /* attention is computed again: queries, keys, values, its output */
    WEFT_RECOMPUTE_FULL       /* blocks are: only their inputs are kept */
} weft_recompute_t;

/* The axes of the mesh, as plans are written: name; field of a plan and option; what its ranks are
 * called; whether only neighbours along it talk, as in a chain. */
#define WEFT_AXIS_TABLE(X)                                                                         \
    X(DATA, dp, "data-parallel", false)                                                            \
    X(PIPELINE, pp, "pipeline-parallel", true)                                                     \
    X(TENSOR, tp, "tensor-parallel", false)

typedef enum weft_axis {
#define WEFT_AXIS_ENUM(name, field, ranks, chain) WEFT_AXIS_##name,
    WEFT_AXIS_TABLE(WEFT_AXIS_ENUM)
#undef WEFT_AXIS_ENUM
        WEFT_AXES
} weft_axis_t;

typedef struct weft_axis_info {
    const char *option, *ranks;
    bool chain;
} weft_axis_info_t;

extern const weft_axis_info_t weft__axes[WEFT_AXES];

/* The axes from the innermost, whose ranks have the fastest links between them, to the
 * outermost. */
extern const weft_axis_t weft__axis_order[WEFT_AXES];

typedef struct weft_plan {
    union { /* ranks along each axis */
        int size[WEFT_AXES];
        struct {
#define WEFT_AXIS_FIELD(name, field, ranks, chain) int field;
            WEFT_AXIS_TABLE(WEFT_AXIS_FIELD)
#undef WEFT_AXIS_FIELD
        };
    };
    int zero; /* 0 to 3 */
    weft_schedule_t schedule;
    int virtual_stages;  /* stages a rank has with WEFT_INTERLEAVED, at least 2; else 1 */
    int micro_batches;   /* of a step, on each data-parallel rank */
    int64_t micro_batch; /* sequences of one */
    int64_t length;      /* tokens of a sequence */
    weft_recompute_t recompute;
    bool offload;           /* optimizer state and its update are in host memory */
    bool sequence_parallel; /* norms and the residual stream are cut among tp as well, by rows */
    bool lean;              /* see above */
} weft_plan_t;

/* A plan of one rank: one micro-batch of `sequences` x `length`. */
weft_plan_t weft__plan_single(int64_t sequences, int64_t length);

/* By name: "gpipe", "1f1b", "interleaved"; "none", "selective", "full". -1: there is none such. */
int weft__schedule_named(const char *name);
int weft__recompute_named(const char *name);
const char *weft__schedule_name(weft_schedule_t schedule);
const char *weft__recompute_name(weft_recompute_t recompute);

/* The ranks of a mesh of these sizes; 0 if one of them is less than 1. */
int64_t weft__axes_ranks(const int size[WEFT_AXES]);

/* "dp 2 x pp 1 x tp 4"; returns text. */
const char *weft__axes_text(const int size[WEFT_AXES], char *text, size_t room);

/* Can `model` be trained by `ranks` ranks in batches of `batch` sequences under this plan?
 * WEFT_ERR_INVALID with the reason, and with the nearest plan that works, if there is one. */
weft_status_t weft__plan_check(const weft_plan_t *plan, const weft_model_config_t *model, int ranks,
                               int64_t batch);

/* The same as an answer, without a sentence. */
bool weft__plan_possible(const weft_plan_t *plan, const weft_model_config_t *model, int ranks,
                         int64_t batch);

/* The possible plan that differs least: in the shape of the grid first, then in micro-batches and
 * schedule. False if there is none. */
bool weft__plan_nearest(const weft_plan_t *plan, const weft_model_config_t *model, int ranks,
                        int64_t batch, weft_plan_t *nearest_p);

/* As options: "--dp 2 --pp 2 --tp 2 --zero 1 --schedule 1f1b ...". Returns text. */
const char *weft__plan_text(const weft_plan_t *plan, char *text, size_t room);

/* Which blocks virtual stage `number` (0 to stages - 1, in the order of forward) of `stages`
 * has. */
void weft__plan_layers(int layers, int stages, int number, int *first_p, int *count_p);

#endif
