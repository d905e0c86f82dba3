/* What the doctor reads: texts of /proc and /sys, the kernel log, PCI configuration space, and the
 * files of a run.
 *
 *     kind[1]  text
 *
 * reads: src/doctor/parse.c src/doctor/run.c src/doctor/trial.c
 * besides: weft__run_median weft__doctor_run_read weft__doctor_run_free weft__trial_run
 * besides: weft__trial_write weft__trial_keep read_file read_config read_machine read_metrics
 * besides: read_trace carry_out compare test_one test_all describe gather sum_up introduce */
#include "fuzz/fuzz.h"

#include "doctor/parse.h"
#include "doctor/run.h"
#include "doctor/trial.h"

const long fuzz_runs = 100000;

enum { LIMITS, KEYS, CPU_MAX, CHOICE, ROUTE, HOSTS, PCI, XID, ACS, STEPS, TRACE, TRIAL, KINDS };

static void read_words(int kind, const char *text)
{
    char word[16];
    int64_t soft, hard;
    switch (kind) {
    case LIMITS:
        if (weft__parse_limit(text, "Max open files", &soft, &hard)) {
            CHECK(soft >= 0 && hard >= 0);
        }
        break;
    case KEYS: {
        const char *value = weft__parse_key(text, "MemTotal");
        CHECK(value == NULL || (value > text && value <= text + strlen(text)));
        CHECK(!weft__parse_key_number(text, "MemTotal", &soft) || (value != NULL && soft >= 0));
        break;
    }
    case CPU_MAX:
        CHECK(weft__parse_cpu_max(text) >= 0);
        break;
    case CHOICE:
        CHECK(!weft__parse_choice(text, word, sizeof(word)) ||
              (strlen(word) < sizeof(word) && strstr(text, word) != NULL));
        break;
    case ROUTE:
        CHECK(!weft__parse_route(text, word, sizeof(word)) || word[0] != '\0');
        break;
    case HOSTS:
        CHECK(!weft__parse_hosts(text, "gpu07", word, sizeof(word)) ||
              (word[0] != '\0' && word[0] != '#'));
        break;
    default: {
        int generation = weft__parse_link_speed(text);
        double rate = weft__parse_rate(text);
        CHECK(generation >= 0 && generation <= 7 && rate >= 0);
    }
    }
}

static void read_log(const char *text, size_t size)
{
    const char *at = text;
    weft_xid_t xid;
    while (weft__parse_xid(&at, text + size, &xid)) {
        CHECK(xid.number >= 0 && xid.line >= text && xid.line + xid.length <= text + size);
        CHECK(at > text && at <= text + size && strlen(xid.bus) < sizeof(xid.bus));
        CHECK(memchr(xid.line, '\n', xid.length) == NULL);
    }
}

static void read_run(int kind, const char *text, size_t size)
{
    weft_run_steps_t steps;
    weft_run_trace_t trace;
    weft_trial_t trial;
    weft_json_doc_t doc;
    if (kind == STEPS) {
        FILE *in = fmemopen((void *)(uintptr_t)text, size > 0 ? size : 1, "r");
        CHECK(in != NULL && weft__run_steps_read(in, &steps) == WEFT_OK);
        fclose(in);
        CHECK((uint64_t)steps.count + steps.damaged == steps.lines);
        WEFT_RUN_MEDIAN(&steps, seconds);
        free(steps.list);
    } else if (kind == TRACE && weft__run_trace_read(text, size, &trace) == WEFT_OK) {
        for (int i = 0; i < trace.count; i++) {
            CHECK(trace.ranks[i].step >= 0 && trace.ranks[i].compute >= 0);
        }
        free(trace.ranks);
    } else if (kind == TRIAL && weft__json_parse(text, size, "trial", &doc) == WEFT_OK) {
        if (weft__trial_read(doc.root, &trial) == WEFT_OK) {
            CHECK(trial.ranks > 0 && trial.list != NULL);
            weft__trial_free(&trial);
        }
        weft__json_free(&doc);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    int kind = fuzz_byte(&rest) % KINDS;
    if (kind == ACS) {
        int bits = weft__parse_acs(rest.at, rest.left);
        CHECK(bits >= -1 && bits <= 0xffff);
    } else if (kind == XID) {
        read_log((const char *)rest.at, rest.left);
    } else if (kind >= STEPS) {
        read_run(kind, (const char *)rest.at, rest.left);
    } else {
        char *text = fuzz_text(&rest, FUZZ_ALL);
        read_words(kind, text);
        free(text);
    }
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const words[] = {
        "unlimited", "Max open files ", "MemTotal:",       "max 100000",
        "00000000",  "NVRM: Xid (PCI:", "): 79, ",         " GT/s PCIe",
        " Gb/sec",   "\"step\": ",      "\"traceEvents\"", "\"ranks\""};
    static uint8_t config[1 + 512] = {ACS};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    fuzz_seed_kind(LIMITS, "Max processes  9 9 p\nMax open files            1024   unlimited f\n");
    fuzz_seed_kind(KEYS, "MemFree: 5 kB\nMemTotal:       16000000 kB\n");
    fuzz_seed_kind(CPU_MAX, "150000 100000\n");
    fuzz_seed_kind(CHOICE, "always [madvise] never\n");
    fuzz_seed_kind(ROUTE, "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
                          "eno1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n");
    fuzz_seed_kind(HOSTS, "127.0.0.1 localhost # gpu07\n10.0.0.7\tx GPU07 y\n");
    fuzz_seed_kind(PCI, "16.0 GT/s PCIe");
    fuzz_seed_kind(PCI, "400 Gb/sec (4X NDR)");
    fuzz_seed_kind(XID,
                   "a\nk: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off\nNVRM: Xid (x): 1");
    config[1 + 0x100] = 1;
    config[1 + 0x103] = 0x15;
    config[1 + 0x150] = 0x0d;
    config[1 + 0x156] = 0x1d;
    fuzz_seed(config, sizeof(config));
    fuzz_seed_kind(STEPS, "{\"step\": 1, \"loss\": null, \"skipped\": true}\n{\"step\": 2, "
                          "\"loss\": 2.5, \"seconds\": 0.5, \"memory\": 5}\n{\"ste");
    fuzz_seed_kind(TRACE, "{\"traceEvents\": [{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"dur\":5.5}]}");
    fuzz_seed_kind(TRIAL,
                   "{\"tests\": 5, \"wrong\": 0, \"backend\": \"shm\", \"ranks\": [{\"host\":"
                   " 1, \"clock_us\": 5, \"name\": \"a\"}]}");
}
