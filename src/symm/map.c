/* A hash map over all ranks.
 *
 * A key's hash says on which rank it lives, and where its search begins in that rank's table (open
 * addressing, linear). A slot:
 *
 *     +-------+-----+-------------+-------------+
 *     | state | key | value, even | value, odd  |
 *     +-------+-----+-------------+-------------+
 *
 * `state` counts the changes of the slot, and says whether it is empty, full or erased. Change
 * number n writes its value into half n % 2, which is not the one that readers look at, and becomes
 * visible by the store of `state`. A reader copies the value and looks at `state` again: as long as
 * it has not changed, nobody has touched that half. So readers wait for nobody, and a writer that
 * dies leaves nothing half done. Writers of one table exclude each other by a lock, which the dead
 * lose.
 *
 * A search ends at an empty slot. An erased slot becomes empty again only if the one behind it is
 * empty, so that no search that should go on ends there. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "symm/shared.h"

enum { EMPTY, FULL, ERASED };

typedef struct table {
    weft_word_t lock;
    weft_word_t count; /* of full slots; written by the lock's holder, read by all */
    uint64_t unused[6];
    weft_word_t slots[];
} table_t;

struct weft_map {
    weft_symm_h symm;
    size_t value_bytes, value_words;
    size_t slot_words;
    size_t slots; /* of each rank: a power of two */
    table_t *table;
};

static uint64_t hash_of(uint64_t key)
{
    key = (key ^ key >> 32) * 0xd6e8feb86659fd93ull;
    key = (key ^ key >> 32) * 0xd6e8feb86659fd93ull;
    return key ^ key >> 32;
}

/* The table of a key, and the number of the slot at which its search begins. */
static table_t *table_of(const struct weft_map *map, uint64_t key, size_t *start_p)
{
    uint64_t hash = hash_of(key);
    int rank = (int)((hash >> 32) * (uint64_t)map->symm->size >> 32);
    *start_p = (size_t)(hash & 0xffffffffu);
    return weft__symm_at(map->symm, map->table, rank);
}

static weft_word_t *slot_at(const struct weft_map *map, table_t *table, size_t number)
{
    return table->slots + (number & (map->slots - 1)) * map->slot_words;
}

static weft_word_t *half_of(const struct weft_map *map, weft_word_t *slot, uint64_t state)
{
    return slot + 2 + (state >> 2 & 1) * map->value_words;
}

/* ---- making ----------------------------------------------------------------------------- */

static size_t root_above(size_t n)
{
    size_t root = 1;
    while (root * root < n) {
        root *= 2;
    }
    return root;
}

weft_status_t weft_map_create(weft_symm_h symm, size_t capacity, size_t value_bytes,
                              weft_map_h *map_p)
{
    WEFT_TRY(weft__symm_check_host(symm, "map_create"));
    if (!map_p) {
        return weft__refuse_null("map_create", "place for the map");
    }
    if (capacity == 0 || capacity > (size_t)1 << 31 || value_bytes > (size_t)1 << 20) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_map_create: room for %zu keys with values of %zu bytes cannot be "
                          "had; 1 to 2^31 keys, values up to 1M",
                          capacity, value_bytes);
    }
    /* A rank's share of the keys, and six standard deviations of what chance may add to it. */
    size_t share = capacity / (size_t)symm->size + 1;
    weft_map_h map = calloc(1, sizeof(*map));
    if (!map) {
        return weft__reach_break(symm->comm, WEFT_ERR_NO_MEMORY, symm->rank,
                                 "rank %d has no memory to describe a map", symm->rank);
    }
    map->symm = symm;
    map->value_bytes = value_bytes;
    map->value_words = weft__words(value_bytes);
    map->slot_words = 2 + 2 * map->value_words;
    map->slots = weft__power_of_two((share + 6 * root_above(share)) * 4 / 3);
    void *table = NULL;
    size_t bytes = sizeof(table_t) + map->slots * map->slot_words * sizeof(weft_word_t);
    weft_status_t status = weft_symm_malloc(symm, bytes, &table);
    if (status != WEFT_OK) {
        free(map);
        return status;
    }
    map->table = table;
    *map_p = map;
    return WEFT_OK;
}

weft_status_t weft_map_destroy(weft_map_h map)
{
    if (!map) {
        return WEFT_OK;
    }
    weft_status_t status = weft_symm_free(map->symm, map->table);
    free(map);
    return status;
}

/* ---- reading ---------------------------------------------------------------------------- */

/* What a look at one slot gave. */
typedef enum look { LOOK_OTHER, LOOK_FOUND, LOOK_END } look_t;

/* Partner of every load here: the release stores of change(). */
static look_t look_at(const struct weft_map *map, weft_word_t *slot, uint64_t key, void *value)
{
    for (;;) {
        uint64_t state = atomic_load_explicit(&slot[0], memory_order_acquire);
        if ((state & 3) != FULL) {
            return (state & 3) == EMPTY ? LOOK_END : LOOK_OTHER;
        }
        uint64_t found = atomic_load_explicit(&slot[1], memory_order_acquire);
        if (found == key && value) {
            weft__words_load(value, half_of(map, slot, state), map->value_bytes);
        }
        if (atomic_load_explicit(&slot[0], memory_order_acquire) == state) {
            return found == key ? LOOK_FOUND : LOOK_OTHER;
        }
    }
}

