/* Byte-pair encoding. Three ways through a word: it was seen before (a table remembers short
 * words, which is where most of the text goes), it is short (look for the best merge in a row of
 * ranks), or it is long (a heap, so that a text without spaces takes n log n and not n * n). */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mac.h"

#define NO_RANK UINT32_MAX
#define SHORT_WORD 64
#define SEEN_ROWS (1u << 16)
#define SEEN_BYTES 22
#define SEEN_TOKENS 6

typedef struct seen {
    uint8_t length, count;
    char bytes[SEEN_BYTES];
    uint32_t tokens[SEEN_TOKENS];
} seen_t;

typedef struct merge {
    uint32_t left, right; /* both NO_TOKEN: an empty row */
    uint32_t rank, token;
} merge_t;

#define NO_TOKEN UINT32_MAX

typedef struct span {
    size_t start;
    uint32_t length;
    bool there;
} span_t;

struct weft_bpe {
    uint32_t vocab;
    span_t *spans; /* per token */
    char *bytes;   /* all of them */
    size_t byte_count, byte_room;
    uint32_t *by_bytes; /* token by hash of its bytes, NO_TOKEN: empty */
    size_t by_bytes_mask;
    merge_t *merges;
    size_t merge_count, merge_mask;
    uint32_t of_byte[256];
    seen_t *seen;
};

/* Of words that are remembered, where it does not matter which ones share a row. */
static uint64_t hash_word(const char *bytes, size_t length)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ length;
    for (; length >= 8; length -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    uint64_t tail = 0;
    memcpy(&tail, bytes, length);
    hash = (hash ^ tail) * 0xC4CEB9FE1A85EC53u;
    return hash ^ hash >> 29;
}

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

weft_status_t weft__tokens_reserve(weft_tokens_t *tokens, size_t more)
{
    if (tokens->room - tokens->count >= more) {
        return WEFT_OK;
    }
    size_t room = tokens->room * 2 > tokens->count + more ? tokens->room * 2 : tokens->count + more;
    uint32_t *at = realloc(tokens->at, room * sizeof(*at));
    if (at == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu tokens", room);
    }
    tokens->at = at;
    tokens->room = room;
    return WEFT_OK;
}

/* ---- building ------------------------------------------------------------------------------- */

weft_status_t weft__bpe_create(uint32_t vocab, weft_bpe_t **bpe_p)
{
    weft_bpe_t *bpe = calloc(1, sizeof(*bpe));
    size_t rows = 1024;
    while (rows < (size_t)vocab * 2) {
        rows *= 2;
    }
    if (bpe != NULL) {
        bpe->vocab = vocab;
        bpe->spans = calloc(vocab, sizeof(*bpe->spans));
        bpe->by_bytes = malloc(rows * sizeof(*bpe->by_bytes));
        bpe->by_bytes_mask = rows - 1;
        bpe->seen = calloc(SEEN_ROWS, sizeof(*bpe->seen));
    }
    if (bpe == NULL || bpe->spans == NULL || bpe->by_bytes == NULL || bpe->seen == NULL) {
        weft__bpe_destroy(bpe);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a vocabulary of %u tokens", vocab);
    }
    memset(bpe->by_bytes, 0xFF, rows * sizeof(*bpe->by_bytes));
    memset(bpe->of_byte, 0xFF, sizeof(bpe->of_byte));
    *bpe_p = bpe;
    return WEFT_OK;
}

void weft__bpe_destroy(weft_bpe_t *bpe)
{
    if (bpe != NULL) {
        free(bpe->spans);
        free(bpe->bytes);
        free(bpe->by_bytes);
        free(bpe->merges);
        free(bpe->seen);
        free(bpe);
    }
}

/* The row of by_bytes where these bytes are or would be. */
static size_t bytes_row(const weft_bpe_t *bpe, const char *bytes, size_t length)
{
    size_t row = weft__hash(bytes, length) & bpe->by_bytes_mask; /* a file chooses the bytes */
    for (; bpe->by_bytes[row] != NO_TOKEN; row = (row + 1) & bpe->by_bytes_mask) {
        const span_t *span = &bpe->spans[bpe->by_bytes[row]];
        if (span->length == length && memcmp(bpe->bytes + span->start, bytes, length) == 0) {
            break;
        }
    }
    return row;
}

