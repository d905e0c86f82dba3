/* Message authentication: proves knowledge of a shared key without showing it. */
#ifndef WEFT_BASE_MAC_H
#define WEFT_BASE_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_MAC_KEY_BYTES 16
#define WEFT_MAC_BYTES 16

/* SipHash-2-4 with a 128-bit result: a keyed pseudorandom function, so that whoever does not have
 * the key can neither make nor foresee the code of a message not seen before. */
void weft__mac(const uint8_t key[WEFT_MAC_KEY_BYTES], const void *bytes, size_t count,
               uint8_t mac[WEFT_MAC_BYTES]);

/* For tables whose keys others choose: which of them fall into one row cannot be foreseen, as the
 * key is a random one of this process. */
uint64_t weft__hash(const void *bytes, size_t count);

/* Compare in a time that does not depend on where the two differ. */
bool weft__mac_equal(const uint8_t a[WEFT_MAC_BYTES], const uint8_t b[WEFT_MAC_BYTES]);

#endif
