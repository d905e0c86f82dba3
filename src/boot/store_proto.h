/* What the store and its clients say to each other. All numbers are little-endian.
 *
 *     server -> client   hello     magic[8]  nonce[16]
 *     client -> server   proof     nonce[16] mac[16]
 *     server -> client   reply     WEFT_OK with its own mac[16] as value, or WEFT_ERR_REFUSED
 *     then, as often as the client likes, one at a time:
 *     client -> server   request   op[1] 0[1] key bytes[2] value bytes[4] number[8] timeout[4] 0[4]
 *                                  key value
 *     server -> client   reply     status[4] value bytes[4] number[8]
 *                                  value
 *
 * A mac is taken over a byte that says whose it is and both nonces, so that neither a recorded
 * proof nor the other side's own can be played back.
 *
 * Everything here is a pure function of bytes. A length is checked before anyone can act on it. */
#ifndef WEFT_BOOT_STORE_PROTO_H
#define WEFT_BOOT_STORE_PROTO_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "base/mac.h"
#include "boot/store.h"

#define WEFT_STORE_KEY_MAX 256
#define WEFT_STORE_VALUE_MAX ((size_t)1 << 20)
#define WEFT_STORE_WILL_MAX ((size_t)4 << 10) /* it is kept for as long as the client is there */

#define WEFT_STORE_NONCE_BYTES 16
#define WEFT_STORE_MAGIC_BYTES 8
#define WEFT_STORE_HELLO_BYTES (WEFT_STORE_MAGIC_BYTES + WEFT_STORE_NONCE_BYTES)
#define WEFT_STORE_PROOF_BYTES (WEFT_STORE_NONCE_BYTES + WEFT_MAC_BYTES)
#define WEFT_STORE_REQUEST_BYTES 24 /* without key and value */
#define WEFT_STORE_REPLY_BYTES 16   /* without value */
#define WEFT_STORE_FRAME_MAX (WEFT_STORE_REQUEST_BYTES + WEFT_STORE_KEY_MAX + WEFT_STORE_VALUE_MAX)

typedef enum weft_store_op {
    WEFT_STORE_SET = 1, /* value */
    WEFT_STORE_GET,     /* timeout; reply: value */
    WEFT_STORE_ADD,     /* number: delta; reply: number: sum */
    WEFT_STORE_DELETE,
    WEFT_STORE_BARRIER, /* number: size, timeout; reply: number: how many arrived */
    WEFT_STORE_OFFER,   /* value; reply: number 1: it was taken, 0: value: what was there */
    WEFT_STORE_WILL,    /* value: to be offered when this connection ends; of 0 bytes: none */
    WEFT_STORE_OP_END
} weft_store_op_t;

typedef struct weft_store_request {
    weft_store_op_t op;
    int timeout_ms;
    int64_t number;
    const uint8_t *key; /* key and value point into the parsed bytes */
    const uint8_t *value;
    size_t key_bytes, value_bytes;
} weft_store_request_t;

typedef struct weft_store_reply {
    weft_status_t status;
    int64_t number;
    size_t value_bytes; /* the value follows the WEFT_STORE_REPLY_BYTES */
} weft_store_reply_t;

typedef enum weft_store_parsed {
    WEFT_STORE_MORE,  /* well so far: *frame_p bytes are needed */
    WEFT_STORE_READY, /* the first *frame_p bytes are a request */
    WEFT_STORE_BAD    /* no continuation could make it valid */
} weft_store_parsed_t;

/* Look at the first `count` bytes of what a client sent. *frame_p is never more than
 * WEFT_STORE_FRAME_MAX. */
weft_store_parsed_t weft__store_parse_request(const uint8_t *bytes, size_t count,
                                              weft_store_request_t *request_p, size_t *frame_p);

/* The fixed part of a request; key and value follow it on the wire. */
void weft__store_print_request(const weft_store_request_t *request,
                               uint8_t bytes[WEFT_STORE_REQUEST_BYTES]);

/* The fixed part of a reply; WEFT_STORE_READY or WEFT_STORE_BAD. */
weft_store_parsed_t weft__store_parse_reply(const uint8_t bytes[WEFT_STORE_REPLY_BYTES],
                                            weft_store_reply_t *reply_p);
void weft__store_print_reply(const weft_store_reply_t *reply,
                             uint8_t bytes[WEFT_STORE_REPLY_BYTES]);

extern const uint8_t weft__store_magic[WEFT_STORE_MAGIC_BYTES];

/* The code that `who` ('C' client, 'S' server) proves itself with. */
void weft__store_proof(const uint8_t secret[WEFT_SECRET_BYTES], char who,
                       const uint8_t server_nonce[WEFT_STORE_NONCE_BYTES],
                       const uint8_t client_nonce[WEFT_STORE_NONCE_BYTES],
                       uint8_t mac[WEFT_MAC_BYTES]);

#endif
