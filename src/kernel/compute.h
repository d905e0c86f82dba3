/* The arithmetic of training: one table of functions per kind of device.
 *
 * Every function takes its arguments in a struct, checks nothing (the model was checked when it was
 * made) and runs in the order of `stream`: with NULL it is done on return (CPU) or queued on the
 * device's default stream (CUDA). The struct is copied; what its pointers point to must live until
 * the stream has passed the call. Pointers are device memory unless said otherwise, matrices are
 * stored row by row, a stride ("ld") of 0 means that rows follow each other without a gap.
 *
 * Types. `type` is how tensors are stored: f32, bf16 or f16. All sums are in f32 at
 * least; a result of 16 bits is rounded once, and one too large for f16 is infinite. Statistics
 * (mean, rstd, lse, losses) are f32 always. `grad_type` is the type of parameters' gradients, which
 * may be f32 beside tensors of 16 bits. Gradients of parameters are added to what is there, since
 * micro-batches accumulate, but where `accumulate` of a product says otherwise; gradients of
 * activations are overwritten.
 *
 * Same bits: for the same shapes, device and number of threads (WEFT_THREADS), each function gives
 * the same bits from run to run.
 *
 * Letters: B sequences, T positions, rows = B x T tokens, C width of the residual stream,
 * H query heads, G key/value heads, D width of a head, V vocabulary. */
#ifndef WEFT_KERNEL_COMPUTE_H
#define WEFT_KERNEL_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>
#include <weft/types.h>

/* ---- sequences -------------------------------------------------------------------------- */

/* A sequence in a ragged batch: rows [row, row + length) are its tokens from `position` on. */
typedef struct weft_sequence {
    int64_t row, length;
    int64_t position; /* as many of its tokens are in the cache */
    int64_t slot;     /* which of the cache's sequences it is */
} weft_sequence_t;

/* The sequences of a batch, each with its length and position: prompts beside single tokens. Their
 * rows follow each other without a gap. */
typedef struct weft_sequences {
    int64_t count, rows;
    const weft_sequence_t *list; /* host memory */
} weft_sequences_t;

/* The sequence that a row belongs to. */
static inline const weft_sequence_t *weft__sequence_of(const weft_sequences_t *sequences,
                                                       int64_t row)
{
    int64_t first = 0, end = sequences->count;
    while (end - first > 1) {
        int64_t middle = (first + end) / 2;
        first = sequences->list[middle].row <= row ? middle : first;
        end = first == middle ? end : middle;
    }
    return &sequences->list[first];
}

/* The position of a row: of `ragged`, or where that is NULL of sequences of `seq` rows from `first`
 * on. */
static inline int64_t weft__row_position(const weft_sequences_t *ragged, int64_t row, int64_t seq,
                                         int64_t first)
{
    if (ragged == NULL) {
        return first + row % seq;
    }
    const weft_sequence_t *sequence = weft__sequence_of(ragged, row);
    return sequence->position + row - sequence->row;
}

/* ---- matrix product --------------------------------------------------------------------- */

typedef enum weft_epilogue {
    WEFT_EPILOGUE_NONE,
    WEFT_EPILOGUE_GELU, /* y is kept in `aux` (if not NULL), then c = gelu(y) */
    WEFT_EPILOGUE_DGELU /* c = y x gelu'(aux) */
} weft_epilogue_t;

/* y = op(a) op(b) + bias + add, then the epilogue gives c (m x n); or c += y. op(a) is m x k, op(b)
 * is k x n; transposed, they are stored as k x m and n x k. The three uses of a linear layer
 * y[rows][out] = x w + bias, w stored in x out (GPT-2) or out x in (LLaMA, "w^T"):
 *
 *            forward                  gradient of x            gradient of w (accumulate)
 *   in x out y = x w                  dx = dy w^T              dw = x^T dy, bias_grad
 *   out x in y = x w^T                dx = dy w                dw = dy^T x */
typedef struct weft_matmul {
    weft_dtype_t type;   /* of a, b, bias, add, aux */
    weft_dtype_t c_type; /* of c and bias_grad: `type`, or f32 */
    int64_t m, n, k;
    const void *a;
    const void *b;
    void *c;
    bool trans_a, trans_b;
    int64_t lda, ldb, ldc; /* 0: dense */
    const void *bias;      /* n, or NULL */
    const void *add;       /* m x n with c's stride, or NULL; may be c itself */
    void *aux;             /* m x n with c's stride; see the epilogue */
    void *bias_grad; /* n, or NULL: += sum over k of the rows of op(b), which is not transposed */
    weft_epilogue_t epilogue;
    bool accumulate; /* c += y; without bias, add and epilogue */
} weft_matmul_t;

