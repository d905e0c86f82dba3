#include "train/ending.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "boot/job.h"
#include "train/loop.h"

#define FIRST_S 300.0       /* for a first step of which nothing is known */
#define LEAST_S 10.0        /* on top of everything: ranks have to be scheduled, files closed */
#define FACTOR 3.0          /* how much longer things may take than they took so far */
#define BYTES_PER_S 50e6    /* of a first checkpoint */
#define BYTES_PER_WEIGHT 16 /* in one: itself and the optimizer's */
#define GROWTH 1.25         /* what the launcher was told need not be changed for less */

/* What a handler may read and set. The text is written in one of two places while the other may be
 * read; the handler may run in any thread. */
static volatile sig_atomic_t interrupted, begun, text_now;
static char texts[2][256];

bool weft__train_interrupt(int signal, const char **text_p)
{
    if (!begun) {
        return false;
    }
    *text_p = interrupted ? NULL : texts[text_now];
    interrupted = interrupted ? interrupted : signal;
    return true;
}

int weft__ending_signal(void)
{
    return (int)interrupted;
}

/* ---- how long it may take ----------------------------------------------------------------- */

static double needed(const weft_ending_t *ending)
{
    if (ending->config->grace > 0.0) {
        return ending->config->grace;
    }
    if (ending->longest <= 0.0) {
        return FIRST_S + FACTOR * ending->saving;
    }
    return LEAST_S + FACTOR * (ending->steps * ending->longest + ending->saving);
}

/* A launcher that cannot be told ends us earlier; what is lost then it says. */
static void ask(weft_ending_t *ending)
{
    ending->asked = ending->config->grace > 0.0 ? ending->config->grace : ceil(needed(ending));
    if (ending->reports && weft__job_ask_grace(ending->asked) != WEFT_OK) {
        weft__warn("the launcher does not know that the run may take %.10g s to end: %s",
                   ending->asked, weft_last_error());
    }
}

static void ask_for_more(weft_ending_t *ending)
{
    if (needed(ending) > GROWTH * ending->asked) {
        ask(ending);
    }
}

void weft__ending_looked(weft_ending_t *ending)
{
    uint64_t now = weft__now_ns();
    double passed = (double)(now - ending->looked_ns) * 1e-9;
    bool first = ending->longest <= 0.0;
    ending->looked_ns = now;
    if (passed > ending->longest) {
        ending->longest = passed;
    }
    if (first) {
        ask(ending);
    } else {
        ask_for_more(ending);
    }
}

void weft__ending_saved(weft_ending_t *ending, double seconds)
{
    ending->saving = fmax(ending->saving, seconds);
    ask_for_more(ending);
}

/* ---- what is said while it lasts ---------------------------------------------------------- */

void weft__ending_step(weft_ending_t *ending, uint64_t step)
{
    int next = !text_now;
    if (!ending->reports) {
        return;
    }
    snprintf(texts[next], sizeof(texts[next]),
             "finishing step %llu%s (up to %.10g s; again to give up)%s", (unsigned long long)step,
             ending->saves ? ", then saving" : "", ending->asked,
             ending->saves ? "" : "; nothing is saved");
    text_now = next;
}

void weft__ending_finish(weft_ending_t *ending)
{
    int next = !text_now;
    snprintf(texts[next], sizeof(texts[next]),
             "the last step is done, finishing what is written (up to %.10g s; again "
             "to give up)",
             ending->asked);
    text_now = next;
}

void weft__ending_begin(weft_ending_t *ending, uint64_t step, uint64_t weights)
{
    ending->saving = ending->saves ? (double)weights * BYTES_PER_WEIGHT / BYTES_PER_S : 0.0;
    ending->looked_ns = weft__now_ns();
    ask(ending);
    weft__ending_step(ending, step);
    begun = 1;
}
