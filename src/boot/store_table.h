/* The store's keys: a hash table with chains. Values and barriers are kept apart by their kind, so
 * that a barrier may be named like a value. Used by the server's thread alone. */
#ifndef WEFT_BOOT_STORE_TABLE_H
#define WEFT_BOOT_STORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mac.h"

/* All keys and values of one store together. */
#define WEFT_STORE_TABLE_MAX ((size_t)256 << 20)

typedef enum weft_store_kind { WEFT_STORE_VALUE, WEFT_STORE_MEETING } weft_store_kind_t;

struct weft_store_client;

typedef struct weft_store_entry {
    struct weft_store_entry *next; /* of the chain */
    uint64_t hash;
    weft_store_kind_t kind;
    struct weft_store_client *waiters; /* parked here; an entry lives while it has some */
    int arrived, size;                 /* of a barrier: arrived is the length of waiters */
    bool exists;                       /* a value is there, be it of 0 bytes */
    uint8_t *value;
    size_t value_bytes;
    size_t key_bytes;
    uint8_t key[];
} weft_store_entry_t;

typedef struct weft_store_table {
    weft_store_entry_t **chains;
    size_t chain_count, entry_count;
    size_t bytes; /* held by keys and values */
    uint8_t hash_key[WEFT_MAC_KEY_BYTES];
} weft_store_table_t;

/* `hash_key`: random, so that nobody can choose keys that fall into one chain. */
bool weft__store_table_init(weft_store_table_t *table, const uint8_t hash_key[WEFT_MAC_KEY_BYTES]);
void weft__store_table_cleanup(weft_store_table_t *table);

/* NULL if there is none. */
weft_store_entry_t *weft__store_table_find(const weft_store_table_t *table, weft_store_kind_t kind,
                                           const uint8_t *key, size_t key_bytes);
/* Find or add. NULL if there is no memory or the table is full. */
weft_store_entry_t *weft__store_table_add(weft_store_table_t *table, weft_store_kind_t kind,
                                          const uint8_t *key, size_t key_bytes);
/* Give an entry a value. false, with the old one in place, if there is no room. */
bool weft__store_table_set(weft_store_table_t *table, weft_store_entry_t *entry, const void *value,
                           size_t bytes);
void weft__store_table_unset(weft_store_table_t *table, weft_store_entry_t *entry);
/* Forget an entry that holds nothing: no value and no waiters. */
void weft__store_table_tidy(weft_store_table_t *table, weft_store_entry_t *entry);

#endif
