/* CUDA_VISIBLE_DEVICES.
 *
 *     kind[1]  text     kind: the order, and which of the GPUs are cut by MIG
 *
 * reads: src/topo/gpu_cuda.c */
#include "fuzz/fuzz.h"

#include "topo/gpu.h"
#include "topo/gpu_read.h"

const long fuzz_runs = 30000;

#define GPUS 8

static weft_gpu_t gpu[GPUS];
static int order[GPUS], shown[GPUS];

static void make_gpus(uint8_t kind, weft_gpus_t *gpus)
{
    memset(gpu, 0, sizeof(gpu));
    for (int i = 0; i < GPUS; i++) {
        gpu[i].index = i;
        gpu[i].bus = (i * 5) % GPUS;
        gpu[i].cores = gpu[i].clock_mhz = (kind & 1) != 0 ? i % 3 : -1;
        gpu[i].mig = (kind & 2) != 0 && i >= 6;
        gpu[i].parts = gpu[i].mig && i == 7;
        snprintf(gpu[i].name, sizeof(gpu[i].name), "GPU of kind %d", (kind & 16) != 0 ? i % 2 : 0);
        snprintf(gpu[i].uuid, sizeof(gpu[i].uuid), "GPU-%d%d", i / 2, i);
        snprintf(gpu[i].part_uuids[0], sizeof(gpu[i].part_uuids[0]), "MIG-%d", i);
    }
    *gpus = (weft_gpus_t){.count = GPUS, .gpus = gpu, .order = order, .cuda = shown};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    uint8_t kind = fuzz_byte(&rest);
    char *text = fuzz_text(&rest, FUZZ_ALL);
    bool seen[GPUS] = {false};
    weft_gpus_t gpus;
    make_gpus(kind, &gpus);
    weft__gpus_number((kind & 8) != 0 ? NULL : text, (kind & 4) != 0 ? "PCI_BUS_ID" : NULL, &gpus);

    CHECK(gpus.cuda_count >= 0 && gpus.cuda_count <= GPUS);
    CHECK(memchr(gpus.cuda_note, '\0', sizeof(gpus.cuda_note)) != NULL);
    for (int i = 0; i < gpus.cuda_count; i++) {
        CHECK(shown[i] >= 0 && shown[i] < GPUS && !seen[shown[i]]);
        seen[shown[i]] = true;
        CHECK(gpu[shown[i]].cuda == i);
        CHECK(gpu[shown[i]].mig == 0 || gpus.cuda_count == 1);
    }
    for (int i = 0; i < GPUS; i++) {
        CHECK(seen[i] || gpu[i].cuda == -1);
    }
    /* nothing shown is never without a word */
    CHECK(gpus.cuda_count > 0 || gpus.cuda_note[0] != '\0');
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const words[] = {"GPU-", "MIG-", "MIG-GPU-",
                                        "-1",   "7,",   "99999999999999999999"};
    static const char *const seeds[] = {
        "0,1,2,3,4,5,6,7", "7,3",     "MIG-7,GPU-0", "GPU-00,GPU-1", "0,2,-1", "MIG-GPU-3/1/0,6",
        " 4 , 5 ",         "GPU-11,", "6,6",         "MIG-7,MIG-7",  ""};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        fuzz_seed_kind((uint8_t)i, seeds[i]);
        fuzz_seed_kind((uint8_t)(i * 5), seeds[i]);
    }
}
