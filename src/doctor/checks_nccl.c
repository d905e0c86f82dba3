/* Environment variables of Weft, NCCL, NVSHMEM and CUDA that are wrong, or that hurt. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/settings.h"
#include "device/sysmem.h"
#include "doctor/checks.h"
#include "doctor/look.h"

/* ---- names ----------------------------------------------------------------------------------- */

static weft_doctor_t *hearing; /* who is told while settings are parsed; one thread */

static void hear(const char *text)
{
    weft__doctor_add(hearing, WEFT_FINDING_WARNING, "a variable of Weft's has no effect",
                     weft__doctor_text(hearing, "%s", text),
                     "what it was meant to change stays as it is by default",
                     "correct or unset it; weft info lists all settings");
}

const char *weft__check_weft_names(weft_doctor_t *doctor)
{
    weft_settings_t settings;
    hearing = doctor;
    weft__settings_parse(doctor->asked.environment, &settings, hear);
    hearing = NULL;
    return NULL;
}

/* What NCCL reads, and PyTorch under the same prefix. */
static const char *const nccl_names[] = {
    "ALGO",
    "ALLOC_P2P_NET_LL_BUFFERS",
    "ASYNC_ERROR_HANDLING",
    "BLOCKING_WAIT",
    "BUFFSIZE",
    "CGA_CLUSTER_SIZE",
    "CHECKS_DISABLE",
    "CHECK_POINTERS",
    "COLLNET_ENABLE",
    "COLLNET_NODE_THRESHOLD",
    "COMM_BLOCKING",
    "COMM_ID",
    "CONF_FILE",
    "CROSS_NIC",
    "CTA_POLICY",
    "CUMEM_ENABLE",
    "CUMEM_HOST_ENABLE",
    "DEBUG",
    "DEBUG_FILE",
    "DEBUG_SUBSYS",
    "DEBUG_TIMESTAMP_FORMAT",
    "DEBUG_TIMESTAMP_LEVELS",
    "DESYNC_DEBUG",
    "DMABUF_ENABLE",
    "ENV_PLUGIN",
    "GDRCOPY_ENABLE",
    "GDRCOPY_FLUSH_ENABLE",
    "GDRCOPY_SYNC_ENABLE",
    "GRAPH_DUMP_FILE",
    "GRAPH_FILE",
    "GRAPH_HELPER_DISABLE",
    "GRAPH_MIXING_SUPPORT",
    "GRAPH_REGISTER",
    "HOME",
    "HOSTID",
    "IB_ADAPTIVE_ROUTING",
    "IB_ADDR_FAMILY",
    "IB_ADDR_RANGE",
    "IB_AR_THRESHOLD",
    "IB_CUDA_SUPPORT",
    "IB_DISABLE",
    "IB_ECE_ENABLE",
    "IB_FIFO_TC",
    "IB_GID_INDEX",
    "IB_HCA",
    "IB_MERGE_NICS",
    "IB_MERGE_VFS",
    "IB_PCI_RELAXED_ORDERING",
    "IB_PKEY",
    "IB_QPS_PER_CONNECTION",
    "IB_RETRY_CNT",
    "IB_RETURN_ASYNC_EVENTS",
    "IB_ROCE_VERSION_NUM",
    "IB_SL",
    "IB_SPLIT_DATA_ON_QPS",
    "IB_TC",
    "IB_TIMEOUT",
    "IB_USE_INLINE",
    "IGNORE_CPU_AFFINITY",
    "INCLUDE_DIR",
    "LAUNCH_MODE",
    "LAUNCH_ORDER_IMPLICIT",
    "LAUNCH_RACE_FATAL",
    "LEGACY_CUDA_REGISTER",
    "LIB_DIR",
    "LIBRARY",
    "LL128_BUFFSIZE",
    "LL_BUFFSIZE",
    "LL_THRESHOLD",
    "LOCAL_REGISTER",
    "MAX_CTAS",
    "MAX_NCHANNELS",
    "MAX_NRINGS",
    "MAX_P2P_NCHANNELS",
    "MEM_SYNC_DOMAIN",
    "MIN_CTAS",
    "MIN_NCHANNELS",
    "MIN_NRINGS",
    "MIN_P2P_NCHANNELS",
    "MNNVL_CLIQUE_ID",
    "MNNVL_ENABLE",
    "MNNVL_UUID",
    "NCHANNELS_PER_NET_PEER",
    "NET",
    "NETDEVS_POLICY",
    "NET_FORCE_MERGE",
    "NET_GDR_C2C",
    "NET_GDR_LEVEL",
    "NET_GDR_READ",
    "NET_OVERHEAD",
    "NET_PLUGIN",
    "NET_SHARED_BUFFERS",
    "NET_SHARED_COMMS",
    "NSOCKS_PERTHREAD",
    "NTHREADS",
    "NVB_DISABLE",
    "NVLS_CHUNKSIZE",
    "NVLS_ENABLE",
    "NVLS_NCHANNELS",
    "OOB_NET_ENABLE",
    "OOB_NET_IFNAME",
    "P2P_DIRECT_DISABLE",
    "P2P_DISABLE",
    "P2P_LEVEL",
    "P2P_LL_THRESHOLD",
    "P2P_NET_CHUNKSIZE",
    "P2P_PXN_LEVEL",
    "P2P_USE_CUDA_MEMCPY",
    "PROFILER_PLUGIN",
    "PROGRESS_APPENDOP_FREQ",
    "PROTO",
    "PXN_DISABLE",
    "RAS_ADDR",
    "RAS_ENABLE",
    "RAS_TIMEOUT_FACTOR",
    "ROOT",
    "RUNTIME_CONNECT",
    "SET_STACK_SIZE",
    "SET_THREAD_NAME",
    "SHM_DISABLE",
    "SHM_USE_CUDA_MEMCPY",
    "SINGLE_RING_THRESHOLD",
    "SOCKET_FAMILY",
    "SOCKET_IFNAME",
    "SOCKET_NTHREADS",
    "SOCKET_POLL_TIMEOUT_MSEC",
    "SOCKET_RETRY_CNT",
    "SOCKET_RETRY_SLEEP_MSEC",
    "THREAD_THRESHOLDS",
    "TOPO_DUMP_FILE",
    "TOPO_FILE",
    "TREE_THRESHOLD",
    "TUNER_CONFIG_FILE",
    "TUNER_PLUGIN",
    "UID_STAGGER_RATE",
    "UID_STAGGER_THRESHOLD",
    "VERSION",
    "WIN_ENABLE",
    "WIN_STRIDE",
    "WORK_ARGS_BYTES",
    "WORK_FIFO_BYTES",
};

