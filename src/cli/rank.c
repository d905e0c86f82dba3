/* Which rank of a command speaks. */
#include "cli/rank.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "boot/job.h"

#define REPORT_S 1

void weft__rank_say(const char *sentence)
{
    char text[2048]; /* reading the job may have a sentence of its own */
    const weft_job_t *job;
    snprintf(text, sizeof(text), "%s", sentence);
    if (weft__job(&job) != WEFT_OK || job->rank == 0) {
        fprintf(stderr, "%s\n", text);
    } else if (!weft__rank_is_watched()) {
        sleep(REPORT_S);
    }
}

bool weft__rank_is_watched(void)
{
    const weft_job_t *job;
    return weft__job(&job) == WEFT_OK && strcmp(job->launcher, "weft") == 0;
}

bool weft__rank_has_news(weft_status_t status)
{
    bool hearsay = status == WEFT_ERR_RANK_LEFT || status == WEFT_ERR_ABORTED ||
                   status == WEFT_ERR_BROKEN ||
                   (status == WEFT_ERR_RANK_DEAD && weft__rank_is_watched());
    return !hearsay;
}
