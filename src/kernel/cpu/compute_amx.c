/* The product of amx.h, built with -mamx-tile -mamx-bf16 -mavx512bf16 where the compiler knows
 * them. */
#if defined(WEFT_AMX)

#include <immintrin.h>
#include <stdint.h>

/* Palette 1: 8 tiles, here all of 16 rows of 64 bytes. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} shapes __attribute__((aligned(64))) = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* Released at the end: a thread without tiles is switched as fast as before. */
#define TILES_BEGIN() _tile_loadconfig(&shapes)
#define TILES_END() _tile_release()
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_PRODUCT(c, a, b) _tile_dpbf16ps(c, a, b)
#define NARROW(low, high) ((__m512i)_mm512_cvtne2ps_pbh(high, low))

#include "kernel/cpu/amx_impl.h"

void weft__amx_product(const weft_own_product_t *args)
{
    product(args);
}

void weft__amx_pack_strip(const weft_own_product_t *args, int64_t strip, int64_t first, int64_t end,
                          void *packed)
{
    pack_strip(args, strip, first, end, packed);
}

void weft__amx_strip_rows(const weft_own_product_t *args, const void *packed, int64_t first,
                          int64_t end, void *scratch)
{
    strip_rows(args, packed, first, end, scratch);
}

#else
typedef int nothing_t; /* a file must declare something */
#endif
