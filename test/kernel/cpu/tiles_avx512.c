/* The product of amx.h with tiles that are arrays, so that it is tested where a CPU has AVX-512,
 * but no AMX: all of it except the seven instructions. */
#include "kernel/cpu/tiles.h"

#include <stddef.h>

#if defined(__AVX512F__) && defined(__AVX512BW__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static _Thread_local struct {
    int begun;
    union {
        float sums[16][16];
        uint16_t numbers[16][32];
    } tile[8];
} tiles;

static float widened(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

/* As the manual has it: sums of the even and of the odd steps apart, then both onto c. */
static void multiply_tiles(int c, int a, int b)
{
    for (int m = 0; m < 16; m++) {
        __m512 evens = _mm512_setzero_ps(), odds = _mm512_setzero_ps();
        for (int pair = 0; pair < 16; pair++) {
            __m512i both = _mm512_loadu_si512(tiles.tile[b].numbers[pair]);
            __m512i even = _mm512_slli_epi32(both, 16);
            __m512i odd = _mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000));
            const uint16_t *row = &tiles.tile[a].numbers[m][2 * pair];
            evens = _mm512_fmadd_ps(_mm512_set1_ps(widened(row[0])), _mm512_castsi512_ps(even),
                                    evens);
            odds = _mm512_fmadd_ps(_mm512_set1_ps(widened(row[1])), _mm512_castsi512_ps(odd), odds);
        }
        __m512 sum = _mm512_add_ps(evens, odds);
        _mm512_storeu_ps(tiles.tile[c].sums[m],
                         _mm512_add_ps(_mm512_loadu_ps(tiles.tile[c].sums[m]), sum));
    }
}

static void load_tile(int t, const void *from, size_t stride)
{
    for (size_t row = 0; row < 16; row++) {
        memcpy(tiles.tile[t].numbers[row], (const char *)from + row * stride, 64);
    }
}

static void store_tile(int t, void *to, size_t stride)
{
    for (size_t row = 0; row < 16; row++) {
        memcpy((char *)to + row * stride, tiles.tile[t].numbers[row], 64);
    }
}

/* To nearest, ties to even. */
static __m512i round_half(__m512 value)
{
    __m512i bits = _mm512_castps_si512(value), one = _mm512_set1_epi32(1);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_srli_epi32(bits, 16);
}

static __m512i narrow(__m512 low, __m512 high)
{
    __m512i first = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(round_half(low)));
    return _mm512_inserti64x4(first, _mm512_cvtepi32_epi16(round_half(high)), 1);
}

/* Tiles that are used by a thread that did not configure them would end it. */
#define BEGUN() (tiles.begun == 1 ? (void)0 : __builtin_trap())
#define TILES_BEGIN() (tiles.begun++, BEGUN())
#define TILES_END() (BEGUN(), tiles.begun--)
#define TILE_ZERO(t) (BEGUN(), (void)memset(&tiles.tile[t], 0, sizeof(tiles.tile[t])))
#define TILE_LOAD(t, from, stride) (BEGUN(), load_tile(t, from, stride))
#define TILE_STORE(t, to, stride) (BEGUN(), store_tile(t, to, stride))
#define TILE_PRODUCT(c, a, b) (BEGUN(), multiply_tiles(c, a, b))
#define NARROW(low, high) narrow(low, high)

#include "kernel/cpu/amx_impl.h"

const weft_inner_t *tiles_emulated(void)
{
    static weft_inner_t table; /* filled in alike every time */
    if (weft__inner_named("avx512") == NULL) {
        return NULL;
    }
    table = weft__inner_avx512;
    table.name = "amx, emulated";
    table.product = product;
    table.pack_strip = pack_strip;
    table.strip_rows = strip_rows;
    table.packing = (weft_packing_t)WEFT_AMX_PACKING;
    return &table;
}

#else

const weft_inner_t *tiles_emulated(void)
{
    return NULL;
}

#endif
