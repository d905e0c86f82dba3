/* Safetensors: what the `safetensors` package wrote (make_safetensors.py), what we write, and
 * what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/fixture.h"
#include "base/half.h"
#include "base/rng.h"
#include "train/safetensors.h"

static weft_tensors_t *open_or_die(const char *path)
{
    weft_tensors_t *tensors;
    if (weft__tensors_open(path, &tensors) != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    return tensors;
}

/* Is the tensor of this form, with the numbers that make_safetensors.py gave it? */
static void check(const weft_tensors_t *tensors, const char *name, weft_dtype_t dtype, int dims,
                  const uint64_t *shape)
{
    const weft_tensor_t *tensor = weft__tensors_find(tensors, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->form.dtype, dtype);
    assert_int_equal(tensor->form.dims, dims);
    for (int i = 0; i < dims; i++) {
        assert_int_equal(tensor->form.shape[i], shape[i]);
    }
    float values[64];
    uint64_t count = weft__tensor_elements(&tensor->form);
    assert_true(count <= 64);
    assert_int_equal(weft__tensor_to_f32(tensor, 0, count, values), WEFT_OK);
    for (uint64_t i = 0; i < count; i++) {
        assert_true(values[i] == (float)((int)(37 * i % 101) - 50) / 8);
    }
    assert_int_equal(weft__tensor_to_f32(tensor, 1, count, values), WEFT_ERR_INVALID);
    if (count > 2) {
        assert_int_equal(weft__tensor_to_f32(tensor, 2, 1, values), WEFT_OK);
        assert_true(values[0] == (float)(74 - 50) / 8);
    }
}

static void files_of_the_package_are_read(void **state)
{
    (void)state;
    weft_tensors_t *tensors = open_or_die(fixture("train", "package.safetensors"));
    assert_int_equal(weft__tensors_count(tensors), 9);
    check(tensors, "wte.weight", WEFT_F32, 2, (uint64_t[]){7, 5});
    check(tensors, "h.0.ln.weight", WEFT_BF16, 1, (uint64_t[]){11});
    check(tensors, "half", WEFT_F16, 3, (uint64_t[]){2, 3, 4});
    check(tensors, "double", WEFT_F64, 1, (uint64_t[]){6});
    check(tensors, "scalar", WEFT_F32, 0, NULL);
    check(tensors, "none", WEFT_F32, 2, (uint64_t[]){0, 4});
    check(tensors, "odd \xC3\xA9\"\\ name", WEFT_BF16, 1, (uint64_t[]){3});
    const weft_tensor_t *mask = weft__tensors_find(tensors, "h.0.mask");
    assert_string_equal(mask->stored, "BOOL");
    assert_int_equal(mask->form.dtype, WEFT_DTYPE_COUNT);
    assert_int_equal(mask->bytes, 3);
    float values[3];
    assert_int_equal(weft__tensor_to_f32(mask, 0, 3, values), WEFT_ERR_UNSUPPORTED);
    assert_true(error_says("BOOL"));
    assert_null(weft__tensors_find(tensors, "wte"));
    assert_string_equal(weft__tensors_metadata(tensors, "format"), "pt");
    assert_null(weft__tensors_metadata(tensors, "else"));
    weft__tensors_close(tensors);
}

static void an_index_leads_to_all_files(void **state)
{
    (void)state;
    weft_tensors_t *tensors = open_or_die(fixture("train", "sharded.index.json"));
    assert_int_equal(weft__tensors_count(tensors), 3);
    check(tensors, "a", WEFT_F32, 1, (uint64_t[]){4});
    check(tensors, "b", WEFT_F16, 1, (uint64_t[]){5});
    check(tensors, "c", WEFT_F32, 2, (uint64_t[]){2, 2});
    weft__tensors_close(tensors);
    static const struct {
        const char *index, *says;
    } bad[] = {
        {"{\"weight_map\": {\"z\": \"sharded-1-of-2.safetensors\"}}", "tensor z is not in"},
        {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "no file of the same folder"},
        {"{\"weight_map\": {\"a\": \"gone.safetensors\"}}", "gone.safetensors"},
        {"{\"weight_map\": {}}", "no weight_map"},
        {"[]", "no weight_map"},
    };
    char *text;
    size_t size;
    assert_int_equal(weft__file_read(fixture("train", "sharded-1-of-2.safetensors"), &text, &size),
                     WEFT_OK);
    write_file(in_scratch("sharded-1-of-2.safetensors"), text, size);
    free(text);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_file(in_scratch("model.safetensors.index.json"), bad[i].index, strlen(bad[i].index));
        assert_true(weft__tensors_open(scratch(), &tensors) != WEFT_OK);
        assert_true(error_says(bad[i].says));
    }
    unlink(in_scratch("model.safetensors.index.json"));
    assert_int_equal(weft__tensors_open(scratch(), &tensors), WEFT_ERR_NOT_FOUND);
    assert_true(error_says("neither"));
}