weft_status_t weft__bpe_add(weft_bpe_t *bpe, uint32_t token, const char *bytes, size_t length)
{
    if (token >= bpe->vocab || bpe->spans[token].there || length == 0 || length >= UINT32_MAX) {
        return weft__fail(WEFT_ERR_INVALID, "token %u occurs twice, is empty or is out of range",
                          token);
    }
    size_t row = bytes_row(bpe, bytes, length);
    if (bpe->by_bytes[row] != NO_TOKEN) {
        return weft__fail(WEFT_ERR_INVALID, "tokens %u and %u have the same bytes", token,
                          bpe->by_bytes[row]);
    }
    if (bpe->byte_room - bpe->byte_count < length) {
        size_t room = bpe->byte_room * 2 + length + 4096;
        char *larger = realloc(bpe->bytes, room);
        if (larger == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of tokens", room);
        }
        bpe->bytes = larger;
        bpe->byte_room = room;
    }
    memcpy(bpe->bytes + bpe->byte_count, bytes, length);
    bpe->spans[token] = (span_t){bpe->byte_count, (uint32_t)length, true};
    bpe->byte_count += length;
    bpe->by_bytes[row] = token;
    if (length == 1) {
        bpe->of_byte[(unsigned char)bytes[0]] = token;
    }
    return WEFT_OK;
}

int64_t weft__bpe_find(const weft_bpe_t *bpe, const char *bytes, size_t length)
{
    uint32_t token = bpe->by_bytes[bytes_row(bpe, bytes, length)];
    return token != NO_TOKEN ? (int64_t)token : -1;
}

const char *weft__bpe_bytes(const weft_bpe_t *bpe, uint32_t token, size_t *length_p)
{
    bool there = token < bpe->vocab && bpe->spans[token].there;
    *length_p = there ? bpe->spans[token].length : 0;
    return there ? bpe->bytes + bpe->spans[token].start : NULL;
}

/* The row of merges where this pair is or would be. */
static merge_t *merge_row(const weft_bpe_t *bpe, uint32_t left, uint32_t right)
{
    size_t row = hash_pair(left, right) & bpe->merge_mask;
    while (bpe->merges[row].left != NO_TOKEN &&
           (bpe->merges[row].left != left || bpe->merges[row].right != right)) {
        row = (row + 1) & bpe->merge_mask;
    }
    return &bpe->merges[row];
}

static weft_status_t grow_merges(weft_bpe_t *bpe)
{
    merge_t *old = bpe->merges;
    size_t old_rows = old != NULL ? bpe->merge_mask + 1 : 0;
    size_t rows = old_rows > 0 ? old_rows * 2 : 4096;
    merge_t *merges = malloc(rows * sizeof(*merges));
    if (merges == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu merges", rows);
    }
    memset(merges, 0xFF, rows * sizeof(*merges));
    bpe->merges = merges;
    bpe->merge_mask = rows - 1;
    for (size_t i = 0; i < old_rows; i++) {
        if (old[i].left != NO_TOKEN) {
            *merge_row(bpe, old[i].left, old[i].right) = old[i];
        }
    }
    free(old);
    return WEFT_OK;
}

/* The token made of the bytes of both; -1 if there is none. */
static int64_t joined(const weft_bpe_t *bpe, uint32_t left, uint32_t right)
{
    const span_t *a = &bpe->spans[left], *b = &bpe->spans[right];
    char room[512], *both = room;
    if ((size_t)a->length + b->length > sizeof(room)) {
        both = malloc((size_t)a->length + b->length);
        if (both == NULL) {
            return -1;
        }
    }
    memcpy(both, bpe->bytes + a->start, a->length);
    memcpy(both + a->length, bpe->bytes + b->start, b->length);
    int64_t token = weft__bpe_find(bpe, both, (size_t)a->length + b->length);
    if (both != room) {
        free(both);
    }
    return token;
}

