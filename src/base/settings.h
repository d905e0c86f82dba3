/* Settings: every WEFT_* environment variable, in one table.
 *
 * The table makes the struct, the parser, the defaults, `weft info` and the docs. To add a
 * setting, add a row. Kinds: INT, BOOL (0/1/no/yes/off/on), SIZE (bytes with K/M/G/T), MS (a time:
 * "300", "1.5s", "20ms", "5m"; a bare number is seconds), STR. */
#ifndef WEFT_BASE_SETTINGS_H
#define WEFT_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <weft/status.h>

/*    kind  field          variable              default  text */
#define WEFT_SETTINGS_TABLE(X)                                                                     \
    X(STR, log, "WEFT_LOG", "warn", "what to log: error, warn, info, debug, trace")                \
    X(MS, timeout, "WEFT_TIMEOUT", "300", "how long to wait for a late rank; 0 waits for ever")    \
    X(MS, warn_after, "WEFT_WARN_AFTER", "10",                                                     \
      "how long a rank waits for another on virtual GPUs before it says so; 0: never")             \
    X(STR, algo, "WEFT_ALGO", "auto",                                                              \
      "force algorithms: allreduce:ring,broadcast:tree, or one name for all")                      \
    X(STR, device, "WEFT_DEVICE", "cpu",                                                           \
      "where ranks live: cpu (virtual GPUs), cuda, auto (cuda where there is a GPU)")              \
    X(STR, cuda_module, "WEFT_CUDA_MODULE", "",                                                    \
      "the CUDA module to load; empty: libweft-cuda.so beside Weft's own files")                   \
    X(STR, engine, "WEFT_ENGINE", "auto",                                                          \
      "who carries out collectives on GPUs: auto, weft (own kernels), nccl")                       \
    X(STR, nccl, "WEFT_NCCL", "libnccl.so.2", "the NCCL library to load; a name or a path")        \
    X(SIZE, device_memory, "WEFT_DEVICE_MEMORY", "0",                                              \
      "memory of each device; 0: as much as the machine or the GPU has")                           \
    X(INT, devices, "WEFT_DEVICES", "8", "number of devices a process sees at least")              \
    X(STR, nccl_report, "WEFT_NCCL_REPORT", "",                                                    \
      "a folder for times of the calls that programs make of Weft's NCCL library")                 \
    X(BOOL, nccl_register, "WEFT_NCCL_REGISTER", "no",                                             \
      "yes: tell NCCL of registered memory; then all ranks must give registered memory to a "      \
      "call, "                                                                                     \
      "or none of them")                                                                           \
    X(STR, nvml, "WEFT_NVML", "libnvidia-ml.so.1", "library by which GPUs are found")              \
    X(SIZE, pool_keep, "WEFT_POOL_KEEP", "1G", "freed device memory a pool keeps for reuse")       \
    X(BOOL, pool, "WEFT_POOL", "yes",                                                              \
      "no: every weft_malloc on a GPU is an allocation of CUDA's own, so that compute-sanitizer "  \
      "sees its bounds; while a communicator is open, processes share at most 256 of them")        \
    X(BOOL, check_memory, "WEFT_CHECK_MEMORY", "no",                                               \
      "yes: calls on GPUs check that their buffers are in use and large enough, where they are "   \
      "weft_malloc's; calls on virtual GPUs always do")                                            \
    X(SIZE, symm_size, "WEFT_SYMM_SIZE", "64M",                                                    \
      "a rank's part of a symmetric heap whose size the program leaves open")                      \
    X(STR, simd, "WEFT_SIMD", "auto",                                                              \
      "instructions for arithmetic: auto, amx, avx512, avx2, none")                                \
    X(INT, threads, "WEFT_THREADS", "0",                                                           \
      "threads that compute for a rank; 0: as many as the CPUs that it is bound to")               \
    X(STR, blas, "WEFT_BLAS", "auto",                                                              \
      "matrix products on CPUs: own, a library with CBLAS (a name or a path), or auto: own with "  \
      "AVX-512, else libopenblas.so.0")                                                            \
    X(STR, cublas, "WEFT_CUBLASLT", "",                                                            \
      "cuBLASLt, for matrix products on GPUs: a name or a path; empty: CUDA 13's or 12's")         \
    X(INT, matmul_tune, "WEFT_MATMUL_TUNE", "8",                                                   \
      "algorithms to time once for each new shape of a large product on a GPU; 0: take "           \
      "cuBLASLt's first, the same everywhere")                                                     \
    X(STR, matmul_choices, "WEFT_MATMUL_CHOICES", "",                                              \
      "folder where the fastest ones are kept; empty: weft/products under XDG_CACHE_HOME or "      \
      "~/.cache")                                                                                  \
    X(STR, attention, "WEFT_ATTENTION", "auto",                                                    \
      "attention on GPUs: auto (the fastest), warp (tensor cores since Ampere), plain (none)")     \
    X(SIZE, eager_max, "WEFT_EAGER_MAX", "0",                                                      \
      "largest message that travels inside its flag; 0: the tuner decides, at most 64K")           \
    X(SIZE, stream_min, "WEFT_STREAM_MIN", "0",                                                    \
      "bytes a rank touches in a call from which stores bypass the cache; 0: the tuner decides")   \
    X(BOOL, overlap, "WEFT_OVERLAP", "yes",                                                        \
      "let small GPU calls be scheduled while the call before runs, where possible")               \
    X(INT, gpus_apart, "WEFT_GPUS_APART", "0",                                                     \
      "1: ranks that share a GPU pretend to have one each, for tests: flags that reach other "     \
      "GPUs, NCCL for large calls; 2: none reaches the others either: NCCL for all calls")         \
    X(BOOL, take_turns, "WEFT_TAKE_TURNS", "no",                                                   \
      "yes: processes may share a GPU without MPS, where their kernels wait for each other in "    \
      "turns "                                                                                     \
      "of milliseconds: for debuggers and sanitizers, which MPS keeps out")                        \
    X(STR, tune_file, "WEFT_TUNE_FILE", "",                                                        \
      "what weft bench --tune measured; empty: weft/tune under XDG_CONFIG_HOME or ~/.config")      \
    X(STR, expectations, "WEFT_EXPECTATIONS", "",                                                  \
      "folder with the expectations of weft pairs; empty: weft/expectations under "                \
      "XDG_CONFIG_HOME or ~/.config, then those that come with Weft")                              \
    X(STR, pairs_test, "WEFT_PAIRS_TEST", "",                                                      \
      "for tests: all ways of a pair run its baseline, and take so many percent longer; empty: "   \
      "each runs itself")                                                                          \
    X(SIZE, chunk, "WEFT_CHUNK", "1M", "chunk for staged buffers and pipelined algorithms")        \
    X(INT, spin, "WEFT_SPIN", "-1",                                                                \
      "polls before a waiting rank yields its core; -1: few when ranks share cores, else many")    \
    X(STR, bind, "WEFT_BIND", "core", "how weft run binds ranks: core, none")                      \
    X(STR, store_host, "WEFT_STORE_HOST", "127.0.0.1",                                             \
      "address that stores listen on; with ranks on several hosts all, if it is not set")          \
    X(INT, rank, "WEFT_RANK", "-1", "set by weft run: rank of this process")                       \
    X(INT, size, "WEFT_SIZE", "-1", "set by weft run: number of ranks")                            \
    X(INT, local_rank, "WEFT_LOCAL_RANK", "-1", "set by weft run: rank on this host")              \
    X(INT, local_size, "WEFT_LOCAL_SIZE", "-1", "set by weft run: ranks on this host")             \
    X(STR, master_addr, "WEFT_MASTER_ADDR", "",                                                    \
      "host of the job's store: set by weft run; under other launchers, the host of rank 0")       \
    X(INT, master_port, "WEFT_MASTER_PORT", "0",                                                   \
      "port of the job's store: set by weft run; under other launchers, a free one of rank 0's")   \
    X(STR, secret, "WEFT_SECRET", "",                                                              \
      "what a client of the job's store must know, 32 hex digits: set by weft run")                \
    X(STR, test_slow_link, "WEFT_TEST_SLOW_LINK", "",                                              \
      "for tests: 2:5:30 makes weft links find transfers from rank 2 to 5 take 30% longer")        \
    X(STR, terminal, "WEFT_TERMINAL", "", "set by commands that start ranks: terminal of theirs")  \
    X(INT, restart, "WEFT_RESTART", "0", "set by weft run: how often the job was restarted")       \
    X(BOOL, prefixed, "WEFT_PREFIXED", "no",                                                       \
      "set by weft run: yes if it puts the rank in front of each line")                            \
    X(STR, told, "WEFT_TOLD", "", "set by weft run: settings that it has warned of")