weft_status_t weft_map_find(weft_map_h map, uint64_t key, void *value)
{
    if (!map) {
        return weft__refuse_null("map_find", "map");
    }
    size_t start;
    table_t *table = table_of(map, key, &start);
    for (size_t i = 0; i < map->slots; i++) {
        look_t look = look_at(map, slot_at(map, table, start + i), key, value);
        if (look != LOOK_OTHER) {
            return look == LOOK_FOUND ? WEFT_OK : WEFT_ERR_NOT_FOUND;
        }
    }
    return WEFT_ERR_NOT_FOUND;
}

weft_status_t weft_map_count(weft_map_h map, size_t *count_p)
{
    if (!map || !count_p) {
        return weft__refuse_null("map_count", map ? "place for the count" : "map");
    }
    size_t count = 0;
    for (int p = 0; p < map->symm->size; p++) {
        table_t *table = weft__symm_at(map->symm, map->table, p);
        /* Partner: the store in add_to_count. */
        count += (size_t)atomic_load_explicit(&table->count, memory_order_acquire);
    }
    *count_p = count;
    return WEFT_OK;
}

/* ---- changing, under the table's lock ----------------------------------------------------- */

static uint64_t state_of(weft_word_t *slot)
{
    return atomic_load_explicit(&slot[0], memory_order_relaxed); /* the lock orders it */
}

/* The next state of the slot: one change more. Partner: the loads in look_at. */
static void change(weft_word_t *slot, uint64_t kind)
{
    uint64_t next = (state_of(slot) >> 2) + 1;
    atomic_store_explicit(&slot[0], next << 2 | kind, memory_order_release);
}

static void add_to_count(table_t *table, int64_t more)
{
    uint64_t count = atomic_load_explicit(&table->count, memory_order_relaxed);
    atomic_store_explicit(&table->count, count + (uint64_t)more, memory_order_release);
}

/* The count is all that a dead writer may have left wrong. */
static void count_again(const struct weft_map *map, table_t *table)
{
    uint64_t count = 0;
    for (size_t i = 0; i < map->slots; i++) {
        count += (state_of(slot_at(map, table, i)) & 3) == FULL;
    }
    atomic_store_explicit(&table->count, count, memory_order_release); /* partner: weft_map_count */
}

static weft_status_t lock_table(const struct weft_map *map, table_t *table)
{
    bool inherited;
    weft_status_t status = weft__symm_lock(map->symm, &table->lock, "a map", &inherited);
    if (status == WEFT_OK && inherited) {
        count_again(map, table);
    }
    return status;
}

/* The slot of `key`, or else one that it can have; its number in *number_p. NULL: none. */
static weft_word_t *search(const struct weft_map *map, table_t *table, uint64_t key, size_t start,
                           size_t *number_p)
{
    weft_word_t *vacant = NULL;
    for (size_t i = 0; i < map->slots; i++) {
        weft_word_t *slot = slot_at(map, table, start + i);
        uint64_t kind = state_of(slot) & 3;
        if (kind == FULL && atomic_load_explicit(&slot[1], memory_order_relaxed) == key) {
            *number_p = start + i;
            return slot;
        }
        if (kind != FULL && !vacant) {
            vacant = slot;
            *number_p = start + i;
        }
        if (kind == EMPTY) {
            break;
        }
    }
    return vacant;
}

weft_status_t weft_map_insert(weft_map_h map, uint64_t key, const void *value)
{
    if (!map || (!value && map->value_bytes > 0)) {
        return weft__refuse_null("map_insert", map ? "value" : "map");
    }
    size_t start, number;
    table_t *table = table_of(map, key, &start);
    weft_status_t status = lock_table(map, table);
    if (status != WEFT_OK) {
        return status;
    }
    weft_word_t *slot = search(map, table, key, start, &number);
    if (slot) {
        uint64_t state = state_of(slot);
        bool fresh = (state & 3) != FULL;
        if (fresh) {
            atomic_store_explicit(&slot[1], key, memory_order_release);
        }
        weft__words_store(half_of(map, slot, state + 4), value, map->value_bytes);
        change(slot, FULL);
        add_to_count(table, fresh);
    } else {
        status = weft__fail(WEFT_ERR_NO_MEMORY,
                            "weft_map_insert: no room for another key where key %llu belongs: all "
                            "%zu slots of its rank are full; create the map with more capacity",
                            (unsigned long long)key, map->slots);
    }
    weft__symm_unlock(&table->lock);
    return status;
}

/* Erased slots before an empty one need not be passed any more. */
static void tidy(const struct weft_map *map, table_t *table, size_t number)
{
    if ((state_of(slot_at(map, table, number + 1)) & 3) != EMPTY) {
        return;
    }
    for (size_t i = 0; i < map->slots; i++) {
        weft_word_t *slot = slot_at(map, table, number - i);
        if ((state_of(slot) & 3) != ERASED) {
            return;
        }
        change(slot, EMPTY);
    }
}

weft_status_t weft_map_erase(weft_map_h map, uint64_t key)
{
    if (!map) {
        return weft__refuse_null("map_erase", "map");
    }
    size_t start, number;
    table_t *table = table_of(map, key, &start);
    weft_status_t status = lock_table(map, table);
    if (status != WEFT_OK) {
        return status;
    }
    weft_word_t *slot = search(map, table, key, start, &number);
    if (slot && (state_of(slot) & 3) == FULL) {
        change(slot, ERASED);
        tidy(map, table, number);
        add_to_count(table, -1);
    } else {
        status = WEFT_ERR_NOT_FOUND;
    }
    weft__symm_unlock(&table->lock);
    return status;
}
