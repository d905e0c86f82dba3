/* Text that others wrote (names in JSON files, of hosts, of files), made fit for a terminal. */
#ifndef WEFT_BASE_PLAIN_H
#define WEFT_BASE_PLAIN_H

#include <stdbool.h>
#include <stddef.h>

/* `text` into `out`, of `room` bytes: control characters (also those of two bytes) and bytes that
 * are no UTF-8 become \x1b and the like, so that they move no cursor and forge no output. What does
 * not fit is cut off, between characters. `lines`: new lines stay. Returns `out`. */
char *weft__plain(char *out, size_t room, const char *text, bool lines);

/* Has the text anything that weft__plain would change? */
bool weft__is_plain(const char *text, bool lines);

#endif