static void what_we_write_is_read_back(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    const weft_tensor_form_t forms[COUNT] = {
        {.name = "big", .dtype = WEFT_F32, .dims = 2, .shape = {300, 1000}},
        {.name = "empty", .dtype = WEFT_F32, .dims = 1, .shape = {0}},
        {.name = "one \"é\"", .dtype = WEFT_I64},
        {.name = "half", .dtype = WEFT_BF16, .dims = 1, .shape = {7}},
    };
    const char *const metadata[] = {"format", "pt", "step", "12", NULL};
    uint64_t total = 300 * 1000 * 4 + 8 + 14, size;
    uint32_t crc;
    uint8_t *data = malloc(total);
    for (uint64_t i = 0; i < total; i++) {
        data[i] = (uint8_t)weft__rng_at(5, i);
    }
    weft_tensor_writer_t *writer;
    const char *path = in_scratch("ours.safetensors");
    assert_int_equal(weft__tensors_create(path, forms, COUNT, metadata, &writer), WEFT_OK);
    for (uint64_t at = 0; at < total;) { /* in pieces that end anywhere */
        uint64_t piece = weft__rng_at(6, at) % 50000 + 1;
        piece = piece < total - at ? piece : total - at;
        assert_int_equal(weft__tensors_write(writer, data + at, piece), WEFT_OK);
        at += piece;
    }
    assert_int_equal(weft__tensors_write(writer, data, 1), WEFT_ERR_INVALID);
    assert_int_equal(weft__tensors_finish(writer, &size, &crc), WEFT_OK);

    weft_mapped_t file;
    assert_int_equal(weft__file_map(path, &file), WEFT_OK);
    assert_int_equal(file.size, size);
    assert_int_equal(weft__crc32c(0, file.data, file.size), crc);
    assert_int_equal((file.size - total) % 8, 0);
    weft__file_unmap(&file);

    weft_tensors_t *tensors = open_or_die(path);
    assert_int_equal(weft__tensors_count(tensors), COUNT);
    uint64_t at = 0;
    for (int i = 0; i < COUNT; i++) {
        const weft_tensor_t *tensor = weft__tensors_find(tensors, forms[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->form.dtype, forms[i].dtype);
        assert_int_equal(tensor->bytes, weft__tensor_bytes(&forms[i]));
        assert_memory_equal(tensor->data, data + at, tensor->bytes);
        at += tensor->bytes;
    }
    assert_string_equal(weft__tensors_metadata(tensors, "step"), "12");
    weft__tensors_close(tensors);
    free(data);
}

static void writers_are_checked(void **state)
{
    (void)state;
    weft_tensor_form_t forms[2] = {{.name = "a", .dtype = WEFT_F32, .dims = 1, .shape = {3}},
                                   {.name = "a", .dtype = WEFT_F32, .dims = 1, .shape = {3}}};
    weft_tensor_writer_t *writer;
    const char *path = in_scratch("bad.safetensors");
    assert_int_equal(weft__tensors_create(path, forms, 2, NULL, &writer), WEFT_ERR_INVALID);
    forms[1].name = "__metadata__";
    assert_int_equal(weft__tensors_create(path, forms, 2, NULL, &writer), WEFT_ERR_INVALID);
    forms[1].name = "b";
    forms[1].shape[0] = UINT64_MAX / 2;
    assert_int_equal(weft__tensors_create(path, forms, 2, NULL, &writer), WEFT_ERR_INVALID);
    assert_int_equal(weft__tensors_create(path, forms, 1, NULL, &writer), WEFT_OK);
    assert_int_equal(weft__tensors_write(writer, "12345678", 8), WEFT_OK);
    assert_int_equal(weft__tensors_finish(writer, NULL, NULL), WEFT_ERR_INVALID);
    assert_true(error_says("4 bytes"));
    assert_int_equal(weft__tensors_create(in_scratch("no/such/folder"), forms, 1, NULL, &writer),
                     WEFT_ERR_NOT_FOUND);
}

static void open_header(const char *header, size_t data, const char *says)
{
    uint8_t file[4096] = {0};
    size_t length = strlen(header);
    weft_tensors_t *tensors;
    file[0] = (uint8_t)length;
    file[1] = (uint8_t)(length >> 8);
    memcpy(file + 8, header, length);
    write_file(in_scratch("h.safetensors"), file, 8 + length + data);
    weft_status_t status = weft__tensors_open(in_scratch("h.safetensors"), &tensors);
    if (says == NULL) {
        assert_int_equal(status, WEFT_OK);
        weft__tensors_close(tensors);
    } else {
        assert_int_equal(status, WEFT_ERR_INVALID);
        assert_true(error_says(says));
        assert_true(error_says("h.safetensors"));
    }
}

#define T(dtype, shape, from, to)                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

static void damage_is_named(void **state)
{
    (void)state;
    open_header("{\"a\":" T("F32", "2", "0", "8") "}", 8, NULL);
    open_header("{}", 0, NULL);
    open_header("{\"a\":" T("F32", "2", "0", "8") "}", 7, "ends after the end");
    open_header("{\"a\":" T("F32", "2", "0", "8") "}", 9, "1 bytes at its end");
    open_header("{\"a\":" T("F32", "2", "8", "0") "}", 8, "ends before it begins");
    open_header("{\"a\":" T("F32", "3", "0", "8") "}", 8, "another size");
    open_header("{\"a\":" T("F33", "2", "0", "8") "}", 8, "unknown type \"F33\"");
    open_header("{\"a\":" T("F32", "-2", "0", "8") "}", 8, "other things than numbers");
    open_header("{\"a\":" T("F32", "\"2\"", "0", "8") "}", 8, "other things than numbers");
    open_header("{\"a\":" T("F32", "1,1,1,1,1,1,1,1,2", "0", "8") "}", 8, "8 dimensions");
    open_header("{\"a\":" T("F32", "4294967296,4294967296,4294967296", "0", "8") "}", 8,
                "another size");
    open_header("{\"a\":" T("F32", "2", "0", "8") ",\"b\":" T("F32", "2", "4", "12") "}", 12,
                "overlaps");
    open_header("{\"a\":" T("F32", "2", "0", "8") ",\"b\":" T("F32", "1", "12", "16") "}", 16,
                "gap");
    open_header("{\"a\":" T("F32", "2", "0", "8") ",\"a\":" T("F32", "2", "0", "8") "}", 8,
                "same key twice");
    open_header("{\"a\":3}", 8, "unknown type");
    open_header("{\"a\\u0000b\":" T("F32", "2", "0", "8") "}", 8, "NUL");
    open_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "no data_offsets");
    open_header("{\"a\":", 8, "line 1");

    weft_tensors_t *tensors;
    write_file(in_scratch("t.safetensors"), "\x08\0\0", 3);
    assert_int_equal(weft__tensors_open(in_scratch("t.safetensors"), &tensors), WEFT_ERR_INVALID);
    assert_true(error_says("only 3 bytes"));
    write_file(in_scratch("t.safetensors"), "\x08\0\0\0\0\0\0\0", 8);
    assert_int_equal(weft__tensors_open(in_scratch("t.safetensors"), &tensors), WEFT_ERR_INVALID);
    assert_true(error_says("truncated"));
    write_file(in_scratch("t.safetensors"), "PK\3\4 not this one", 18);
    assert_int_equal(weft__tensors_open(in_scratch("t.safetensors"), &tensors), WEFT_ERR_INVALID);
    assert_true(error_says("no safetensors file"));
}

