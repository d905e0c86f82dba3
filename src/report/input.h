/* What a report is made of, as it was read. */
#ifndef WEFT_REPORT_INPUT_H
#define WEFT_REPORT_INPUT_H

#include <stddef.h>

#include "base/json_read.h"
#include "report/report.h"

/* Results of commands have these words as their "kind"; the others are told by what is in them. */
#define WEFT_INPUT_TABLE(X)                                                                        \
    X(WEFT_INPUT_BENCH, "bench")                                                                   \
    X(WEFT_INPUT_LINKS, "links")                                                                   \
    X(WEFT_INPUT_PAIRS, "pairs")                                                                   \
    X(WEFT_INPUT_SCALING, "scaling")                                                               \
    X(WEFT_INPUT_TRAIN, "train")                                                                   \
    X(WEFT_INPUT_DOCTOR, "doctor")

typedef enum weft_input_kind {
#define WEFT_INPUT_ENUM(name, word) name,
    WEFT_INPUT_TABLE(WEFT_INPUT_ENUM)
#undef WEFT_INPUT_ENUM
        WEFT_INPUT_METRICS, /* metrics.jsonl */
    WEFT_INPUT_TRACE,       /* Chrome's JSON */
    WEFT_INPUT_RECORD,      /* machine.json of a run, and its configuration */
    WEFT_INPUT_KINDS
} weft_input_kind_t;

#define WEFT_INPUT_FORMAT 1 /* of results; others are refused */

/* The columns of metrics.jsonl that a report shows. */
#define WEFT_COLUMN_TABLE(X)                                                                       \
    X(WEFT_COLUMN_STEP, "step")                                                                    \
    X(WEFT_COLUMN_LOSS, "loss")                                                                    \
    X(WEFT_COLUMN_EVAL_LOSS, "eval_loss")                                                          \
    X(WEFT_COLUMN_RATE, "lr")                                                                      \
    X(WEFT_COLUMN_NORM, "grad_norm")                                                               \
    X(WEFT_COLUMN_TOKENS_PER_S, "tokens_per_s")                                                    \
    X(WEFT_COLUMN_MFU, "mfu")                                                                      \
    X(WEFT_COLUMN_COMM, "comm_share")                                                              \
    X(WEFT_COLUMN_BUBBLE, "bubble")                                                                \
    X(WEFT_COLUMN_TENSOR, "tensor_share")                                                          \
    X(WEFT_COLUMN_EXCHANGE, "exchange_share")                                                      \
    X(WEFT_COLUMN_UPDATE, "update_share")                                                          \
    X(WEFT_COLUMN_SCALE, "loss_scale")                                                             \
    X(WEFT_COLUMN_TOKENS, "tokens")                                                                \
    X(WEFT_COLUMN_MEMORY, "memory")

typedef enum weft_column {
#define WEFT_COLUMN_ENUM(name, key) name,
    WEFT_COLUMN_TABLE(WEFT_COLUMN_ENUM)
#undef WEFT_COLUMN_ENUM
        WEFT_COLUMN_COUNT
} weft_column_t;

struct weft_input {
    weft_input_kind_t kind;
    char *path;                         /* as it was named; of a run, its folder */
    char *label;                        /* short, for legends */
    weft_json_doc_t doc;                /* root is NULL for metrics */
    char *config;                       /* record: text of the configuration; NULL: none */
    size_t count;                       /* metrics: lines */
    double *columns[WEFT_COLUMN_COUNT]; /* metrics: `count` each; NaN: not there */
    bool torn; /* metrics: the last line is cut short, as a killed run leaves it */
};

/* The next input of this kind after `at` (NULL: the first), or NULL. */
const weft_input_t *weft__input_next(const weft_report_t *report, weft_input_kind_t kind,
                                     const weft_input_t *at);
int weft__input_count(const weft_report_t *report, weft_input_kind_t kind);

/* Parse the lines of metrics.jsonl into `input`; WEFT_ERR_INVALID with the line. */
weft_status_t weft__input_metrics(weft_input_t *input, const char *text, size_t size);

#endif
