/* Inside of checkpoints: what writing and loading have in common. */
#ifndef WEFT_TRAIN_CHECKPOINT_PARTS_H
#define WEFT_TRAIN_CHECKPOINT_PARTS_H

#include "base/file.h"
#include "train/checkpoint.h"

#define WEFT_CHECKPOINT_STATE "trainer.json"
#define WEFT_CHECKPOINT_MODEL "model.safetensors"
#define WEFT_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define WEFT_CHECKPOINT_RESIDUALS "residuals.safetensors"
#define WEFT_CHECKPOINT_FILES_MOST 8

/* A file as trainer.json lists it. */
typedef struct weft_listed_file {
    char name[64];
    uint64_t bytes;
    uint32_t crc;
} weft_listed_file_t;

typedef struct weft_manifest {
    weft_train_state_t state;
    char run[WEFT_RUN_ID]; /* that wrote it; "" if it does not say */
    weft_listed_file_t files[WEFT_CHECKPOINT_FILES_MOST];
    int count;
    char *settings; /* owned; NULL: none */
} weft_manifest_t;

/* Write or read folder/trainer.json. It holds a checksum of itself too. */
weft_status_t weft__manifest_write(const char *folder, const weft_manifest_t *manifest);
weft_status_t weft__manifest_read(const char *folder, weft_manifest_t *out);

/* Compare the files with the list, as far as they are wanted. */
weft_status_t weft__manifest_verify(const char *folder, const weft_manifest_t *manifest,
                                    weft_load_t want);

/* Write a whole checkpoint of the run `id` into the new folder `folder`, durable; *bytes_p is its
 * size. */
weft_status_t weft__checkpoint_write(const char *folder, const char *id,
                                     const weft_checkpoint_t *checkpoint, uint64_t *bytes_p);

/* Point RUN/latest to the checkpoint `name`, durable. */
weft_status_t weft__checkpoint_point(const char *run, const char *name);

/* "step-000100" */
#define WEFT_CHECKPOINT_NAME 32
const char *weft__checkpoint_name(uint64_t number, char name[WEFT_CHECKPOINT_NAME]);

/* The number in "step-000100"; -1 if `name` is no name of a checkpoint. */
int64_t weft__checkpoint_number(const char *name);

#define WEFT_CHECKPOINT_NONE (-1)
#define WEFT_CHECKPOINT_UNKNOWN (-2)

/* The largest number of a checkpoint in the run folder that is less than `below`;
 * WEFT_CHECKPOINT_NONE if there is none, WEFT_CHECKPOINT_UNKNOWN, with a sentence, if the folder
 * cannot be listed. */
int64_t weft__checkpoint_newest(const char *run, int64_t below);

#endif