#define WEFT_SETTING_INT int
#define WEFT_SETTING_BOOL bool
#define WEFT_SETTING_SIZE size_t
#define WEFT_SETTING_MS int
#define WEFT_SETTING_STR const char *

typedef struct weft_settings {
#define WEFT_SETTING_FIELD(kind, field, name, value, text) WEFT_SETTING_##kind field;
    WEFT_SETTINGS_TABLE(WEFT_SETTING_FIELD)
#undef WEFT_SETTING_FIELD
} weft_settings_t;

/* The settings of this process, read from the environment at the first call (thread-safe). A value
 * that does not parse, or a WEFT_* variable that is not in the table, is warned of once, with the
 * nearest name; the default then holds. */
const weft_settings_t *weft__settings(void);

/* The names of the settings that this process, or its launcher, has warned of, with commas between
 * them: the value of WEFT_TOLD for processes that it starts. */
const char *weft__settings_told(void);

/* For options of a command that stand for a setting: change it here and for processes started
 * later. Only while there is no other thread. */
void weft__settings_set(const char *name, const char *value);

/* For commands that have a choice of their own where the user has made none: the setting
 * WEFT_DEVICE if it is in the environment, else `otherwise`. */
const char *weft__settings_device(const char *otherwise);

/* Parse all of `environ_p` (NULL-terminated NAME=VALUE list) into *out. Complaints go to `warn`
 * (may be NULL), one sentence each. Strings point into environ_p or the table. */
