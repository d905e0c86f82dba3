/* Tree: a binary tree over the ranks, pulled upwards and then downwards in chunks.
 *
 *              root                 rank v (counted from the root) has children 2v+1 and 2v+2
 *             /    \
 *            1      2               reduce: each inner rank adds its children's partial sums to
 *           / \    / \              its own data; broadcast: each rank copies from its parent
 *          3   4  5   6
 *
 * log2 N levels; every rank moves at most 2S up and S down. Partial sums of inner ranks wait in two
 * alternating halves of tmp; a leaf's partial sum is its source itself. */
#include "comm/coll/window.h"

#define HALF (WEFT_TMP_BYTES / 2)

typedef struct tree {
    weft_window_t *w;
    int parent;      /* -1 at the root */
    int children[2]; /* -1 where there is none */
    size_t element, most, chunks;
} tree_t;

/* An all-reduce has none, and where it stands for a group, something else in its place. */
static int root_of(const weft_window_t *w)
{
    return w->call->coll == WEFT_COLL_ALLREDUCE ? 0 : w->call->root;
}

static int at_position(const weft_window_t *w, int position)
{
    return position < w->size ? (position + root_of(w)) % w->size : -1;
}

static tree_t make_tree(weft_window_t *w)
{
    int v = (w->rank - root_of(w) + w->size) % w->size;
    size_t element = weft_dtype_size(w->call->type), most = HALF / element;
    return (tree_t){.w = w,
                    .parent = v == 0 ? -1 : at_position(w, (v - 1) / 2),
                    .children = {at_position(w, 2 * v + 1), at_position(w, 2 * v + 2)},
                    .element = element,
                    .most = most,
                    .chunks = (w->call->count + most - 1) / most};
}

static bool is_leaf(const weft_window_t *w, int rank)
{
    int v = (rank - root_of(w) + w->size) % w->size;
    return 2 * v + 1 >= w->size;
}

static size_t chunk_count(const tree_t *tree, size_t chunk)
{
    size_t left = tree->w->call->count - chunk * tree->most;
    return left < tree->most ? left : tree->most;
}

/* Where rank `rank` keeps its partial sum of a chunk. */
static const char *partial_of(const tree_t *tree, int rank, size_t chunk)
{
    const weft_window_t *w = tree->w;
    return is_leaf(w, rank) ? w->src[rank] + chunk * tree->most * tree->element
                            : w->tmp[rank] + (chunk & 1) * HALF;
}

static weft_status_t combine_children(const tree_t *tree, size_t chunk, char *to)
{
    weft_window_t *w = tree->w;
    const weft_call_t *call = w->call;
    size_t count = chunk_count(tree, chunk);
    const char *own = w->src[w->rank] + chunk * tree->most * tree->element;
    for (int c = 0; c < 2; c++) {
        int child = tree->children[c];
        if (child < 0) {
            continue;
        }
        weft_status_t status = w->wait(w, child, (uint32_t)chunk + 1);
        if (status != WEFT_OK) {
            return status;
        }
        w->kernels->combine(to, own, partial_of(tree, child, chunk), count, call->type, call->op);
        own = to;
    }
    return WEFT_OK;
}

/* Upwards. Step chunk+1 is signalled when the partial sum of a chunk is there, which also says that
 * the children's has been read. */
static weft_status_t tree_up(const tree_t *tree)
{
    weft_window_t *w = tree->w;
    const weft_call_t *call = w->call;
    bool root = tree->parent < 0, leaf = is_leaf(w, w->rank);
    for (size_t chunk = 0; chunk < tree->chunks; chunk++) {
        char *to = root ? w->dst[w->rank] + chunk * tree->most * tree->element
                        : w->tmp[w->rank] + (chunk & 1) * HALF;
        if (!root && !leaf && chunk >= 2) {
            weft_status_t status = w->wait(w, tree->parent, (uint32_t)chunk - 1);
            if (status != WEFT_OK) {
                return status;
            }
        }
        if (!leaf) {
            weft_status_t status = combine_children(tree, chunk, to);
            if (status != WEFT_OK) {
                return status;
            }
        }
        if (root) {
            const char *sum = leaf ? w->src[w->rank] + chunk * tree->most * tree->element : to;
            w->kernels->finish(to, sum, chunk_count(tree, chunk), call->type, call->op, w->size);
        }
        w->signal(w, (uint32_t)chunk + 1);
    }
    return WEFT_OK;
}

/* Downwards, from `source` at the root; steps go on from `base`. */
static weft_status_t tree_down(const tree_t *tree, char *const *from_root, uint32_t base)
{
    weft_window_t *w = tree->w;
    int root = root_of(w);
    for (size_t chunk = 0; chunk < tree->chunks; chunk++) {
        size_t at = chunk * tree->most * tree->element;
        size_t bytes = chunk_count(tree, chunk) * tree->element;
        uint32_t step = base + (uint32_t)chunk + 1;
        if (tree->parent >= 0) {
            weft_status_t status = w->wait(w, tree->parent, step);
            if (status != WEFT_OK) {
                return status;
            }
        }
        const char *from = tree->parent < 0 || tree->parent == root ? from_root[root]
                                                                    : w->dst[tree->parent];
        w->kernels->copy(w->dst[w->rank] + at, from + at, bytes, WEFT_STORE_CACHED);
        w->signal(w, step);
    }
    return WEFT_OK;
}

weft_status_t weft__tree(weft_window_t *w)
{
    tree_t tree = make_tree(w);
    weft_status_t status = WEFT_OK;
    if (w->call->coll == WEFT_COLL_BROADCAST) {
        return tree_down(&tree, w->src, 0);
    }
    if (w->call->coll != WEFT_COLL_REDUCE && w->call->coll != WEFT_COLL_ALLREDUCE) {
        return WEFT_ERR_UNSUPPORTED;
    }
    status = tree_up(&tree);
    if (status == WEFT_OK && w->call->coll == WEFT_COLL_ALLREDUCE) {
        status = tree_down(&tree, w->dst, (uint32_t)tree.chunks);
    }
    return status;
}
