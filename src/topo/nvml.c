#include "topo/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct row {
    const char *symbol;
    size_t offset; /* of the pointer in weft_nvml_t */
} row_t;

static const row_t table[] = {
#define ROW(returns, field, symbol, parameters) {symbol, offsetof(weft_nvml_t, field)},
    WEFT_NVML_TABLE(ROW)
#undef ROW
};

#define ROWS ((int)(sizeof(table) / sizeof(table[0])))

/* NULL, or the name of a required function that is missing. */
static const char *find_functions(void *library, weft_nvml_t *nvml)
{
    for (int i = 0; i < ROWS; i++) {
        void *symbol = dlsym(library, table[i].symbol);
        if (symbol == NULL && i < WEFT_NVML_REQUIRED) {
            return table[i].symbol;
        }
        /* as bytes: C knows no conversion from an object's address to a function's */
        memcpy((char *)nvml + table[i].offset, &symbol, sizeof(symbol));
    }
    return NULL;
}

const char *weft__nvml_text(const weft_nvml_t *nvml, int error)
{
    const char *text = nvml->error_text == NULL ? NULL : nvml->error_text(error);
    return text == NULL ? "an unknown error" : text;
}

static const char *advice(int error)
{
    switch (error) {
    case WEFT_NVML_DRIVER_NOT_LOADED:
        return "; load the kernel module nvidia";
    case WEFT_NVML_VERSION_MISMATCH:
        return "; the driver was updated: load its kernel module again, or reboot";
    case WEFT_NVML_NO_PERMISSION:
    case WEFT_NVML_BLOCKED:
        return "; this process needs access to /dev/nvidia*";
    }
    return "";
}

bool weft__nvml_open(const char *library, weft_nvml_t *nvml_p, char *reason, size_t room)
{
    weft_nvml_t nvml = {0};
    nvml.library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (nvml.library == NULL) {
        const char *text = dlerror();
        snprintf(reason, room, "there is no NVIDIA driver (%s)", text == NULL ? library : text);
        return false;
    }
    const char *missing = find_functions(nvml.library, &nvml);
    if (missing != NULL) {
        snprintf(reason, room, "%s lacks %s; the driver is too old", library, missing);
        goto err_unload;
    }
    int error = nvml.init();
    if (error != WEFT_NVML_OK) {
        snprintf(reason, room, "the NVIDIA driver does not start: %s%s",
                 weft__nvml_text(&nvml, error), advice(error));
        goto err_unload;
    }
    *nvml_p = nvml;
    return true;
err_unload:
    dlclose(nvml.library);
    return false;
}

void weft__nvml_close(weft_nvml_t *nvml)
{
    nvml->shutdown();
    dlclose(nvml->library);
    memset(nvml, 0, sizeof(*nvml));
}
