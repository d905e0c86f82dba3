/* The message authentication code against published vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mac.h"

static void mac_matches_reference_vectors(void **state)
{
    (void)state;
    /* key 00..0f, message 00, 01, ... of the given length */
    static const struct {
        size_t count;
        const char *hex;
    } rows[] = {
        {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
        {7, "a1f1ebbed8dbc153c0b84aa61ff08239"},  {8, "3b62a9ba6258f5610f83e264f31497b4"},
        {15, "5493e99933b0a8117e08ec0f97cfc3d9"}, {63, "5150d1772f50834a503e069a973fbd7c"},
    };
    uint8_t key[WEFT_MAC_KEY_BYTES];
    uint8_t message[64];
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = (uint8_t)i;
    }
    for (size_t i = 0; i < sizeof(message); i++) {
        message[i] = (uint8_t)i;
    }
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        uint8_t mac[WEFT_MAC_BYTES];
        char hex[2 * WEFT_MAC_BYTES + 1];
        weft__mac(key, message, rows[row].count, mac);
        for (int i = 0; i < WEFT_MAC_BYTES; i++) {
            snprintf(hex + 2 * i, 3, "%02x", mac[i]);
        }
        assert_string_equal(hex, rows[row].hex);
    }
}

static void mac_equal_sees_every_bit(void **state)
{
    (void)state;
    uint8_t a[WEFT_MAC_BYTES];
    uint8_t b[WEFT_MAC_BYTES];
    memset(a, 0x5a, sizeof(a));
    memcpy(b, a, sizeof(b));
    assert_true(weft__mac_equal(a, b));
    for (int bit = 0; bit < 8 * WEFT_MAC_BYTES; bit++) {
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(weft__mac_equal(a, b));
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mac_matches_reference_vectors),
        cmocka_unit_test(mac_equal_sees_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
