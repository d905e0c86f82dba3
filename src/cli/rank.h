/* Which rank of a command speaks. Ranks that fail for the same reason should not all say so: our
 * own launcher leaves repeated lines out (boot/launch.h), under other launchers ranks hold back. */
#ifndef WEFT_CLI_RANK_H
#define WEFT_CLI_RANK_H

#include <stdbool.h>

#include <weft/status.h>

/* Print `sentence` to stderr, for what every rank finds alike, as wrong options: only if this
 * process is no rank at all, or rank 0. The others wait a little, lest their end makes a launcher
 * end rank 0 first. */
void weft__rank_say(const char *sentence);

/* Does our own launcher look after this rank? */
bool weft__rank_is_watched(void);

/* Has a rank whose call failed with `status` anything to say that another does not know better? One
 * that was told by others has not, and that a rank died our launcher says, once. */
bool weft__rank_has_news(weft_status_t status);

#endif