#define NCCL_NAMES ((int)(sizeof(nccl_names) / sizeof(nccl_names[0])))

static bool is_nccl_name(const char *name)
{
    for (int i = 0; i < NCCL_NAMES; i++) {
        if (strcmp(name, nccl_names[i]) == 0) {
            return true;
        }
    }
    return false;
}

const char *weft__check_nccl_names(weft_doctor_t *doctor)
{
    for (char *const *entry = doctor->asked.environment; entry && *entry != NULL; entry++) {
        char name[128];
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "NCCL_", 5) != 0 || length - 5 >= sizeof(name)) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)length - 5, *entry + 5);
        /* one that resembles none may be newer than this list */
        const char *nearest = is_nccl_name(name) ? NULL
                                                 : weft__nearest(name, nccl_names, NCCL_NAMES);
        if (nearest != NULL) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING, "a variable looks like one of NCCL's, misspelled",
                weft__doctor_text(doctor, "%s; did you mean NCCL_%s?", *entry, nearest),
                "NCCL ignores names that it does not know, without a word",
                weft__doctor_text(doctor, "unset NCCL_%s, or export NCCL_%s", name, nearest));
        }
    }
    return NULL;
}

/* ---- values that hurt ------------------------------------------------------------------------ */

typedef enum test {
    IS_ON,  /* 1, yes, true, on */
    IS_SET, /* to anything but the words */
    IS_ONE, /* of the words */
    IS_LESS /* than the number in the words */
} test_t;

typedef enum need { ALWAYS, GPUS, RDMA } need_t;

typedef struct variable {
    const char *name;
    test_t test;
    const char *words; /* separated by blanks */
    need_t need;
    weft_finding_level_t level;
    const char *cost;
} variable_t;

#define NOTE WEFT_FINDING_NOTE
#define WARNING WEFT_FINDING_WARNING

