/* The tokens of the next step: see feed.h. */
#include "train/feed.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/log.h"

#define SLOTS 2

struct weft_feed {
    weft_feed_options_t options;
    int32_t *tokens; /* SLOTS x (inputs, targets) */
    size_t slot_tokens;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* over all below */
    pthread_cond_t changed;
    uint64_t filled; /* steps fetched */
    uint64_t done;   /* steps whose slots are free again */
    bool stop;
    weft_status_t status; /* of the fetch of step `filled` */
    char sentence[512];
};

static int32_t *slot_of(const weft_feed_t *feed, uint64_t step)
{
    return feed->tokens + (step % SLOTS) * 2 * feed->slot_tokens;
}

static weft_status_t fetch(const weft_feed_t *feed, uint64_t step)
{
    const weft_feed_options_t *o = &feed->options;
    int32_t *inputs = slot_of(feed, step), *targets = inputs + feed->slot_tokens;
    weft_status_t status = WEFT_OK;
    for (uint64_t i = o->begin; i < o->end && status == WEFT_OK; i++) {
        uint64_t sample = o->first + step * o->batch + i;
        status = weft__data_sample(o->data, sample, inputs, targets);
        inputs += o->length;
        targets += o->length;
    }
    return status;
}

static void *feed_main(void *arg)
{
    weft_feed_t *feed = arg;
    pthread_mutex_lock(&feed->lock);
    while (!feed->stop && feed->filled < feed->options.steps && feed->status == WEFT_OK) {
        if (feed->filled >= feed->done + SLOTS) {
            pthread_cond_wait(&feed->changed, &feed->lock);
            continue;
        }
        uint64_t step = feed->filled;
        pthread_mutex_unlock(&feed->lock);
        weft_status_t status = fetch(feed, step);
        pthread_mutex_lock(&feed->lock);
        feed->status = status;
        if (status == WEFT_OK) {
            feed->filled++;
        } else {
            snprintf(feed->sentence, sizeof(feed->sentence), "%s", weft_last_error());
        }
        pthread_cond_broadcast(&feed->changed);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

weft_status_t weft__feed_open(const weft_feed_options_t *options, weft_feed_t **feed_p)
{
    weft_feed_t *feed = calloc(1, sizeof(*feed));
    if (feed == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to fetch tokens");
    }
    feed->options = *options;
    feed->slot_tokens = (size_t)(options->end - options->begin) * options->length;
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->changed, NULL);
    weft_status_t status = weft_host_malloc((void **)&feed->tokens,
                                            2 * SLOTS * feed->slot_tokens * sizeof(int32_t));
    int error = status == WEFT_OK ? pthread_create(&feed->thread, NULL, feed_main, feed) : 0;
    if (error != 0) {
        status = weft__fail(WEFT_ERR_SYSTEM,
                            "the thread that fetches tokens could not be started: %s",
                            strerror(error));
    }
    feed->started = status == WEFT_OK;
    if (status != WEFT_OK) {
        weft__feed_close(feed);
        return status;
    }
    *feed_p = feed;
    return WEFT_OK;
}

void weft__feed_close(weft_feed_t *feed)
{
    if (feed == NULL) {
        return;
    }
    if (feed->started) {
        pthread_mutex_lock(&feed->lock);
        feed->stop = true;
        pthread_cond_broadcast(&feed->changed);
        pthread_mutex_unlock(&feed->lock);
        pthread_join(feed->thread, NULL);
    }
    weft_host_free(feed->tokens);
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->lock);
    free(feed);
}

weft_status_t weft__feed_take(weft_feed_t *feed, uint64_t step, const int32_t **inputs_p,
                              const int32_t **targets_p)
{
    pthread_mutex_lock(&feed->lock);
    while (feed->filled <= step && feed->status == WEFT_OK) {
        pthread_cond_wait(&feed->changed, &feed->lock);
    }
    weft_status_t status = feed->filled > step ? WEFT_OK : feed->status;
    pthread_mutex_unlock(&feed->lock);
    if (status != WEFT_OK) {
        return weft__fail(status, "%s", feed->sentence);
    }
    *inputs_p = slot_of(feed, step);
    *targets_p = *inputs_p + feed->slot_tokens;
    return WEFT_OK;
}

void weft__feed_done(weft_feed_t *feed, uint64_t step)
{
    pthread_mutex_lock(&feed->lock);
    feed->done = step + 1;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}
