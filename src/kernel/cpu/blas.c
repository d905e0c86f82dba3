/* Loads the BLAS. Linking it would start its threads in every program that uses Weft. */
#include "kernel/cpu/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "kernel/cpu/inner.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static weft_sgemm_fn sgemm;

/* Every library has its own name for it; the team's threads call the library at the same time. */
static void use_one_thread(void *library)
{
    static const char *const setters[] = {"openblas_set_num_threads", "MKL_Set_Num_Threads"};
    for (size_t i = 0; i < sizeof(setters) / sizeof(setters[0]); i++) {
        void *symbol = dlsym(library, setters[i]);
        if (symbol != NULL) {
            void (*set)(int);
            memcpy(&set, &symbol, sizeof(set));
            set(1);
        }
    }
}

static void find(void)
{
    const char *name = weft__settings()->blas;
    bool automatic = strcmp(name, "auto") == 0;
    if (strcmp(name, "own") == 0 || (automatic && weft__inner()->own_is_best)) {
        return;
    }
    name = automatic ? "libopenblas.so.0" : name;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "cblas_sgemm") : NULL;
    if (symbol == NULL) {
        weft__info("matrix products use Weft's own code, which is slower: %s (the setting "
                   "WEFT_BLAS; Debian's package is libopenblas0-pthread)",
                   dlerror());
        return;
    }
    use_one_thread(library);
    memcpy(&sgemm, &symbol, sizeof(sgemm));
}

weft_sgemm_fn weft__blas_sgemm(void)
{
    pthread_once(&once, find);
    return sgemm;
}