/* All 65536 halves against arithmetic. */
static void halves_are_numbers(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        int exponent = bits >> 10 & 31;
        double fraction = bits & 1023, wanted;
        float got = weft__f16_to_f32((uint16_t)bits);
        if (exponent == 31 && fraction != 0) {
            assert_true(got != got);
        } else {
            wanted = exponent == 31 ? (double)__builtin_inff()
                                    : (exponent == 0 ? fraction / 1024 : 1 + fraction / 1024) *
                                          __builtin_ldexp(1, exponent == 0 ? -14 : exponent - 15);
            wanted = bits & 0x8000 ? -wanted : wanted;
            assert_true((double)got == wanted && !__builtin_signbit(got) == !(bits & 0x8000));
        }
        float wide = weft__bf16_to_f32((uint16_t)bits);
        uint16_t back = weft__f32_to_bf16(wide);
        assert_true(wide != wide ? weft__bf16_to_f32(back) != weft__bf16_to_f32(back)
                                 : back == bits);
    }
    assert_int_equal(weft__f32_to_bf16(1.00390625f), 0x3F80); /* half way: to the even one */
    assert_int_equal(weft__f32_to_bf16(1.01171875f), 0x3F82);
    assert_int_equal(weft__f32_to_bf16(1.00390637f), 0x3F81);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_the_package_are_read),
        cmocka_unit_test(an_index_leads_to_all_files),
        cmocka_unit_test(what_we_write_is_read_back),
        cmocka_unit_test(writers_are_checked),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(halves_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
