/* ctest: timeout=120 */
/* CUDA_VISIBLE_DEVICES against anything. The first byte of an input decides about the order and MIG;
 * the rest is the variable. */
#include "fuzz.h"
#include "topo/gpu.h"
#include "topo/gpu_read.h"

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
        snprintf(gpu[i].uuid, sizeof(gpu[i].uuid), "GPU-%d%d", i / 2, i);
        snprintf(gpu[i].part_uuids[0], sizeof(gpu[i].part_uuids[0]), "MIG-%d", i);
    }
    *gpus = (weft_gpus_t){.count = GPUS, .gpus = gpu, .order = order, .cuda = shown};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[4096] = "";
    bool seen[GPUS] = {false};
    weft_gpus_t gpus;
    fuzz_data = data;
    fuzz_size = size;
    uint8_t kind = size > 0 ? data[0] : 0;
    if (size > 1) {
        memcpy(text, data + 1, size - 1 < sizeof(text) ? size - 1 : sizeof(text) - 1);
    }
    make_gpus(kind, &gpus);
    weft__gpus_number(text, (kind & 4) != 0 ? "PCI_BUS_ID" : NULL, &gpus);

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
    return 0;
}

#define SEED(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
static const fuzz_seed_t seeds[] = {
    SEED("\0000,1,2,3,4,5,6,7"), SEED("\0017,3"),     SEED("\002MIG-7,GPU-0"),
    SEED("\003GPU-00,GPU-1"),    SEED("\0040,2,-1"),  SEED("\007MIG-GPU-3/1/0,6"),
    SEED("\002 4 , 5 "),         SEED("\001GPU-11,"),
};

FUZZ_MAIN(seeds, sizeof(seeds) / sizeof(seeds[0]), 200000)