weft_status_t weft__bpe_merge(weft_bpe_t *bpe, uint32_t left, uint32_t right, uint32_t rank)
{
    int64_t token = joined(bpe, left, right);
    if (token < 0) {
        return weft__fail(WEFT_ERR_INVALID, "merge %u joins tokens %u and %u to what is no token",
                          rank, left, right);
    }
    if (bpe->merges == NULL || bpe->merge_count * 2 > bpe->merge_mask) {
        WEFT_TRY(grow_merges(bpe));
    }
    merge_t *row = merge_row(bpe, left, right);
    bpe->merge_count += row->left == NO_TOKEN ? 1 : 0;
    *row = (merge_t){left, right, rank, (uint32_t)token};
    return WEFT_OK;
}

/* ---- short words ---------------------------------------------------------------------------- */

/* Rank of joining two neighbours; NO_RANK if they may not be. */
static uint32_t rank_of(const weft_bpe_t *bpe, uint32_t left, uint32_t right, uint32_t *token_p)
{
    if (bpe->merges == NULL) {
        return NO_RANK;
    }
    const merge_t *row = merge_row(bpe, left, right);
    *token_p = row->token;
    return row->left != NO_TOKEN ? row->rank : NO_RANK;
}

/* `tokens` are the word's bytes; joined in place. Returns how many are left. */
static size_t join_short(const weft_bpe_t *bpe, uint32_t *tokens, size_t count)
{
    uint32_t ranks[SHORT_WORD], made[SHORT_WORD]; /* of token i and the one after it */
    for (size_t i = 0; i + 1 < count; i++) {
        ranks[i] = rank_of(bpe, tokens[i], tokens[i + 1], &made[i]);
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) {
            best = ranks[i] < ranks[best] ? i : best;
        }
        if (ranks[best] == NO_RANK) {
            break;
        }
        tokens[best] = made[best];
        size_t after = count - best - 2; /* tokens behind the pair */
        memmove(tokens + best + 1, tokens + best + 2, after * sizeof(*tokens));
        if (after > 0) {
            memmove(ranks + best + 1, ranks + best + 2, (after - 1) * sizeof(*ranks));
            memmove(made + best + 1, made + best + 2, (after - 1) * sizeof(*made));
            ranks[best] = rank_of(bpe, tokens[best], tokens[best + 1], &made[best]);
        }
        count--;
        if (best > 0) {
            ranks[best - 1] = rank_of(bpe, tokens[best - 1], tokens[best], &made[best - 1]);
        }
    }
    return count;
}

/* ---- long words ----------------------------------------------------------------------------- */

typedef struct link {
    uint32_t token; /* NO_TOKEN: joined to the one before */
    uint32_t before, after;
} link_t;

#define NO_LINK UINT32_MAX

/* A possible merge: of the link at `at`, if it is still `left` and its neighbour `right`. */
typedef struct chance {
    uint32_t rank, at;
    uint32_t left, right, token;
} chance_t;

typedef struct heap {
    chance_t *chances;
    size_t count;
} heap_t;