static const variable_t variables[] = {
    {"NCCL_P2P_DISABLE", IS_ON, "", ALWAYS, WARNING,
     "NCCL moves data between GPUs of a host through host memory, not over NVLink or PCIe: a "
     "tenth of the bandwidth"},
    {"NCCL_P2P_LEVEL", IS_ONE, "LOC 0", ALWAYS, WARNING,
     "NCCL moves data between GPUs of a host through host memory: a tenth of the bandwidth"},
    {"NCCL_SHM_DISABLE", IS_ON, "", ALWAYS, WARNING,
     "ranks of one host that have no peer access talk through the network card or sockets"},
    {"NCCL_IB_DISABLE", IS_ON, "", RDMA, WARNING,
     "NCCL uses TCP between hosts although there are RDMA devices: a tenth of the bandwidth"},
    {"NCCL_NET", IS_ONE, "Socket", RDMA, WARNING,
     "NCCL uses TCP between hosts although there are RDMA devices: a tenth of the bandwidth"},
    {"NCCL_NET_GDR_LEVEL", IS_ONE, "LOC 0", RDMA, WARNING,
     "data to other hosts is copied through host memory"},
    {"NCCL_ALGO", IS_SET, "", ALWAYS, WARNING,
     "one algorithm for all sizes: several times as slow where another one fits"},
    {"NCCL_PROTO", IS_SET, "", ALWAYS, WARNING,
     "one protocol for all sizes: LL reaches half the bandwidth, Simple has several times the "
     "latency"},
    {"NCCL_MAX_NCHANNELS", IS_LESS, "4", ALWAYS, WARNING,
     "too few blocks to fill NVLink or several network cards"},
    {"NCCL_MAX_CTAS", IS_LESS, "4", ALWAYS, WARNING,
     "too few blocks to fill NVLink or several network cards"},
    {"NCCL_NTHREADS", IS_LESS, "256", ALWAYS, WARNING, "blocks are too small to fill a link"},
    {"NCCL_BUFFSIZE", IS_LESS, "1048576", ALWAYS, WARNING,
     "pieces are too small to hide the latency of the network"},
    {"NCCL_NVLS_ENABLE", IS_ONE, "0", GPUS, NOTE,
     "sums are not made in the NVLink switch, where there is one that can"},
    {"NCCL_DEBUG", IS_ONE, "TRACE", ALWAYS, WARNING, "every call writes lines"},
    {"NCCL_DEBUG", IS_ONE, "INFO", ALWAYS, NOTE,
     "hundreds of lines from every rank at each start; WARN is for daily use"},
    {"NCCL_IGNORE_CPU_AFFINITY", IS_ON, "", ALWAYS, NOTE,
     "NCCL's threads leave the cores that ranks are bound to"},
    {"NVSHMEM_DISABLE_P2P", IS_ON, "", ALWAYS, WARNING,
     "puts between GPUs of a host take the network"},
    {"NVSHMEM_REMOTE_TRANSPORT", IS_ONE, "none", RDMA, WARNING,
     "PEs of other hosts cannot be reached although there are RDMA devices"},
    {"NVSHMEM_DEBUG", IS_ONE, "INFO TRACE", ALWAYS, NOTE, "every PE writes much at each start"},
    {"UCX_TLS", IS_ONE, "tcp", RDMA, WARNING, "UCX uses TCP alone although there are RDMA devices"},
    {"CUDA_LAUNCH_BLOCKING", IS_ON, "", ALWAYS, WARNING,
     "the host waits for every kernel: no overlap of communication and computation, and kernels of "
     "two streams that wait for each other hang"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", IS_ONE, "1", GPUS, NOTE,
     "kernels of all streams stand in one queue; Megatron-LM wants that, Weft does not"},
    {"NVIDIA_TF32_OVERRIDE", IS_ONE, "0", GPUS, NOTE, "fp32 products do not use tensor cores"},
    {"WEFT_LOG", IS_ONE, "debug trace", ALWAYS, WARNING, "every call writes lines"},
    {"WEFT_ALGO", IS_SET, "auto", ALWAYS, WARNING,
     "one algorithm for all sizes: the tuner does not choose"},
    {"WEFT_TIMEOUT", IS_ONE, "0", ALWAYS, NOTE,
     "a job whose rank hangs waits for ever, and keeps its machines"},
    {"WEFT_POOL", IS_ONE, "0 no off false", GPUS, WARNING,
     "every allocation is one of CUDA's own, which waits for all kernels"},
    {"WEFT_CHECK_MEMORY", IS_ON, "", GPUS, NOTE, "every call on GPUs looks its buffers up"},
    {"WEFT_TAKE_TURNS", IS_ON, "", GPUS, WARNING,
     "ranks that share a GPU take turns of milliseconds; it is for debuggers"},
    {"WEFT_GPUS_APART", IS_ONE, "1 2", GPUS, WARNING,
     "ranks that share a GPU do as if they had one each; it is for tests"},
    {"WEFT_OVERLAP", IS_ONE, "0 no off false", GPUS, WARNING,
     "small calls on GPUs wait for each other's end"},
    {"WEFT_SIMD", IS_ONE, "none", ALWAYS, WARNING,
     "arithmetic on CPUs uses no vectors: ten times as slow"},
    {"WEFT_ATTENTION", IS_ONE, "plain", GPUS, WARNING, "attention does not use tensor cores"},
    {"WEFT_MATMUL_TUNE", IS_ONE, "0", GPUS, NOTE,
     "large products take cuBLASLt's first algorithm, not the fastest"},
};

