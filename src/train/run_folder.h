/* The run folder, and whose it is.
 *
 * RUN/run.json names the run by a random number, and the trainer.json of each checkpoint names the
 * run that wrote it. A run takes for its own what has both: only that does it remove (--keep) or
 * write over. A folder without run.json is nobody's run, whatever lies in it; but for those of
 * versions before there was one, which have config, metrics.jsonl and latest: they are gone on
 * with, and what is in them is kept.
 *
 *     RUN/run.json         {"format": "weft run", "version": 1, "id": "6b0c7d52f1e9a384"}
 *     RUN/set-aside-1/     what a run that went back before them left behind: checkpoints, and the
 *                          lines of metrics.jsonl after the step it went on from */
#ifndef WEFT_TRAIN_RUN_FOLDER_H
#define WEFT_TRAIN_RUN_FOLDER_H

#include "train/checkpoint.h"

/* The run of `folder` into `id`; "" if it has no run.json. WEFT_ERR_INVALID if that is damaged. */
weft_status_t weft__run_read(const char *folder, char id[WEFT_RUN_ID]);

/* The same, and where there is none, one is made. The caller has the folder's lock. */
weft_status_t weft__run_claim(const char *folder, char id[WEFT_RUN_ID]);

/* Is folder/step-NUMBER a checkpoint that the run `id` wrote? One that is damaged, or says nothing
 * of it, is not; of one that cannot be read nobody knows. */
weft_status_t weft__run_wrote(const char *folder, const char *id, uint64_t number, bool *wrote_p);

/* The run folder that the checkpoint lies in, into `out` (WEFT_PATH_BYTES), as `path` names it if
 * it does; "" if it lies in none. */
weft_status_t weft__run_folder(const weft_loaded_t *loaded, const char *path, char *out);

/* Does the checkpoint lie in `folder`, and is that its run's? */
weft_status_t weft__run_holds(const char *folder, const weft_loaded_t *loaded, bool *holds_p);

/* May a run begin in `folder`? WEFT_ERR_INVALID if something is in it that it would write over. */
weft_status_t weft__run_vacant(const char *folder);

/* What would be left behind by a run that goes on in its folder from `loaded`: checkpoints of later
 * steps, as "step-000150, step-000200"; "" if there are none. What lies behind `latest` is not
 * counted: it is what a killed writer had no time to announce, and is written again. */
weft_status_t weft__run_later(const char *folder, const weft_loaded_t *loaded, char *text,
                              size_t room);

/* Where they would go: the first RUN/set-aside-N that is not there. */
weft_status_t weft__run_aside(const char *folder, char *out);

/* Move them there, newest first, with the lines of metrics.jsonl after that step, and point
 * `latest` to it. Renames only: whoever is killed in between has lost nothing. */
weft_status_t weft__run_set_aside(const char *folder, const weft_loaded_t *loaded);

/* Move one checkpoint there. */
weft_status_t weft__run_set_aside_one(const char *folder, const char *name);

#endif