void weft__settings_parse(char *const *environ_p, weft_settings_t *out,
                          void (*warn)(const char *text));

/* One row per setting: name, value in force, text, and the default where it is another ("weft
 * info"). */
void weft__settings_print(FILE *out);

/* Call `fn(name, value in force, is_default, text, ctx)` for every setting, in table order. The
 * secret's value is shown as "(set)". */
void weft__settings_each(void (*fn)(const char *name, const char *value, bool is_default,
                                    const char *text, void *ctx),
                         void *ctx);

/* ---- parsers, also used for command line options ---------------------------------------- */

/* "8", "64K", "1.5M", "2G", "1T", optional trailing B or iB; powers of 1024. false if malformed,
 * negative, or out of range. */
bool weft__parse_size(const char *text, size_t *out_p);

/* Milliseconds from "300" (seconds), "1.5s", "20ms", "5m", "1h". false if malformed or >
 * INT_MAX. */
bool weft__parse_ms(const char *text, int *out_p);
bool weft__parse_int(const char *text, int *out_p);

/* For sentences about what weft__parse_int refused: " of at most 2147483647" or " of at least ..."
 * if it is a whole number, and only too large; else "". */
const char *weft__int_limit(const char *text);

/* "0.1", "-2", "3e-4", whatever the locale; no infinities, no hexadecimal. */
bool weft__parse_real(const char *text, double *out_p);
bool weft__parse_bool(const char *text, bool *out_p);

/* The other way round: text that parses back to the same value. Sizes in the largest unit that is
 * exact. `out` has 32 bytes. */
void weft__print_size(char *out, size_t room, size_t value);
void weft__print_real(char *out, size_t room, double value);

/* The entry of `names` (count entries) nearest to `name` by edit distance, or NULL if none is near
 * enough to be a likely slip. */
const char *weft__nearest(const char *name, const char *const *names, int count);

#endif
