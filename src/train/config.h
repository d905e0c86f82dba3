/* The configuration of a training run, in one table.
 *
 * The table makes the struct, the command line options, the names in configuration files, `weft
 * train --help`, the defaults, and the complete configuration that is written into the run
 * folder. To add an option, add a row.
 *
 * A configuration file has lines `name = value`, with the names and values of the options; #
 * begins a comment line. Not JSON: sizes are written as on the command line (25M), a line can be
 * commented out, and what a run wrote can be read, changed and passed back with --config. The
 * command line has the last word.
 *
 * Kinds: INT, SIZE (K, M, G), REAL, BOOL (yes, no), STR, AUTO: the same, "auto" where the option
 * is given without a value, and ONE: one of the words in the last column. An option may have other
 * names, which are read and never written: WEFT_TRAIN_NAMES. */
#ifndef WEFT_TRAIN_CONFIG_H
#define WEFT_TRAIN_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <weft/status.h>

/*    kind  field           option            letter metavar   default  words or ""
 * help */
#define WEFT_TRAIN_TABLE(X)                                                                        \
    X(INT, ranks, "ranks", 'n', "N", "1", "", "number of ranks, each with a device of its own")    \
    X(ONE, device, "device", 0, "KIND", "auto", "auto cpu cuda",                                   \
      "where ranks live; cpu: on virtual GPUs, auto: on cuda where there is a GPU; WEFT_DEVICE, "  \
      "where it is set, is the default")                                                           \
    X(STR, model, "model", 0, "NAME", "tiny", "",                                                  \
      "a preset (tiny, gpt2-124m, ...; --model help lists them), a config.json, or a folder with " \
      "one")                                                                                       \
    X(STR, data, "data", 0, "PATH", "", "",                                                        \
      "text file or folder, or token shards of llm.c (.bin file, folder, \"pattern*.bin\")")       \
    X(STR, eval_data, "eval-data", 0, "PATH", "", "",                                              \
      "data for validation; without it the end of --data is kept for that")                        \
    X(REAL, eval_share, "eval-share", 0, "X", "0.05", "",                                          \
      "share of --data kept for validation if there is no --eval-data")                            \
    X(STR, tokenizer, "tokenizer", 0, "FILE", "auto", "",                                          \
      "bytes, a tokenizer.json of Hugging Face (byte-level BPE), or none, with token shards; "     \
      "auto: "                                                                                     \
      "that of --model's folder, or none for shards, or bytes")                                    \
    X(INT, length, "length", 'T', "T", "0", "",                                                    \
      "tokens of a sequence; 0: all that the model takes")                                         \
    X(INT, batch, "batch", 'b', "B", "0", "",                                                      \
      "sequences of a step, over all ranks; 0: for each data-parallel rank 8, or as "              \
      "--micro-batch "                                                                             \
      "or --accumulate says")                                                                      \
    X(INT, micro_batch, "micro-batch", 0, "B", "0", "",                                            \
      "sequences a rank computes at once; 0: its part of the batch, divided by --accumulate")      \
    X(INT, accumulate, "accumulate", 0, "N", "0", "",                                              \
      "micro-batches a rank adds up before gradients are exchanged; 0: as --batch and "            \
      "--micro-batch need")                                                                        \
    X(INT, steps, "steps", 's', "N", "1000", "",                                                   \
      "steps to train in all, those before a --resume included")                                   \
    X(REAL, lr, "lr", 0, "X", "3e-4", "", "learning rate, at its highest")                         \
    X(ONE, lr_schedule, "lr-schedule", 0, "NAME", "cosine", "constant linear cosine wsd",          \
      "after the warmup: constant; linear or cosine down to --min-lr; wsd (constant, then linear " \
      "over the last --lr-decay)")                                                                 \
    X(REAL, min_lr, "min-lr", 0, "X", "0", "", "learning rate at the end")                         \
    X(INT, warmup, "warmup", 0, "N", "0", "", "steps in which the learning rate rises from 0")     \
    X(REAL, lr_decay, "lr-decay", 0, "X", "0.2", "", "wsd: share of the steps in which it falls")  \
    X(REAL, weight_decay, "weight-decay", 0, "X", "0.1", "",                                       \
      "of matrices; not of biases and norms")                                                      \
    X(REAL, beta1, "beta1", 0, "X", "0.9", "", "AdamW: decay of the first moment")                 \
    X(REAL, beta2, "beta2", 0, "X", "0.95", "", "AdamW: decay of the second moment")               \
    X(REAL, eps, "eps", 0, "X", "1e-8", "", "AdamW: added to the root of the second moment")       \
    X(REAL, clip, "clip", 0, "X", "1", "", "largest norm of the gradient; 0: no limit")            \
    X(REAL, dropout, "dropout", 0, "X", "0", "", "share of activations dropped in training")       \
    X(ONE, precision, "precision", 0, "TYPE", "auto", "auto fp32 bf16 fp16",                       \
      "of weights and activations, not of optimizer state, which is fp32; auto: bf16 on cuda, "    \
      "else fp32; fp16 scales the loss")                                                           \
    X(REAL, loss_scale, "loss-scale", 0, "X", "65536", "",                                         \
      "fp16: what the loss is multiplied with at first; it halves when gradients overflow, and "   \
      "doubles after 2000 steps in which they did not")                                            \
    X(ONE, grad_precision, "grad-precision", 0, "TYPE", "fp32", "fp32 bf16",                       \
      "of gradients; bf16 (with --precision bf16): half the memory and traffic, rounded sums")     \
    X(INT, seed, "seed", 0, "N", "1", "", "of weights, order of the data, dropout and sampling")   \
    X(INT, eval_every, "eval", 0, "N", "0", "", "validate every N steps; 0: at the end only")      \
    X(INT, eval_batches, "eval-batches", 0, "N", "10", "", "batches of a validation")              \
    X(INT, save_every, "save", 0, "N", "0", "",                                                    \
      "write a checkpoint every N steps; 0: at the end only; -1: never")                           \
    X(INT, keep, "keep", 0, "N", "3", "", "newest checkpoints of this run to keep; 0: all")        \
    X(STR, out, "out", 'o', "DIR", "", "",                                                         \
      "run folder: checkpoints, metrics.jsonl, config; without it nothing is written")             \
    X(STR, resume, "resume", 0, "PATH", "", "",                                                    \
      "go on from a checkpoint or a run folder, and in that folder unless --out names another; "   \
      "auto: from --out, if there is one")                                                         \
    X(INT, max_restarts, "max-restarts", 0, "N", "0", "",                                          \
      "start all ranks again after a failure, from the last checkpoint, at most N times")          \
    X(REAL, grace, "grace", 0, "SECONDS", "0", "",                                                 \
      "how long ranks may take to end after a signal, or when one has failed, before they are "    \
      "killed; 0: after a signal as long as steps and checkpoints take, else 10")                  \
    X(INT, sample_every, "sample", 0, "N", "0", "", "write some text every N steps; 0: not")       \
    X(INT, sample_tokens, "sample-tokens", 0, "N", "128", "", "length of such a text")             \
    X(STR, prompt, "prompt", 0, "TEXT", "", "", "what sampled text starts with")                   \
    X(INT, log_every, "log", 0, "N", "1", "", "print every Nth step, unless on a terminal")        \
    X(SIZE, bucket, "bucket", 0, "SIZE", "25M", "",                                                \
      "gradients exchanged in one call; 0: each tensor by itself, with --zero each block")         \
    X(BOOL, overlap, "overlap", 0, "no", "yes", "",                                                \
      "exchange gradients while the backward pass goes on; no: after it")                          \
    X(ONE, compress, "compress", 0, "TYPE", "none", "none bf16 fp16 int8",                         \
      "exchange gradients as bf16, fp16 or int8 (with error feedback)")                            \
    X(ONE, dp_style, "dp-style", 0, "NAME", "buckets", "buckets naive",                            \
      "for comparison; naive: rank 0 collects gradients and hands out weights")                    \
    X(STR, trace, "trace", 0, "FILE", "", "",                                                      \
      "write a trace for Perfetto: compute and communication of every rank")                       \
    X(AUTO, tensorboard, "tensorboard", 0, "[DIR]", "", "",                                        \
      "write what is measured for TensorBoard too, into DIR, or without one into tensorboard in "  \
      "the run folder; none: not")                                                                 \
    X(INT, dp, "dp", 0, "N", "0", "", "data-parallel ranks; 0: ranks / (pp x tp)")                 \
    X(INT, pp, "pp", 0, "N", "1", "", "pipeline stages")                                           \
    X(INT, tp, "tp", 0, "N", "1", "", "tensor-parallel ranks")                                     \
    X(INT, zero, "zero", 0, "STAGE", "0", "",                                                      \
      "ZeRO: 0, 1 (optimizer), 2 (and gradients), 3 (and weights) spread over dp")                 \
    X(ONE, schedule, "schedule", 0, "NAME", "1f1b", "gpipe 1f1b interleaved",                      \
      "order of micro-batches in a pipeline")                                                      \
    X(ONE, recompute, "recompute", 0, "WHAT", "none", "none selective full",                       \
      "compute again in the backward pass; selective: attention, full: whole blocks")              \
    X(INT, virtual_stages, "virtual-stages", 0, "N", "2", "",                                      \
      "pipeline stages that a rank has with --schedule interleaved")                               \
    X(BOOL, sequence_parallel, "sequence-parallel", 0, "[yes]", "no", "",                          \
      "cut norms and the residual stream among tensor-parallel ranks too, by rows")                \
    X(ONE, offload, "offload", 0, "WHAT", "none", "none optimizer",                                \
      "optimizer: keep its state in host memory and update it there")                              \
    X(BOOL, lean, "lean", 0, "[yes]", "no", "",                                                    \
      "--zero 2 and 3: exchange gradients after every micro-batch, to hold fewer of them")

