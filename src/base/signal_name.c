#include "base/signal_name.h"

#include <signal.h>
#include <stddef.h>

static const char *name_of(int number)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {
#define NAME(signal) {signal, #signal}
        NAME(SIGHUP),  NAME(SIGINT),  NAME(SIGQUIT), NAME(SIGILL),  NAME(SIGTRAP), NAME(SIGABRT),
        NAME(SIGBUS),  NAME(SIGFPE),  NAME(SIGKILL), NAME(SIGUSR1), NAME(SIGSEGV), NAME(SIGUSR2),
        NAME(SIGPIPE), NAME(SIGALRM), NAME(SIGTERM), NAME(SIGXCPU), NAME(SIGXFSZ), NAME(SIGSYS),
#undef NAME
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].number == number) {
            return names[i].name;
        }
    }
    return NULL;
}

const char *weft__signal_name(int number, char out[WEFT_SIGNAL_NAME])
{
    const char *name = name_of(number), *text = name != NULL ? name : "signal ";
    size_t used = 0;
    while (text[used] != '\0') {
        out[used] = text[used];
        used++;
    }
    if (name == NULL) { /* no printf in a handler */
        out[used++] = (char)('0' + number / 10 % 10);
        out[used++] = (char)('0' + number % 10);
    }
    out[used] = '\0';
    return out;
}