static bool sooner(const chance_t *a, const chance_t *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(heap_t *heap, chance_t chance)
{
    size_t at = heap->count++;
    while (at > 0 && sooner(&chance, &heap->chances[(at - 1) / 2])) {
        heap->chances[at] = heap->chances[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->chances[at] = chance;
}

static chance_t heap_pop(heap_t *heap)
{
    chance_t first = heap->chances[0], last = heap->chances[--heap->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count) {
            break;
        }
        if (child + 1 < heap->count && sooner(&heap->chances[child + 1], &heap->chances[child])) {
            child++;
        }
        if (!sooner(&heap->chances[child], &last)) {
            break;
        }
        heap->chances[at] = heap->chances[child];
        at = child;
    }
    heap->chances[at] = last;
    return first;
}

/* Note what joining the links at `at` and after it would do, if it may be done. */
static void consider(const weft_bpe_t *bpe, const link_t *links, heap_t *heap, uint32_t at)
{
    if (at == NO_LINK || links[at].after == NO_LINK) {
        return;
    }
    chance_t chance = {.at = at, .left = links[at].token, .right = links[links[at].after].token};
    chance.rank = rank_of(bpe, chance.left, chance.right, &chance.token);
    if (chance.rank != NO_RANK) {
        heap_push(heap, chance);
    }
}

static void join_links(const weft_bpe_t *bpe, link_t *links, heap_t *heap)
{
    while (heap->count > 0) {
        chance_t chance = heap_pop(heap);
        link_t *left = &links[chance.at];
        if (left->token != chance.left || left->after == NO_LINK ||
            links[left->after].token != chance.right) {
            continue; /* one of the two has been joined otherwise meanwhile */
        }
        link_t *right = &links[left->after];
        left->token = chance.token;
        right->token = NO_TOKEN;
        left->after = right->after;
        if (left->after != NO_LINK) {
            links[left->after].before = chance.at;
        }
        consider(bpe, links, heap, left->before);
        consider(bpe, links, heap, chance.at);
    }
}

static weft_status_t encode_long(const weft_bpe_t *bpe, const char *word, size_t length,
                                 weft_tokens_t *tokens)
{
    if (length >= NO_LINK) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "a word of %zu bytes is too long to encode",
                          length);
    }
    link_t *links = malloc(length * sizeof(*links));
    /* Every pair is considered once at the start, and every join adds two and ends one. */
    heap_t heap = {malloc(length * 3 * sizeof(*heap.chances)), 0};
    weft_status_t status = WEFT_OK;
    if (links == NULL || heap.chances == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory to encode a word of %zu bytes", length);
        goto out;
    }
    for (size_t i = 0; i < length; i++) {
        links[i] = (link_t){bpe->of_byte[(unsigned char)word[i]], i > 0 ? (uint32_t)i - 1 : NO_LINK,
                            i + 1 < length ? (uint32_t)i + 1 : NO_LINK};
    }
    for (size_t i = 0; i < length; i++) {
        consider(bpe, links, &heap, (uint32_t)i);
    }
    join_links(bpe, links, &heap);
    for (uint32_t i = 0; i != NO_LINK; i = links[i].after) {
        tokens->at[tokens->count++] = links[i].token;
    }
out:
    free(links);
    free(heap.chances);
    return status;
}

/* ---- a word --------------------------------------------------------------------------------- */

/* Where a short word is remembered, if it is; the row in any case. */
static seen_t *seen_row(const weft_bpe_t *bpe, const char *word, size_t length, bool *known_p)
{
    seen_t *row = &bpe->seen[hash_word(word, length) & (SEEN_ROWS - 1)];
    *known_p = row->length == length && memcmp(row->bytes, word, length) == 0;
    return row;
}

static void encode_short(const weft_bpe_t *bpe, const char *word, size_t length, bool whole,
                         weft_tokens_t *tokens)
{
    uint32_t *out = tokens->at + tokens->count;
    int64_t token = whole ? weft__bpe_find(bpe, word, length) : -1;
    if (token >= 0) {
        out[0] = (uint32_t)token;
        tokens->count++;
        return;
    }
    for (size_t i = 0; i < length; i++) {
        out[i] = bpe->of_byte[(unsigned char)word[i]];
    }
    tokens->count += join_short(bpe, out, length);
}

weft_status_t weft__bpe_encode(weft_bpe_t *bpe, const char *word, size_t length, bool whole,
                               weft_tokens_t *tokens)
{
    weft_status_t status = weft__tokens_reserve(tokens, length);
    if (status != WEFT_OK || length == 0) {
        return status;
    }
    if (length > SHORT_WORD) {
        int64_t token = whole ? weft__bpe_find(bpe, word, length) : -1;
        if (token >= 0) {
            tokens->at[tokens->count++] = (uint32_t)token;
            return WEFT_OK;
        }
        return encode_long(bpe, word, length, tokens);
    }
    if (length > SEEN_BYTES) {
        encode_short(bpe, word, length, whole, tokens);
        return WEFT_OK;
    }
    bool known;
    seen_t *row = seen_row(bpe, word, length, &known);
    if (known) {
        memcpy(tokens->at + tokens->count, row->tokens, row->count * sizeof(uint32_t));
        tokens->count += row->count;
        return WEFT_OK;
    }
    size_t before = tokens->count;
    encode_short(bpe, word, length, whole, tokens);
    size_t count = tokens->count - before;
    if (count <= SEEN_TOKENS) {
        row->length = (uint8_t)length;
        row->count = (uint8_t)count;
        memcpy(row->bytes, word, length);
        memcpy(row->tokens, tokens->at + before, count * sizeof(uint32_t));
    }
    return WEFT_OK;
}