/*    name            option         listed in the help as; NULL: not */
#define WEFT_TRAIN_NAMES(X)                                                                        \
    X("micro-batches", "accumulate", "the same as --accumulate, as pipelines call it")             \
    X("pp-schedule", "schedule", NULL)

#define WEFT_TRAIN_INT int
#define WEFT_TRAIN_SIZE size_t
#define WEFT_TRAIN_REAL double
#define WEFT_TRAIN_BOOL bool
#define WEFT_TRAIN_STR const char *
#define WEFT_TRAIN_AUTO const char *
#define WEFT_TRAIN_ONE const char *

#define WEFT_TRAIN_NOT_ASKED INT_MIN
#define WEFT_TRAIN_BENCHMARK_STEPS 20 /* --steps of --benchmark */

typedef struct weft_train_config {
#define WEFT_TRAIN_FIELD(kind, field, name, letter, metavar, value, words, help)                   \
    WEFT_TRAIN_##kind field;
    WEFT_TRAIN_TABLE(WEFT_TRAIN_FIELD)
#undef WEFT_TRAIN_FIELD
    int asked_ranks;  /* -n on the command line; WEFT_TRAIN_NOT_ASKED: there was none */
    bool asked_steps; /* --steps likewise */
    bool dry_run;     /* --dry-run, --force: not part of a configuration, and not written */
    bool force;
    bool benchmark;            /* --benchmark, --json: likewise */
    const char *json;          /* NULL: no file */
    const char *earlier_model; /* --model of the run that this one goes on from; NULL: of none */
    char *texts[4];            /* owned: what strings from files point into */
    int text_count;
} weft_train_config_t;

