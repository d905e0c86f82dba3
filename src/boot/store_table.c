#include "boot/store_table.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CHAINS 256
#define ENTRY_COST 64 /* what an entry takes besides its key, roughly */

static uint64_t hash_of(const weft_store_table_t *table, weft_store_kind_t kind, const uint8_t *key,
                        size_t key_bytes)
{
    uint8_t mac[WEFT_MAC_BYTES];
    uint64_t hash;
    weft__mac(table->hash_key, key, key_bytes, mac);
    memcpy(&hash, mac, sizeof(hash));
    return hash ^ (uint64_t)kind;
}

bool weft__store_table_init(weft_store_table_t *table, const uint8_t hash_key[WEFT_MAC_KEY_BYTES])
{
    memset(table, 0, sizeof(*table));
    memcpy(table->hash_key, hash_key, WEFT_MAC_KEY_BYTES);
    table->chains = calloc(FIRST_CHAINS, sizeof(*table->chains));
    table->chain_count = table->chains == NULL ? 0 : FIRST_CHAINS;
    return table->chains != NULL;
}

void weft__store_table_cleanup(weft_store_table_t *table)
{
    for (size_t i = 0; i < table->chain_count; i++) {
        weft_store_entry_t *entry = table->chains[i];
        while (entry != NULL) {
            weft_store_entry_t *next = entry->next;
            free(entry->value);
            free(entry);
            entry = next;
        }
    }
    free(table->chains);
    memset(table, 0, sizeof(*table));
}

weft_store_entry_t *weft__store_table_find(const weft_store_table_t *table, weft_store_kind_t kind,
                                           const uint8_t *key, size_t key_bytes)
{
    uint64_t hash = hash_of(table, kind, key, key_bytes);
    weft_store_entry_t *entry = table->chains[hash % table->chain_count];
    while (entry != NULL) {
        if (entry->hash == hash && entry->kind == kind && entry->key_bytes == key_bytes &&
            memcmp(entry->key, key, key_bytes) == 0) {
            return entry;
        }
        entry = entry->next;
    }
    return NULL;
}

/* Failing to grow only makes the chains longer. */
static void grow(weft_store_table_t *table)
{
    size_t count = 2 * table->chain_count;
    weft_store_entry_t **chains = calloc(count, sizeof(*chains));
    if (chains == NULL) {
        return;
    }
    for (size_t i = 0; i < table->chain_count; i++) {
        weft_store_entry_t *entry = table->chains[i];
        while (entry != NULL) {
            weft_store_entry_t *next = entry->next;
            entry->next = chains[entry->hash % count];
            chains[entry->hash % count] = entry;
            entry = next;
        }
    }
    free(table->chains);
    table->chains = chains;
    table->chain_count = count;
}

weft_store_entry_t *weft__store_table_add(weft_store_table_t *table, weft_store_kind_t kind,
                                          const uint8_t *key, size_t key_bytes)
{
    weft_store_entry_t *entry = weft__store_table_find(table, kind, key, key_bytes);
    size_t cost = key_bytes + ENTRY_COST;
    if (entry != NULL) {
        return entry;
    }
    if (cost > WEFT_STORE_TABLE_MAX - table->bytes) {
        return NULL;
    }
    entry = calloc(1, sizeof(*entry) + key_bytes);
    if (entry == NULL) {
        return NULL;
    }
    if (table->entry_count >= table->chain_count) {
        grow(table);
    }
    entry->hash = hash_of(table, kind, key, key_bytes);
    entry->kind = kind;
    entry->key_bytes = key_bytes;
    memcpy(entry->key, key, key_bytes);
    entry->next = table->chains[entry->hash % table->chain_count];
    table->chains[entry->hash % table->chain_count] = entry;
    table->entry_count++;
    table->bytes += cost;
    return entry;
}

bool weft__store_table_set(weft_store_table_t *table, weft_store_entry_t *entry, const void *value,
                           size_t bytes)
{
    if (bytes > WEFT_STORE_TABLE_MAX - (table->bytes - entry->value_bytes)) {
        return false;
    }
    uint8_t *copy = NULL;
    if (bytes > 0) {
        copy = malloc(bytes);
        if (copy == NULL) {
            return false;
        }
        memcpy(copy, value, bytes);
    }
    table->bytes += bytes - entry->value_bytes;
    free(entry->value);
    entry->value = copy;
    entry->value_bytes = bytes;
    entry->exists = true;
    return true;
}

void weft__store_table_unset(weft_store_table_t *table, weft_store_entry_t *entry)
{
    table->bytes -= entry->value_bytes;
    free(entry->value);
    entry->value = NULL;
    entry->value_bytes = 0;
    entry->exists = false;
}

void weft__store_table_tidy(weft_store_table_t *table, weft_store_entry_t *entry)
{
    if (entry->exists || entry->waiters != NULL) {
        return;
    }
    weft_store_entry_t **at = &table->chains[entry->hash % table->chain_count];
    while (*at != entry) {
        at = &(*at)->next;
    }
    *at = entry->next;
    table->entry_count--;
    table->bytes -= entry->key_bytes + ENTRY_COST;
    free(entry);
}