/* ---- dropout ---------------------------------------------------------------------------- */

/* Which elements are dropped is a function of `key` and of the element's index in the whole,
 * unsplit tensor: the same for every plan, and computed again in backward instead of being stored.
 * Element (row, column) of the tensor at hand has the index (row0 + row) x width + column0 +
 * column. It is kept if word index % 4 of Philox at counter index / 4 under `key` is at least rate
 * x 2^32; what is kept is divided by 1 - rate. */
typedef struct weft_mask {
    float rate; /* in [0, 1); 0: nothing is dropped and the rest is not read */
    uint64_t key;
    int64_t row0, column0, width;
} weft_mask_t;

/* A key for random numbers that belong to `name`. */
uint64_t weft__name_key(uint64_t seed, const char *name);

/* Normal numbers (mean 0) number [first, first + count) of the sequence that belongs to `key`, into
 * host memory, on the team's threads. */
weft_status_t weft__fill_normal(uint64_t key, int64_t first, int64_t count, float std, float *out);

/* The key for one use of dropout: `site` names it ("h.3.attn"), `step` is the optimizer step. */
uint64_t weft__mask_key(uint64_t seed, const char *site, uint64_t step);

/* out = mask(in), or out = residual + mask(in) with a residual. out may be in or residual. Its own
 * backward, without a residual. */
typedef struct weft_dropout {
    weft_dtype_t type;
    int64_t rows, width;
    const void *in, *residual;
    void *out;
    weft_mask_t mask;
} weft_dropout_t;

/* ---- embedding -------------------------------------------------------------------------- */

/* out[b][t] = tokens_table[tokens[b][t]] + positions_table[first + t], or for a ragged batch (batch
 * 1, seq all rows; forward only) that of the row's position. A table may hold a slice of the
 * vocabulary: tokens out of [vocab_first, vocab_first + vocab_count) give zeros (plus the position)
 * and no gradient. */
typedef struct weft_embed {
    weft_dtype_t type, grad_type;
    int64_t batch, seq, width;
    int64_t position_first;
    const weft_sequences_t *ragged; /* or NULL */
    int64_t vocab_first, vocab_count;
    const int32_t *tokens; /* batch x seq */
    const void *table;     /* vocab_count x width */
    const void *positions; /* rows of width, or NULL */
    void *out;             /* forward */
    const void *dout;      /* backward */
    void *dtable, *dpositions;
    void *work; /* backward: embed_work bytes */
} weft_embed_t;

/* ---- norms ------------------------------------------------------------------------------ */

/* LayerNorm: out = (x - mean) rstd weight + bias; RMSNorm: out = x rstd weight. Each row of `width`
 * is on its own. With `branch` the residual sum comes first: x = residual + mask(branch), stored in
 * `sum`, which may be residual or branch. Backward computes x's gradient, adds `dresidual` (what
 * flows back along the residual stream; may be NULL or dx itself) and stores it in dx. */
typedef struct weft_norm {
    weft_dtype_t type, grad_type;
    bool rms;
    int64_t rows, width;
    float eps;
    const void *x;      /* without a branch: what is normed. Backward: always what was normed */
    const void *branch; /* forward: NULL, or x is the residual and this is added to it */
    void *sum;          /* forward with a branch: x + mask(branch) */
    weft_mask_t mask;
    const void *weight;
    const void *bias; /* NULL for RMSNorm */
    void *out;
    float *mean, *rstd; /* rows each; written by forward, read by backward. mean: LayerNorm only */
    const void *dout;
    const void *dresidual;
    void *dx;
    void *dweight, *dbias;
    void *work; /* backward: norm_work bytes */
} weft_norm_t;

/* ---- activations ------------------------------------------------------------------------ */

/* GELU in the tanh form. Backward: din = dout gelu'(in); din may be dout. */
typedef struct weft_gelu {
    weft_dtype_t type;
    int64_t count;
    const void *in;
    void *out;
    const void *dout;
    void *din;
} weft_gelu_t;

/* SwiGLU: out = silu(gate) up, where a row of `in` holds `width` values of gate, then of up. `din`
 * has the layout of `in` and may be it. */
typedef struct weft_swiglu {
    weft_dtype_t type;
    int64_t rows, width;
    const void *in;
    void *out;
    const void *dout;
    void *din;
} weft_swiglu_t;

/* ---- attention -------------------------------------------------------------------------- */

/* Rotate queries and keys by their position, in place, as LLaMA does: element i and i + D/2 of a
 * head are a pair, turned by position x theta^(-2i/D). `inverse` turns back: the gradient. A row is
 * a token's queries (H x D), keys (G x D) and values (G x D). A ragged batch: as weft_embed_t. */
