#include "topo/result.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <weft/status.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/version.h"

static void json_setting(const char *name, const char *value, bool is_default, const char *text,
                         void *ctx)
{
    weft_json_t *json = ctx;
    (void)is_default;
    (void)text;
    weft__json_string(json, name, value);
}

static weft_status_t open_file(const char *path, weft_output_t **file_p)
{
    fflush(stdout);
    WEFT_TRY(weft__output_open(path, file_p));
    if (strcmp(path, "-") == 0 && dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        weft__output_discard(*file_p);
        *file_p = NULL;
        return weft__fail(WEFT_ERR_SYSTEM, "cannot write to stdout: %s", strerror(errno));
    }
    return WEFT_OK;
}

void weft__result_head(weft_json_t *json, const weft_result_head_t *head)
{
    weft__json_string(json, "kind", head->kind);
    weft__json_int(json, "format", WEFT_RESULT_FORMAT);
    weft__json_string(json, "version", weft_version());
    weft__json_string(json, "commit", weft__commit);
    weft__json_array(json, "command");
    for (char *const *word = head->command; word && *word; word++) {
        weft__json_string(json, NULL, *word);
    }
    weft__json_end(json);
    weft__json_object(json, "machine");
    weft__machine_write(head->machine, json);
    weft__json_end(json);
    if (head->ranks > 0) {
        weft__json_int(json, "ranks", head->ranks);
        weft__json_string(json, "ranks_are", head->threads ? "threads" : "processes");
        weft__json_string(json, "device", head->device);
        weft__json_string(json, "device_name", head->device_name);
    }
    if (head->kernels) {
        weft__json_string(json, "kernels", head->kernels);
    }
    weft__json_object(json, "settings");
    weft__settings_each(json_setting, json);
    weft__json_end(json);
}

weft_status_t weft__result_open(weft_result_t *result, const weft_result_head_t *head)
{
    *result = (weft_result_t){.file = NULL};
    if (!head->path) {
        return WEFT_OK;
    }
    WEFT_TRY(open_file(head->path, &result->file));
    weft__json_start(&result->json, weft__output_stream(result->file));
    weft__json_object(&result->json, NULL);
    weft__result_head(&result->json, head);
    return WEFT_OK;
}

weft_status_t weft__result_close(weft_result_t *result, weft_status_t status)
{
    weft_output_t *file = result->file;
    result->file = NULL;
    if (!file) {
        return status;
    }
    if (status != WEFT_OK) {
        weft__output_discard(file);
        return status;
    }
    weft__json_end(&result->json);
    return weft__output_end(file, weft__json_finish(&result->json));
}
