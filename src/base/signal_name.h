/* The name of a signal, for sentences. */
#ifndef WEFT_BASE_SIGNAL_NAME_H
#define WEFT_BASE_SIGNAL_NAME_H

#define WEFT_SIGNAL_NAME 16

/* "SIGTERM", or "signal 40" for one without a name, into `out`. May be called by handlers. Returns
 * `out`. */
const char *weft__signal_name(int number, char out[WEFT_SIGNAL_NAME]);

#endif
