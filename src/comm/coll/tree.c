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

#include "base/log.h"

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

/* Add the children's partial sums of a chunk, each where it keeps them. */
static weft_status_t combine_children(const tree_t *tree, size_t chunk, char *to)
{
    weft_window_t *w = tree->w;
    size_t count = chunk_count(tree, chunk), at = chunk * tree->most * tree->element;
    const char *own = w->src[w->rank] + at;
    for (int c = 0; c < 2; c++) {
        int child = tree->children[c];
        if (child < 0) {
            continue;
        }
        bool leaf = is_leaf(w, child);
        WEFT_TRY(w->wait(w, child, (uint32_t)chunk + 1));
        WEFT_TRY(weft__reduce_from(w, to, own, leaf ? WEFT_SRC : WEFT_TMP, child,
                                   leaf ? at : (chunk & 1) * HALF, count, WEFT_RIGHT));
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
            WEFT_TRY(w->wait(w, tree->parent, (uint32_t)chunk - 1));
        }
        if (!leaf) {
            WEFT_TRY(combine_children(tree, chunk, to));
        }
        if (root) {
            const char *sum = leaf ? w->src[w->rank] + chunk * tree->most * tree->element : to;
            w->kernels->finish(to, sum, chunk_count(tree, chunk), call->type, call->op, w->size);
        }
        w->signal(w, (uint32_t)chunk + 1);
    }
    return WEFT_OK;
}

/* Downwards, from that buffer of the root; steps go on from `base`. */
static weft_status_t tree_down(const tree_t *tree, weft_buffer_t from_root, uint32_t base)
{
    weft_window_t *w = tree->w;
    int root = root_of(w);
    for (size_t chunk = 0; chunk < tree->chunks; chunk++) {
        size_t at = chunk * tree->most * tree->element;
        size_t bytes = chunk_count(tree, chunk) * tree->element;
        uint32_t step = base + (uint32_t)chunk + 1;
        if (tree->parent >= 0) {
            WEFT_TRY(w->wait(w, tree->parent, step));
        }
        bool first = tree->parent < 0 || tree->parent == root;
        WEFT_TRY(weft__get(w, w->dst[w->rank] + at, first ? from_root : WEFT_DST,
                           first ? root : tree->parent, at, bytes));
        w->signal(w, step);
    }
    return WEFT_OK;
}

weft_status_t weft__tree(weft_window_t *w)
{
    tree_t tree = make_tree(w);
    w->store = WEFT_STORE_CACHED; /* what is copied is read again, by the children */
    if (w->call->coll == WEFT_COLL_BROADCAST) {
        return tree_down(&tree, WEFT_SRC, 0);
    }
    if (w->call->coll != WEFT_COLL_REDUCE && w->call->coll != WEFT_COLL_ALLREDUCE) {
        return WEFT_ERR_UNSUPPORTED;
    }
    WEFT_TRY(tree_up(&tree));
    return w->call->coll == WEFT_COLL_ALLREDUCE ? tree_down(&tree, WEFT_DST, (uint32_t)tree.chunks)
                                                : WEFT_OK;
}