/* Defaults, then the file named by --config, then the command line. argv is left as it is. With
 * --benchmark, what it has no use for is left out if the file says it, and refused if it was typed.
 * *help_p: --help was given and the rest was not looked at (weft__train_help prints it).
 * WEFT_ERR_INVALID with a sentence. Strings point into argv or belong to the configuration:
 * weft__train_free, after failures too. */
weft_status_t weft__train_parse(int argc, char **argv, weft_train_config_t *config, bool *help_p);
void weft__train_free(weft_train_config_t *config);

/* The run that another goes on from. */
typedef struct weft_train_earlier {
    const char *settings; /* as it wrote them */
    const char *out; /* its folder, which may have been moved; must outlive the configuration */
} weft_train_earlier_t;

/* The same for a run that goes on, with what the earlier one had in place of the defaults. With
 * other ranks or another batch, how that is divided among them is left open again. */
weft_status_t weft__train_parse_resumed(const weft_train_earlier_t *earlier, int argc, char **argv,
                                        weft_train_config_t *config);
void weft__train_help(FILE *out);

/* Read a configuration file over *config; all of it or, on an error, a part. */
weft_status_t weft__train_read(const char *path, weft_train_config_t *config);
weft_status_t weft__train_read_text(const char *text, const char *name,
                                    weft_train_config_t *config);

/* The whole configuration as the text of a configuration file, malloced; reading it gives the
 * same values. `extra` ("" for none) goes before it, as comments. */
weft_status_t weft__train_write_text(const weft_train_config_t *config, const char *extra,
                                     char **text_p);

/* What the model and the machine say, as far as the configuration has to fit them. 0: not known
 * yet, not checked. */
typedef struct weft_train_limits {
    int context; /* longest sequence of the model */
    int layers, heads, kv_heads;
    int vocab;
} weft_train_limits_t;

/* Fill in what was left open (dp, length, batch, micro_batch, accumulate; not device and
 * precision, which depend on the machine) and refuse what cannot work, saying what would.
 * Afterwards batch = dp * micro_batch * accumulate and ranks = dp * pp * tp. */
weft_status_t weft__train_resolve(weft_train_config_t *config, const weft_train_limits_t *limits);

/* The first parts of it, for who has more to say when one of them fails: ranges of values and what
 * contradicts itself; how the model is cut, and the ranks that are left for dp. */
weft_status_t weft__train_check(const weft_train_config_t *config);
weft_status_t weft__train_mesh(weft_train_config_t *config, const weft_train_limits_t *limits);

#define WEFT_TRAIN_ACCUMULATE_MOST (1 << 20) /* micro-batches of a step */

/* The folder for TensorBoard's files into `out` (WEFT_PATH_BYTES); "": none is wanted. */
weft_status_t weft__train_tensorboard(const weft_train_config_t *config, char *out);

/* Learning rate of step `step` (0, 1, ...) of `config->steps`. */
double weft__train_lr(const weft_train_config_t *config, uint64_t step);

#endif
