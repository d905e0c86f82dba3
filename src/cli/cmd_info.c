/* weft info: versions, instructions in use, and every setting. */
#include <stdio.h>
#include <sys/utsname.h>

#include <weft/weft.h>

#include <hwloc.h>

#include "base/settings.h"
#include "base/version.h"
#include "cli/commands.h"
#include "comm/backends.h"
#include "device/cuda.h"
#include "kernel/compute.h"
#include "kernel/kernel.h"

/* What is loaded when it is needed, or why it cannot be. */
static void print_libraries(void)
{
    const char *why = "";
    char nccl[512];
    if (weft__cuda_load(&why)) {
        printf("cuda    %d GPU%s\n", weft__cuda_gpus(), weft__cuda_gpus() == 1 ? "" : "s");
    } else {
        printf("cuda    not used: %s\n", why);
    }
    weft__backend_named("nccl")->about(nccl, sizeof(nccl));
    printf("nccl    %s\n", nccl);
}

int weft__cmd_info(int argc, char **argv)
{
    const weft_args_t args = {
        .command = "weft info",
        .synopsis = "",
        .text = "Show versions, the instructions and libraries in use, and every setting: its "
                "environment variable, the value in force, what it does, and the default if it "
                "is another.",
    };
    weft_args_found_t found;
    int ends = weft__command_args(&args, argc, argv, &found);
    if (ends >= 0) {
        return ends;
    }
    if (weft__args_none(&found) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        return WEFT_EXIT_USAGE;
    }
    struct utsname system;
    unsigned hwloc = hwloc_get_api_version();
    printf("weft    %s\n", weft_version());
    printf("commit  %s\n", weft__commit[0] != '\0' ? weft__commit : "not known");
    printf("hwloc   %u.%u.%u (API)\n", hwloc >> 16, hwloc >> 8 & 255, hwloc & 255);
    if (uname(&system) == 0) {
        printf("system  %s %s %s\n", system.sysname, system.release, system.machine);
    }
    const char *simd = weft__kernels()->name, *products = weft__compute_simd();
    printf("simd    %s%s%s\n", simd, strcmp(simd, products) != 0 ? ", products " : "",
           strcmp(simd, products) != 0 ? products : "");
    print_libraries();
    printf("\n");
    weft__settings_print(stdout);
    return 0;
}