typedef struct weft_rope {
    weft_dtype_t type;
    int64_t batch, seq;
    int heads, kv_heads, head_dim;
    int64_t position_first;
    const weft_sequences_t *ragged; /* or NULL */
    float theta;
    bool inverse;
    void *qkv;
} weft_rope_t;

/* Causal attention without a T x T matrix in memory: out = softmax(scale q k^T) v, row t sees the
 * positions up to t. Query head h uses key/value head h / (H / G). Forward keeps the logarithm of
 * each row's sum of exponentials, from which backward recomputes the probabilities. Probabilities
 * are dropped by `mask` with row ((row0 + b) x mask.width + column0 + h) x T + t, T columns: row0
 * is the first sequence's index in the global batch, width the number of all heads, column0 the
 * first head's. */
typedef struct weft_attention {
    weft_dtype_t type;
    int64_t batch, seq;
    int heads, kv_heads, head_dim;
    float scale;
    const void *qkv; /* B x T x (H + 2G) D: a token's queries, keys, values */
    void *out;       /* B x T x H D; written by forward, read by backward */
    float *lse;      /* B x H x T; likewise */
    weft_mask_t mask;
    const void *dout;
    void *dqkv; /* not qkv */
    void *work; /* backward: attention_work bytes */
} weft_attention_t;

/* Attention of new tokens over a cache, for generating text. First the keys and values of the `seq`
 * new tokens are put at positions [past, past + seq) of the cache, then each new token attends to
 * all positions up to its own. Sequences of a ragged batch (batch 1, seq all rows) have lengths,
 * positions and slots of their own; else sequence b is in slot b. */
typedef struct weft_decode {
    weft_dtype_t type;
    int64_t batch, seq, past;
    const weft_sequences_t *ragged; /* or NULL */
    int64_t capacity;               /* positions of a slot of the cache */
    int heads, kv_heads, head_dim;
    float scale;
    const void *qkv;     /* B x seq x (H + 2G) D */
    void *keys, *values; /* slots x capacity x G x D */
    void *out;           /* B x seq x H D */
} weft_decode_t;

/* ---- classifier ------------------------------------------------------------------------- */

/* Softmax and cross-entropy of `rows` rows of logits with stride ld. The table may hold a slice of
 * the vocabulary, columns [vocab_first, vocab_first + vocab) of it; columns from `vocab` to ld are
 * padding. A target of -1 is ignored: no loss, no gradient.
 *
 *   classify   on the whole vocabulary: losses[row] = -log p(target), and with `scale` not 0 the
 *              logits become their gradient, (p - [target]) x scale; padding becomes 0.
 *   stats      of a slice: stats[row] = {max, sum of exp(logit - max), target's logit or 0}
 *   finish     given lse[row] of the whole vocabulary, the gradient in place as above */
typedef struct weft_classify {
    weft_dtype_t type;
    int64_t rows, vocab, ld;
    int64_t vocab_first;
    void *logits;
    const int32_t *targets;
    float *losses;
    float *stats; /* rows x 3 */
    const float *lse;
    float scale;
} weft_classify_t;

/* ---- optimizer -------------------------------------------------------------------------- */

/* AdamW on `count` elements (Loshchilov and Hutter; decay is decoupled):
 *
 *   g = grad x grad_scale          m = b1 m + (1-b1) g          v = b2 v + (1-b2) g^2
 *   w = w - lr (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + decay w)
 *
 * A grad_scale of 0 leaves everything as it is, whatever the gradients are: the step is skipped.
 * w is `master` (f32), or `param` itself where that is f32 and master is NULL; param = w, rounded
 * to `type`. */
typedef struct weft_adamw {
    weft_dtype_t type, grad_type;
    int64_t count;
    void *param;
    float *master; /* or NULL */
    const void *grad;
    float *m, *v;
    const float *grad_scale; /* one value in device memory, or NULL: 1 */
    float lr, beta1, beta2, eps, decay;
    int64_t step; /* from 1 */
} weft_adamw_t;

/* How many tensors one call of adamw_list or sumsq_list may have. */
#define WEFT_LIST_MOST 64

/* Sums of squares for the gradient norm: partial[i] = sum of squares of elements [i, i + 1) x
 * WEFT_SUMSQ_CHUNK, in f64 and in a fixed order. Whoever cuts tensors between ranks at multiples of
 * the chunk and puts the partial sums together in one order gets the same bits under every plan. */
#define WEFT_SUMSQ_CHUNK 4096

typedef struct weft_sumsq {
    weft_dtype_t type;
    int64_t count;
    const void *in;
    double *partial; /* ceil(count / WEFT_SUMSQ_CHUNK) */
} weft_sumsq_t;