static bool is_word(const char *value, const char *words)
{
    size_t length = strlen(value);
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        if (word == length && strncasecmp(at, value, length) == 0) {
            return true;
        }
        at += word;
    }
    return false;
}

static bool hurts(const variable_t *variable, const char *value)
{
    bool on;
    switch (variable->test) {
    case IS_ON:
        return weft__parse_bool(value, &on) ? on : strtol(value, NULL, 10) != 0;
    case IS_SET:
        return !is_word(value, variable->words);
    case IS_ONE:
        return is_word(value, variable->words);
    case IS_LESS:
        return isdigit((unsigned char)*value) &&
               strtoll(value, NULL, 10) < strtoll(variable->words, NULL, 10);
    }
    return false;
}

const char *weft__check_variables(weft_doctor_t *doctor)
{
    int ports;
    weft__look_ports(doctor, &ports);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const variable_t *variable = &variables[i];
        const char *value = weft__doctor_env(doctor, variable->name);
        bool applies = variable->need == ALWAYS ||
                       (variable->need == GPUS && doctor->asked.gpus->count > 0) ||
                       (variable->need == RDMA && ports > 0);
        if (value != NULL && applies && hurts(variable, value)) {
            weft__doctor_add(doctor, variable->level,
                             weft__doctor_text(doctor, "%s is set to %s", variable->name, value),
                             weft__doctor_text(doctor, "%s=%s", variable->name, value),
                             variable->cost, weft__doctor_text(doctor, "unset %s", variable->name));
        }
    }
    return NULL;
}

/* ---- values that name things ----------------------------------------------------------------- */

/* Does the item `at` (length bytes) of a list name one of `names`? A prefix is enough unless
 * `exact`; what follows a colon is a port. */
static bool names_one(const char *at, size_t length, bool exact, const char *const *names)
{
    const char *colon = memchr(at, ':', length);
    length = colon != NULL ? (size_t)(colon - at) : length;
    for (; *names != NULL; names++) {
        if (strncmp(*names, at, length) == 0 && (!exact || (*names)[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* The first item of NCCL's kind of list ("eth,ib", "=eth0", "^docker") that names none of `names`,
 * for which there is nothing else in the list; NULL: one is there, or they are excluded. */
static const char *find_missing(const char *list, const char *const *names)
{
    if (*list == '^') {
        return NULL;
    }
    bool exact = *list == '=';
    list += exact;
    for (const char *at = list; *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (length > 0 && names_one(at, length, exact, names)) {
            return NULL;
        }
        at += length + (at[length] == ',');
    }
    return list;
}

static bool leads_nowhere(const char *list)
{
    static const char *const local[] = {"lo", "docker", "virbr", "veth"};
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
        const char *at = list + strspn(list, "=");
        if (strncmp(at, local[i], strlen(local[i])) == 0 && strchr(at, ',') == NULL) {
            return true;
        }
    }
    return false;
}

const char *weft__check_interfaces(weft_doctor_t *doctor)
{
    static const char *const variables_[] = {"NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME",
                                             "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME",
                                             "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME"};
    const char *const *names = weft__look_folder(doctor, "/sys/class/net");
    char route[32] = "";
    weft__look_default_route(doctor, route);
    for (size_t i = 0; i < sizeof(variables_) / sizeof(variables_[0]); i++) {
        const char *value = weft__doctor_env(doctor, variables_[i]);
        if (value == NULL) {
            continue;
        }
        const char *fix = route[0] != '\0' ? weft__doctor_text(doctor, "export %s=%s, or unset it",
                                                               variables_[i], route)
                                           : weft__doctor_text(doctor, "unset %s", variables_[i]);
        if (find_missing(value, names) != NULL) {
            weft__doctor_add(
                doctor, WEFT_FINDING_ERROR,
                weft__doctor_text(doctor, "%s names an interface that is not here", variables_[i]),
                weft__doctor_text(doctor, "%s=%s; /sys/class/net has no such name", variables_[i],
                                  value),
                "ranks cannot meet: \"no socket interface found\"", fix);
        } else if (leads_nowhere(value)) {
            weft__doctor_add(doctor, WEFT_FINDING_WARNING,
                             weft__doctor_text(doctor, "%s names an interface of this host alone",
                                               variables_[i]),
                             weft__doctor_text(doctor, "%s=%s", variables_[i], value),
                             "ranks of other hosts cannot be reached", fix);
        }
    }
    return NULL;
}

const char *weft__check_hcas(weft_doctor_t *doctor)
{
    static const char *const variables_[] = {"NCCL_IB_HCA", "NVSHMEM_HCA_LIST"};
    const char *const *names = weft__look_folder(doctor, "/sys/class/infiniband");
    for (size_t i = 0; i < sizeof(variables_) / sizeof(variables_[0]); i++) {
        const char *value = weft__doctor_env(doctor, variables_[i]);
        if (value != NULL && find_missing(value, names) != NULL) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                weft__doctor_text(doctor, "%s names no RDMA device of this host", variables_[i]),
                weft__doctor_text(doctor, "%s=%s; /sys/class/infiniband has no such name",
                                  variables_[i], value),
                "TCP is used between hosts: a tenth of the bandwidth",
                weft__doctor_text(doctor, "unset %s; ibv_devices lists what there is",
                                  variables_[i]));
        }
    }
    return NULL;
}

const char *weft__check_env_files(weft_doctor_t *doctor)
{
    static const char *const variables_[] = {"NCCL_TOPO_FILE", "NCCL_GRAPH_FILE",  "NCCL_CONF_FILE",
                                             "WEFT_TUNE_FILE", "WEFT_CUDA_MODULE", "WEFT_NCCL",
                                             "WEFT_NVML"};
    for (size_t i = 0; i < sizeof(variables_) / sizeof(variables_[0]); i++) {
        const char *value = weft__doctor_env(doctor, variables_[i]);
        /* a name without a slash is for the dynamic linker to find */
        if (value != NULL && value[0] == '/' && !weft__look_exists(doctor, "%s", value)) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                weft__doctor_text(doctor, "%s names a file that is not there", variables_[i]),
                weft__doctor_text(doctor, "%s=%s", variables_[i], value),
                "it is ignored, or what needs it fails",
                weft__doctor_text(doctor, "unset %s, or correct it", variables_[i]));
        }
    }
    return NULL;
}

