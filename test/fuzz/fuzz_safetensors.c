/* safetensors files and indexes of several. What is accepted lies inside of the file and is read as
 * numbers.
 *
 *     kind[1]  a file: header ~ data     kind 0: whatever follows is the file; 1: the header's
 *                                        length is put before it as it should be
 *              an index                  kind 2: beside two files, a.safetensors and b.safetensors
 *
 * reads: src/train/safetensors.c src/train/tensor_set.c */
#include "fuzz/fuzz.h"

#include "train/safetensors.h"
#include "train/tensor_files.h"

const long fuzz_runs = 20000;

static void look_at_all(weft_tensors_t *tensors, size_t size)
{
    uint64_t total = 0;
    for (int i = 0; i < weft__tensors_count(tensors); i++) {
        const weft_tensor_t *tensor = weft__tensors_at(tensors, i);
        char shape[64];
        CHECK(weft__tensors_find(tensors, tensor->form.name) == tensor);
        CHECK(weft__tensor_shape_text(&tensor->form, shape, sizeof(shape))[0] == '[');
        for (size_t b = 0; b < tensor->bytes; b++) { /* a sanitizer sees what is out of bounds */
            total += ((const volatile uint8_t *)tensor->data)[b] * 0u + 1u;
        }
        uint64_t elements = weft__tensor_elements(&tensor->form);
        bool numbers = weft__tensor_type_name(tensor->form.dtype) != NULL;
        CHECK(!numbers || weft__tensor_bytes(&tensor->form) == tensor->bytes);
        float *out = elements <= size ? malloc(elements * sizeof(float) + 1) : NULL;
        if (out != NULL && weft__tensor_to_f32(tensor, 0, elements, out) != WEFT_OK) {
            CHECK(tensor->form.dtype != WEFT_F32 && tensor->form.dtype != WEFT_BF16);
        }
        CHECK(out == NULL || weft__tensor_to_f32(tensor, elements, 1, out) != WEFT_OK);
        free(out);
    }
    CHECK(total < size);
    weft__tensors_metadata(tensors, "format");
}

static void read_from(const char *path, size_t size)
{
    weft_tensors_t *tensors;
    if (weft__tensors_open(path, &tensors) != WEFT_OK) {
        CHECK(strlen(weft_last_error()) > 0);
        return;
    }
    look_at_all(tensors, size);
    weft__tensors_close(tensors);
}

/* "{...}~1234" as a file: the length, the header, the data. */
static void read_file(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, '~', size) : NULL;
    uint64_t length = end != NULL ? (uint64_t)(end - data) : size;
    size_t after = size - length - (end != NULL);
    uint8_t *file = malloc(8 + length + after);
    CHECK(file != NULL);
    memcpy(file, &length, 8);
    memcpy(file + 8, data, length);
    memcpy(file + 8 + length, data + size - after, after);
    read_from(fuzz_file(file, 8 + length + after), 8 + length + after);
    free(file);
}

static void make_file(const char *name, const char *const tensors[2])
{
    const weft_tensor_form_t forms[] = {
        {.name = tensors[0], .dtype = WEFT_F32, .dims = 2, .shape = {2, 1}},
        {.name = tensors[1], .dtype = WEFT_BF16, .dims = 1, .shape = {3}}};
    const char *metadata[] = {"format", "pt", NULL};
    weft_tensor_writer_t *writer;
    CHECK(weft__tensors_create(fuzz_path(name), forms, 2, metadata, &writer) == WEFT_OK);
    CHECK(weft__tensors_write(writer, "12345678901234", 14) == WEFT_OK);
    CHECK(weft__tensors_finish(writer, NULL, NULL) == WEFT_OK);
}

static void read_index(const uint8_t *data, size_t size)
{
    static bool made;
    if (!made) {
        make_file("a.safetensors", (const char *const[]){"v", "w"});
        make_file("b.safetensors", (const char *const[]){"x", "w"});
        make_file("c.safetensors", (const char *const[]){"y", "z"});
        made = true;
        read_from(fuzz_folder(), 4096); /* nothing there yet */
    }
    fuzz_put("model.safetensors.index.json", data, size);
    read_from(fuzz_folder(), 4096);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    switch (data[0] % 4) {
    case 0:
        read_from(fuzz_file(data + 1, size - 1), size);
        break;
    case 2:
        read_index(data + 1, size - 1);
        break;
    default:
        read_file(data + 1, size - 1);
        break;
    }
    return 0;
}

#define T(dtype, shape, from, to)                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

void fuzz_seeds(void)
{
    static const char *const words[] = {"F64",          "F32",
                                        "F16",          "BF16",
                                        "I8",           "U8",
                                        "I64",          "BOOL",
                                        "F8_E4M3",      "\"dtype\":",
                                        "null",         "shape",
                                        "data_offsets", "18446744073709551615",
                                        "__metadata__", "4294967296",
                                        "\\u0000"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    fuzz_seed_kind(
        1, "{\"__metadata__\":{\"format\":\"pt\"},\"a\":" T("F32", "2,1", "0", "8") ",\"b\":" T(
               "BF16", "3", "8", "14") "}~12345678901234");
    fuzz_seed_kind(1, "{\"w\":" T("F16", "", "0", "2") "}~12");
    fuzz_seed_kind(1,
                   "{\"w\":" T("F64", "1", "0", "8") ",\"e\":" T("U8", "0", "8", "8") "}~12345678");
    fuzz_seed_kind(1, "{}~");
    fuzz_seed_kind(1, "{\"w\":" T("U8", "\"2\"", "0", "2") "}~12");
    fuzz_seed_kind(1, "[1]~");
    fuzz_seed_kind(1, "{\"i\":" T("BOOL", "1,1,1,1,1,1,1,2", "0", "2") "}~12");
    fuzz_seed("\0\2\0\0\0\0\0\0\0{}", 11);
    fuzz_seed_kind(
        2, "{\"metadata\":{},\"weight_map\":{\"v\":\"a.safetensors\",\"w\":\"a.safetensors\","
           "\"y\":\"c.safetensors\"}}");
    fuzz_seed_kind(2, "{\"weight_map\":{\"w\":\"b.safetensors\",\"v\":\"a.safetensors\"}}");
}