/* norm[0] = scale x sqrt(sum of partials, in an order that depends on nothing but their count);
 * norm[1] = what to multiply gradients with so that their norm is at most max_norm: scale x
 * min(1, max_norm / norm[0]). max_norm 0: no limit. A norm that is not finite gives norm[1] = 0, so
 * that AdamW skips the step. */
typedef struct weft_clip {
    const double *partial;
    int64_t count;
    float scale; /* of all gradients, as 1 / accumulated micro-batches */
    float max_norm;
    float *norm; /* 2 values */
} weft_clip_t;

/* out = in, in another type. */
typedef struct weft_cast {
    weft_dtype_t in_type, out_type; /* f32, bf16 or f16 */
    int64_t count;
    const void *in;
    void *out;
} weft_cast_t;

/* ---- the table -------------------------------------------------------------------------- */

#define WEFT_COMPUTE_TABLE(X)                                                                      \
    X(matmul, weft_matmul_t)                                                                       \
    X(dropout, weft_dropout_t)                                                                     \
    X(embed_forward, weft_embed_t)                                                                 \
    X(embed_backward, weft_embed_t)                                                                \
    X(norm_forward, weft_norm_t)                                                                   \
    X(norm_backward, weft_norm_t)                                                                  \
    X(gelu_forward, weft_gelu_t)                                                                   \
    X(gelu_backward, weft_gelu_t)                                                                  \
    X(swiglu_forward, weft_swiglu_t)                                                               \
    X(swiglu_backward, weft_swiglu_t)                                                              \
    X(rope, weft_rope_t)                                                                           \
    X(attention_forward, weft_attention_t)                                                         \
    X(attention_backward, weft_attention_t)                                                        \
    X(decode, weft_decode_t)                                                                       \
    X(classify, weft_classify_t)                                                                   \
    X(classify_stats, weft_classify_t)                                                             \
    X(classify_finish, weft_classify_t)                                                            \
    X(adamw, weft_adamw_t)                                                                         \
    X(sumsq, weft_sumsq_t)                                                                         \
    X(clip, weft_clip_t)                                                                           \
    X(cast, weft_cast_t)

/* What also takes a list of arguments: a tensor of some thousand elements is too little for a GPU,
 * and the hundred launches that a model's take last longer than the memory needs. */
#define WEFT_COMPUTE_LISTS(X)                                                                      \
    X(adamw, weft_adamw_t)                                                                         \
    X(sumsq, weft_sumsq_t)

typedef struct weft_compute {
    const char *kind; /* "cpu", "cuda" */
    bool ragged;      /* embed_forward, rope and decode take ragged batches */

    /* Logits that are made at a time: few enough to stay in a cache, or many enough to keep a GPU
     * busy. */
    int64_t head_elements;
#define WEFT_COMPUTE_SLOT(name, args_t)                                                            \
    weft_status_t (*name)(const args_t *args, weft_stream_h stream);
    WEFT_COMPUTE_TABLE(WEFT_COMPUTE_SLOT)
#undef WEFT_COMPUTE_SLOT

    /* Each of `count` (at most WEFT_LIST_MOST) sets of arguments, which differ only in their
     * tensors, count and decay: one launch on a GPU. The list is copied. */
#define WEFT_COMPUTE_LIST_SLOT(name, args_t)                                                       \
    weft_status_t (*name##_list)(const args_t *list, int count, weft_stream_h stream);
    WEFT_COMPUTE_LISTS(WEFT_COMPUTE_LIST_SLOT)
#undef WEFT_COMPUTE_LIST_SLOT

    /* Bytes of `work` that the backward of these arguments wants; pointers in them are not read. */
    size_t (*embed_work)(const weft_embed_t *args);
    size_t (*norm_work)(const weft_norm_t *args);
    size_t (*attention_work)(const weft_attention_t *args);
} weft_compute_t;

/* The table for the devices of this process. Fails, with the reason, where there is none. */
weft_status_t weft__compute(const weft_compute_t **table_p);

/* The CPU's table, for work on host memory whatever the devices are. */
extern const weft_compute_t weft__compute_cpu;

/* The instruction set of its products: that of weft__kernels(), or "amx". */
const char *weft__compute_simd(void);

/* How many threads carry out the kernels that the calling thread starts, on whatever stream; it is
 * one of them where the stream is NULL. 0: as many as the CPUs that the calling thread may run on
 * (the default; the setting WEFT_THREADS, if not 0, replaces it). Ranks that are threads of one
 * process should say their share. */
void weft__compute_threads(int count);

#endif
