#include "boot/store_proto.h"

#include <limits.h>
#include <string.h>

const uint8_t weft__store_magic[WEFT_STORE_MAGIC_BYTES] = {'w', 'e', 'f', 't', 'k', 'v', '0', '1'};

static uint64_t load(const uint8_t *bytes, int count)
{
    uint64_t word = 0;
    for (int i = 0; i < count; i++) {
        word |= (uint64_t)bytes[i] << (8 * i);
    }
    return word;
}

static void store(uint64_t word, uint8_t *bytes, int count)
{
    for (int i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(word >> (8 * i));
    }
}

static size_t value_most(weft_store_op_t op)
{
    switch (op) {
    case WEFT_STORE_SET:
    case WEFT_STORE_OFFER:
        return WEFT_STORE_VALUE_MAX;
    case WEFT_STORE_WILL:
        return WEFT_STORE_WILL_MAX;
    default:
        return 0;
    }
}

/* Do the fields that `op` does not use hold nothing, and those it uses something it can use? */
static int fields_fit(const weft_store_request_t *request)
{
    int has_timeout = request->op == WEFT_STORE_GET || request->op == WEFT_STORE_BARRIER;
    if (request->timeout_ms < -1 || (!has_timeout && request->timeout_ms != 0)) {
        return 0;
    }
    if (request->value_bytes > value_most(request->op)) {
        return 0;
    }
    switch (request->op) {
    case WEFT_STORE_ADD:
        return 1;
    case WEFT_STORE_BARRIER:
        return request->number >= 1 && request->number <= INT_MAX;
    default:
        return request->number == 0;
    }
}

weft_store_parsed_t weft__store_parse_request(const uint8_t *bytes, size_t count,
                                              weft_store_request_t *request_p, size_t *frame_p)
{
    *frame_p = WEFT_STORE_REQUEST_BYTES;
    if (count < WEFT_STORE_REQUEST_BYTES) {
        return WEFT_STORE_MORE;
    }
    weft_store_request_t request = {
        .op = (weft_store_op_t)bytes[0],
        .timeout_ms = (int32_t)(uint32_t)load(bytes + 16, 4),
        .number = (int64_t)load(bytes + 8, 8),
        .key_bytes = (size_t)load(bytes + 2, 2),
        .value_bytes = (size_t)load(bytes + 4, 4),
    };
    if (request.op < WEFT_STORE_SET || request.op >= WEFT_STORE_OP_END || bytes[1] != 0 ||
        load(bytes + 20, 4) != 0) {
        return WEFT_STORE_BAD;
    }
    if (request.key_bytes < 1 || request.key_bytes > WEFT_STORE_KEY_MAX || !fields_fit(&request)) {
        return WEFT_STORE_BAD;
    }
    *frame_p += request.key_bytes + request.value_bytes;
    if (count < *frame_p) {
        return WEFT_STORE_MORE;
    }
    request.key = bytes + WEFT_STORE_REQUEST_BYTES;
    request.value = request.key + request.key_bytes;
    *request_p = request;
    return WEFT_STORE_READY;
}

void weft__store_print_request(const weft_store_request_t *request,
                               uint8_t bytes[WEFT_STORE_REQUEST_BYTES])
{
    memset(bytes, 0, WEFT_STORE_REQUEST_BYTES);
    bytes[0] = (uint8_t)request->op;
    store(request->key_bytes, bytes + 2, 2);
    store(request->value_bytes, bytes + 4, 4);
    store((uint64_t)request->number, bytes + 8, 8);
    store((uint32_t)request->timeout_ms, bytes + 16, 4);
}

weft_store_parsed_t weft__store_parse_reply(const uint8_t bytes[WEFT_STORE_REPLY_BYTES],
                                            weft_store_reply_t *reply_p)
{
    weft_store_reply_t reply = {
        .status = (weft_status_t)(int32_t)(uint32_t)load(bytes, 4),
        .value_bytes = (size_t)load(bytes + 4, 4),
        .number = (int64_t)load(bytes + 8, 8),
    };
    /* only a success has a value: nobody would read that of a failure, but the next reply behind
     * it */
    if ((int)reply.status > 0 || reply.value_bytes > WEFT_STORE_VALUE_MAX ||
        (reply.status != WEFT_OK && reply.value_bytes > 0)) {
        return WEFT_STORE_BAD;
    }
    *reply_p = reply;
    return WEFT_STORE_READY;
}

void weft__store_print_reply(const weft_store_reply_t *reply, uint8_t bytes[WEFT_STORE_REPLY_BYTES])
{
    store((uint32_t)(int32_t)reply->status, bytes, 4);
    store(reply->value_bytes, bytes + 4, 4);
    store((uint64_t)reply->number, bytes + 8, 8);
}

void weft__store_proof(const uint8_t secret[WEFT_SECRET_BYTES], char who,
                       const uint8_t server_nonce[WEFT_STORE_NONCE_BYTES],
                       const uint8_t client_nonce[WEFT_STORE_NONCE_BYTES],
                       uint8_t mac[WEFT_MAC_BYTES])
{
    uint8_t message[1 + 2 * WEFT_STORE_NONCE_BYTES];
    message[0] = (uint8_t)who;
    memcpy(message + 1, server_nonce, WEFT_STORE_NONCE_BYTES);
    memcpy(message + 1 + WEFT_STORE_NONCE_BYTES, client_nonce, WEFT_STORE_NONCE_BYTES);
    weft__mac(secret, message, sizeof(message), mac);
}
