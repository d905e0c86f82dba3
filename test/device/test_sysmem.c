/* How much memory the machine has, from made-up /proc and control group files. */
#define _GNU_SOURCE 1 /* nftw */
#include "device/child.h"
#include "device/sysmem.h"

#include <ftw.h>
#include <sys/types.h>

static char root[] = "/tmp/weft-test-sysmem-XXXXXX";

static void put(const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof(name), "%s%s", root, path);
    for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(name, 0700);
        *at = '/';
    }
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat, (void)kind, (void)ftw;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    memcpy(root + strlen(root) - 6, "XXXXXX", 6);
    if (mkdtemp(root) == NULL) {
        return -1;
    }
    put("/proc/meminfo",
        "MemTotal:       1000 kB\nMemFree:        50 kB\nMemAvailable:   600 kB\n");
    return 0;
}

static int drop_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void expect(uint64_t total, uint64_t room)
{
    weft_sysmem_t sysmem;
    weft__sysmem_find(root, &sysmem);
    assert_int_equal(weft__sysmem_total(&sysmem), total);
    assert_int_equal(weft__sysmem_room(&sysmem), room);
}

static void without_groups_meminfo_counts(void **state)
{
    (void)state;
    expect(1000 * 1024, 600 * 1024);
}

static void without_files_nothing_is_known(void **state)
{
    (void)state;
    char name[512];
    snprintf(name, sizeof(name), "%s/proc/meminfo", root);
    assert_int_equal(unlink(name), 0);
    expect(WEFT_SYSMEM_UNKNOWN, WEFT_SYSMEM_UNKNOWN);
}

static void v2_counts_cache_as_room(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/user/job\n");
    put("/proc/self/mountinfo", "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/user/job/memory.max", "400000\n");
    put("/sys/fs/cgroup/user/job/memory.current", "300000\n");
    put("/sys/fs/cgroup/user/job/memory.stat",
        "anon 10\nfile 90000\ninactive_anon 5\nactive_file 20000\ninactive_file 60000\n");
    expect(400000, 180000);
}

static void v2_group_above_may_be_tighter(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/user/job\n");
    put("/proc/self/mountinfo", "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/user/job/memory.max", "max\n");
    put("/sys/fs/cgroup/user/job/memory.current", "100\n");
    put("/sys/fs/cgroup/user/memory.max", "300000\n");
    put("/sys/fs/cgroup/user/memory.current", "250000\n");
    expect(300000, 50000);
    put("/sys/fs/cgroup/user/memory.current", "350000\n");
    expect(300000, 0);
}

static void v2_in_a_container_sees_itself_as_top(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", "30 23 0:27 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("/sys/fs/cgroup/memory.max", "200000\n");
    put("/sys/fs/cgroup/memory.current", "1000\n");
    expect(200000, 199000);
}

static void v1_container_mounts_its_own_group(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "9:name=systemd:/docker/abc\n4:cpu,memory:/docker/abc\n0::/\n");
    put("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "32 31 0:29 /docker/abc /sys/fs/cgroup/memory\\040x ro shared:9 - cgroup cgroup "
        "rw,cpu,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/memory x/memory.limit_in_bytes", "500000\n");
    put("/sys/fs/cgroup/memory x/memory.usage_in_bytes", "200000\n");
    put("/sys/fs/cgroup/memory x/memory.stat",
        "active_file 1\ninactive_file 1\ntotal_inactive_file 50000\ntotal_active_file 0\n");
    expect(500000, 350000);
}

static void v1_huge_number_is_no_limit(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/a\n");
    put("/proc/self/mountinfo", "32 31 0:29 / /cg rw - cgroup cgroup rw,memory\n");
    put("/cg/a/memory.limit_in_bytes", "9223372036854771712\n");
    put("/cg/a/memory.usage_in_bytes", "5\n");
    put("/cg/memory.limit_in_bytes", "900000\n");
    put("/cg/memory.usage_in_bytes", "800000\n");
    expect(900000, 100000);
}

static void damaged_files_do_not_matter(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "\n:\n0:\nnonsense\n0::/../../elsewhere\n");
    put("/proc/self/mountinfo",
        "\n - \n1 2 - cgroup2\n1 2 3 / /cg - cgroup2 x y\n - cgroup2 a b\n");
    put("/cg/memory.max", "12x\n");
    put("/cg/memory.current", "\n");
    expect(12, 600 * 1024);
}

static void this_machine_has_memory(void **state)
{
    (void)state;
    uint64_t total = weft__sysmem_total(weft__sysmem());
    uint64_t room = weft__sysmem_room(weft__sysmem());
    assert_true(total > (16u << 20) && total < WEFT_SYSMEM_UNKNOWN);
    assert_true(room > 0 && room <= total);
}

static void bytes_read_well(void **state)
{
    (void)state;
    char text[WEFT_BYTES_TEXT];
    assert_string_equal(weft__bytes_text(0, text), "0 bytes");
    assert_string_equal(weft__bytes_text(300, text), "300 bytes");
    assert_string_equal(weft__bytes_text(64u << 20, text), "64 MiB");
    assert_string_equal(weft__bytes_text(1536, text), "1.50 KiB");
    assert_string_equal(weft__bytes_text(UINT64_MAX, text), "16.00 EiB");
}

#define ROOT_TEST(name) cmocka_unit_test_setup_teardown(name, make_root, drop_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROOT_TEST(without_groups_meminfo_counts),
        ROOT_TEST(without_files_nothing_is_known),
        ROOT_TEST(v2_counts_cache_as_room),
        ROOT_TEST(v2_group_above_may_be_tighter),
        ROOT_TEST(v2_in_a_container_sees_itself_as_top),
        ROOT_TEST(v1_container_mounts_its_own_group),
        ROOT_TEST(v1_huge_number_is_no_limit),
        ROOT_TEST(damaged_files_do_not_matter),
        cmocka_unit_test(this_machine_has_memory),
        cmocka_unit_test(bytes_read_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
