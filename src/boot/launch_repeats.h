/* What several ranks say alike is shown once.
 *
 * Ranks of our own commands often fail for one reason, and each says so. The launcher passes on the
 * first such line and leaves out what other ranks repeat; a rank that says it again is heard again.
 * Programs of users are never treated so. */
#ifndef WEFT_BOOT_LAUNCH_REPEATS_H
#define WEFT_BOOT_LAUNCH_REPEATS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct weft_repeats weft_repeats_t;

/* NULL without memory: then nothing is left out. weft__repeats_destroy takes NULL. */
weft_repeats_t *weft__repeats_create(void);
void weft__repeats_destroy(weft_repeats_t *repeats);
/* Forget everything: the job starts anew. */
void weft__repeats_reset(weft_repeats_t *repeats);

/* `rank` says a line. Has another said it since this one last did? */
bool weft__repeats_heard(weft_repeats_t *repeats, int rank, const char *line, size_t bytes);

/* Are two lines the same but for the number of who says them: "device 1 is full" of rank 1, "device
 * 2 is full" of rank 2? */
bool weft__same_words(const char *a, size_t a_bytes, int a_rank, const char *b, size_t b_bytes,
                      int b_rank);

#endif
