/* trainer.json, the list of a checkpoint's files and its state. What is accepted is compared with
 * the files, written and read again.
 *
 *     kind[1]  text     kind & 1: its checksum is made right first
 *
 * reads: src/train/manifest.c */
#include "fuzz/fuzz.h"

#include <inttypes.h>

#include "base/checksum.h"
#include "train/checkpoint_parts.h"

const long fuzz_runs = 10000;

#define SELF "\"self_crc32c\": \""

/* As if whoever changed the text had known of the checksum. */
static void mend(char *text, size_t size)
{
    char crc[16], *at = strstr(text, SELF);
    at = at != NULL ? at + strlen(SELF) : NULL;
    if (at != NULL && strnlen(at, 8) == 8) {
        memcpy(at, "00000000", 8);
        snprintf(crc, sizeof(crc), "%08" PRIx32, weft__crc32c(0, text, size));
        memcpy(at, crc, 8);
    }
}

static void check(const weft_manifest_t *manifest)
{
    CHECK(manifest->count >= 0 && manifest->count <= WEFT_CHECKPOINT_FILES_MOST);
    for (int i = 0; i < manifest->count; i++) {
        CHECK(memchr(manifest->files[i].name, '\0', sizeof(manifest->files[i].name)) != NULL);
        CHECK(strchr(manifest->files[i].name, '/') == NULL);
    }
}

static void same(const weft_manifest_t *a, const weft_manifest_t *b)
{
    CHECK(a->count == b->count && a->state.step == b->state.step);
    CHECK(a->state.samples == b->state.samples && a->state.tokens == b->state.tokens);
    CHECK(a->state.seed == b->state.seed && a->state.skipped == b->state.skipped);
    CHECK(a->state.loss_scale == b->state.loss_scale);
    CHECK(a->state.loss == b->state.loss || a->state.loss != a->state.loss);
    CHECK(strcmp(a->settings, b->settings) == 0);
    for (int i = 0; i < a->count; i++) {
        CHECK(strcmp(a->files[i].name, b->files[i].name) == 0);
        CHECK(a->files[i].bytes == b->files[i].bytes && a->files[i].crc == b->files[i].crc);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    fuzz_rest_t rest = {data, size};
    uint8_t kind = fuzz_byte(&rest);
    size_t length = rest.left;
    char *text = fuzz_text(&rest, FUZZ_ALL);
    weft_manifest_t manifest, again;
    if (!made) {
        fuzz_put("model.safetensors", "twelve bytes", 12);
        made = true;
    }
    if ((kind & 1) != 0) {
        mend(text, length);
    }
    fuzz_put("trainer.json", text, length);
    if (weft__manifest_read(fuzz_folder(), &manifest) == WEFT_OK) {
        check(&manifest);
        for (int want = 0; want < 3; want++) {
            (void)weft__manifest_verify(fuzz_folder(), &manifest, (weft_load_t)want);
        }
        CHECK(weft__manifest_write(fuzz_folder(), &manifest) == WEFT_OK);
        CHECK(weft__manifest_read(fuzz_folder(), &again) == WEFT_OK);
        same(&manifest, &again);
        free(again.settings);
    } else {
        CHECK(strlen(weft_last_error()) > 10);
    }
    free(manifest.settings);
    free(text);
    return 0;
}

static void seed(const weft_manifest_t *manifest)
{
    char text[8192] = {1};
    CHECK(weft__manifest_write(fuzz_folder(), manifest) == WEFT_OK);
    FILE *file = fopen(fuzz_path("trainer.json"), "re");
    CHECK(file != NULL);
    size_t count = fread(text + 1, 1, sizeof(text) - 1, file);
    fclose(file);
    fuzz_seed(text, 1 + count);
}

void fuzz_seeds(void)
{
    static const char *const words[] = {"\"crc32c\"",   "\"bytes\"",
                                        "null",         "18446744073709551615",
                                        "\"loss\"",     "\"optimizer.safetensors\"",
                                        "\\u0000",      "..",
                                        "\"settings\"", "deadbeef"};
    const char bytes[] = "twelve bytes";
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    seed(&(weft_manifest_t){.state = {.step = 7, .loss_scale = 1, .loss = 2.5},
                            .files = {{"model.safetensors", 12, weft__crc32c(0, bytes, 12)},
                                      {"optimizer.safetensors", 12, 0x1234}},
                            .count = 2,
                            .settings = "batch = 8\nout = \"a b\"\n"});
    seed(&(weft_manifest_t){.state = {.loss = 1e300 * 1e300, .seed = UINT64_MAX},
                            .files = {{"model.safetensors", 12, 1}},
                            .count = 1});
}
