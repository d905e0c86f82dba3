/* CRC-32C: published values, the instruction against the table, pieces against the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/rng.h"

static void published_values(void **state)
{
    (void)state;
    uint8_t bytes[32];
    assert_int_equal(weft__crc32c(0, "123456789", 9),
                     0xE3069283u); /* the catalogue's check value */
    assert_int_equal(weft__crc32c_plain(0, "123456789", 9), 0xE3069283u);
    for (int i = 0; i < 32; i++) { /* RFC 3720, B.4 */
        bytes[i] = (uint8_t)i;
    }
    assert_int_equal(weft__crc32c(0, bytes, 32), 0x46DD794Eu);
    for (int i = 0; i < 32; i++) {
        bytes[i] = 0;
    }
    assert_int_equal(weft__crc32c(0, bytes, 32), 0x8A9136AAu);
    assert_int_equal(weft__crc32c(0, NULL, 0), 0);
}

static void any_piece_gives_the_same(void **state)
{
    (void)state;
    uint8_t bytes[300];
    for (uint64_t round = 0; round < 2000; round++) {
        size_t length = weft__rng_at(1, round) % sizeof(bytes), at = weft__rng_at(2, round) % 9;
        for (size_t i = 0; i < length; i++) {
            bytes[i] = (uint8_t)weft__rng_at(round, i);
        }
        at = at < length ? at : length;
        uint32_t whole = weft__crc32c_plain(0, bytes, length);
        assert_int_equal(weft__crc32c(0, bytes, length), whole);
        assert_int_equal(weft__crc32c(weft__crc32c(0, bytes, at), bytes + at, length - at), whole);
        if (length > 0) {
            bytes[weft__rng_at(3, round) % length] ^= (uint8_t)(1u << round % 8);
            assert_int_not_equal(weft__crc32c(0, bytes, length), whole);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values),
        cmocka_unit_test(any_piece_gives_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