#define SYMMETRIC_LEAST ((size_t)16 << 20)

const char *weft__check_symmetric(weft_doctor_t *doctor)
{
    static const char *const variables_[] = {"NVSHMEM_SYMMETRIC_SIZE", "SHMEM_SYMMETRIC_SIZE",
                                             "WEFT_SYMM_SIZE"};
    const weft_gpus_t *gpus = doctor->asked.gpus;
    weft_sysmem_t sysmem;
    weft__sysmem_find(doctor->asked.root, &sysmem);
    uint64_t memory = gpus->count > 0 && gpus->gpus[0].memory > 0
                          ? (uint64_t)gpus->gpus[0].memory
                          : weft__sysmem_total(&sysmem) / (uint64_t)doctor->ranks;
    char a[WEFT_BYTES_TEXT];
    for (size_t i = 0; i < sizeof(variables_) / sizeof(variables_[0]); i++) {
        const char *value = weft__doctor_env(doctor, variables_[i]);
        size_t bytes;
        if (value == NULL || !weft__parse_size(value, &bytes)) {
            continue;
        }
        const char *size = memory > ((uint64_t)16 << 30) ? "1G" : "64M";
        if (bytes < SYMMETRIC_LEAST) {
            weft__doctor_add(doctor, WEFT_FINDING_WARNING,
                             weft__doctor_text(doctor, "%s is small", variables_[i]),
                             weft__doctor_text(doctor, "%s=%s", variables_[i], value),
                             "shmem_malloc returns NULL as soon as a buffer of a real model is "
                             "asked for",
                             weft__doctor_text(doctor, "export %s=%s", variables_[i], size));
            weft__doctor_export(doctor, variables_[i], size,
                                weft__doctor_text(doctor,
                                                  "a rank has %s of memory, and %s is too little "
                                                  "for buffers of models",
                                                  weft__bytes_text(memory, a), value));
        } else if (bytes > memory) {
            weft__doctor_add(
                doctor, WEFT_FINDING_ERROR,
                weft__doctor_text(doctor, "%s is larger than the memory of a rank", variables_[i]),
                weft__doctor_text(doctor, "%s=%s; a rank has %s", variables_[i], value,
                                  weft__bytes_text(memory, a)),
                "jobs fail when they start, or when the heap fills",
                weft__doctor_text(doctor, "export %s=%s", variables_[i], size));
        }
    }
    return NULL;
}
