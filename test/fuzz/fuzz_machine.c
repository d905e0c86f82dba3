/* What the kernel writes about memory, control groups and NUMA nodes, where names of mounts and
 * groups are anybody's.
 *
 *     mountinfo NUL cgroup NUL meminfo NUL limit NUL used NUL memory.stat NUL cpulist
 *
 * The group's files lie in /cg, a mount point that the seeds name.
 *
 * reads: src/device/sysmem.c src/topo/here.c src/topo/cpu_list.c
 * besides: find_ours weft__sysmem */
#include "fuzz/fuzz.h"

#include "base/file.h"
#include "device/sysmem.h"
#include "topo/topo.h"

const long fuzz_runs = 400;

static const char *const files[] = {"proc/self/mountinfo",
                                    "proc/self/cgroup",
                                    "proc/meminfo",
                                    "cg/memory.max",
                                    "cg/memory.current",
                                    "cg/memory.stat",
                                    "sys/devices/system/node/node0/cpulist"};
static const char *const folders[] = {"proc/self", "cg/a", "sys/devices/system/node/node0",
                                      "sys/devices/system/node/node1"};

static void start(void)
{
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        CHECK(weft__folder_make(fuzz_path(folders[i])) == WEFT_OK);
    }
    fuzz_put("cg/a/memory.limit_in_bytes", "1000000\n", 8);
    fuzz_put("cg/a/memory.usage_in_bytes", "500000\n", 7);
    fuzz_put("cg/a/memory.max", "max\n", 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    weft_sysmem_t sysmem;
    char text[WEFT_BYTES_TEXT];
    bool has_nodes = false;
    if (!started) {
        start();
        started = true;
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
        size_t length = end != NULL ? (size_t)(end - data) : size;
        fuzz_put(files[i], data, length);
        has_nodes = i == sizeof(files) / sizeof(files[0]) - 1 && length > 0;
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    weft__sysmem_find(fuzz_folder(), &sysmem);
    CHECK(sysmem.group_count >= 0 && sysmem.group_count <= 2);
    for (int i = 0; i < sysmem.group_count; i++) {
        CHECK(memchr(sysmem.groups[i].path, '\0', WEFT_SYSMEM_PATH) != NULL);
        CHECK(sysmem.groups[i].mount_length <= strlen(sysmem.groups[i].path));
    }
    weft__bytes_text(weft__sysmem_total(&sysmem), text);
    weft__bytes_text(weft__sysmem_room(&sysmem), text);
    if (has_nodes) { /* 256 files are looked for */
        int node = weft__numa_here(fuzz_folder());
        CHECK(node == -1 || node == 0);
    }
    return 0;
}

void fuzz_seeds(void)
{
    static const char v2[] =
        "29 23 0:26 / /cg rw,nosuid - cgroup2 cgroup2 rw\n\0000::/a\n\000MemTotal: 16000000 "
        "kB\nMemAvailable: 9000000 kB\n\0008000000000\n\0001000\n\000anon 5\nactive_file 300\n"
        "inactive_file 400\n\0000-3,8\n";
    static const char v1[] =
        "30 23 0:27 /x /cg rw shared:9 - cgroup cgroup rw,memory\n\0007:cpu,memory:/x/a\n"
        "\000MemTotal: 16000000 kB\n\0009223372036854771712\n";
    static const char both[] =
        "1 2 0:1 / /c\\040g rw - cgroup2 x rw\n2 2 0:1 / /cg rw - cgroup x memory\n"
        "\0000::/../b\n3:memory:/\n\000\000max\n";
    static const char *const words[] = {
        " - cgroup2 ", " - cgroup ",    "\\040",          "memory", "0::/",
        "MemTotal:",   "MemAvailable:", "inactive_file ", "/..",    "0-1023"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    fuzz_seed(v2, sizeof(v2) - 1);
    fuzz_seed(v1, sizeof(v1) - 1);
    fuzz_seed(both, sizeof(both) - 1);
}
