#include "comm/memory.h"

#include <stdlib.h>

#include "device/device.h"

void buffer_open(buffer_t *b, size_t bytes, bool plain)
{
    void *memory = NULL, *host = NULL;
    if (plain) {
        memory = malloc(bytes + 1);
        CHECK(memory);
    } else {
        CHECK_OK(weft_malloc(&memory, bytes));
    }
    if (!plain && weft__device_is_cuda()) {
        CHECK_OK(weft_host_malloc(&host, bytes));
    }
    *b = (buffer_t){.at = memory, .host = host ? host : memory, .bytes = bytes, .plain = plain};
}

void buffer_close(buffer_t *b)
{
    if (b->host != b->at) {
        CHECK_OK(weft_host_free(b->host));
    }
    if (b->plain) {
        free(b->at);
    } else {
        CHECK_OK(weft_free(b->at));
    }
    *b = (buffer_t){0};
}

char *buffer_at(const buffer_t *b, const void *host)
{
    return b->at + ((const char *)host - b->host);
}

void buffer_push(const buffer_t *b, const void *from, size_t bytes)
{
    if (b->host != b->at) {
        CHECK_OK(weft_memcpy(buffer_at(b, from), from, bytes, NULL));
    }
}

void buffer_pull(const buffer_t *b, void *from, size_t bytes)
{
    if (b->host != b->at) {
        CHECK_OK(weft_memcpy(from, buffer_at(b, from), bytes, NULL));
    }
}

void buffer_push_all(const buffer_t *b)
{
    buffer_push(b, b->host, b->bytes);
}

void buffer_pull_all(const buffer_t *b)
{
    buffer_pull(b, b->host, b->bytes);
}
