#include "doctor/look.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "doctor/checks.h"
#include "doctor/parse.h"
#include "topo/cpu_list.h"

#define TEXT_MOST ((size_t)1 << 20)
#define WORD_BITS ((int)(8 * sizeof(unsigned long)))

/* ---- files ----------------------------------------------------------------------------------- */

static void make_path(const weft_doctor_t *doctor, char path[WEFT_PATH_BYTES], const char *format,
                      va_list args)
{
    int length = snprintf(path, WEFT_PATH_BYTES, "%s", doctor->asked.root);
    if (length >= 0 && length < WEFT_PATH_BYTES) {
        vsnprintf(path + length, WEFT_PATH_BYTES - (size_t)length, format, args);
    }
}

#define MAKE_PATH(path)                                                                            \
    char path[WEFT_PATH_BYTES];                                                                    \
    do {                                                                                           \
        va_list args_;                                                                             \
        va_start(args_, format);                                                                   \
        make_path(doctor, path, format, args_);                                                    \
        va_end(args_);                                                                             \
    } while (0)

static bool read_line(const char *path, char line[WEFT_LOOK_LINE])
{
    FILE *file = fopen(path, "re");
    bool found = file != NULL && fgets(line, WEFT_LOOK_LINE, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    if (!found) {
        line[0] = '\0';
    }
    line[strcspn(line, "\n")] = '\0';
    return found;
}

bool weft__look_line(const weft_doctor_t *doctor, char line[WEFT_LOOK_LINE], const char *format,
                     ...)
{
    MAKE_PATH(path);
    return read_line(path, line);
}

bool weft__look_number(const weft_doctor_t *doctor, int64_t *value_p, const char *format, ...)
{
    char line[WEFT_LOOK_LINE], *end;
    MAKE_PATH(path);
    if (!read_line(path, line)) {
        return false;
    }
    long long value = strtoll(line, &end, 10);
    if (end == line) {
        return false;
    }
    *value_p = value;
    return true;
}

const char *weft__look_text(weft_doctor_t *doctor, size_t *size_p, const char *format, ...)
{
    MAKE_PATH(path);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return NULL;
    }
    /* files of /proc do not tell their size: of a longer one the last bytes are kept */
    size_t room = (size_t)1 << 14, size = 0, got;
    struct stat about;
    if (fstat(fileno(file), &about) == 0 && S_ISREG(about.st_mode) &&
        about.st_size > (off_t)TEXT_MOST) {
        fseek(file, -(long)TEXT_MOST, SEEK_END); /* a log may have gigabytes */
    }
    char *text = malloc(room + 1);
    while (text != NULL && (got = fread(text + size, 1, room - size, file)) > 0) {
        size += got;
        if (size == room && room < 2 * TEXT_MOST) {
            char *more = realloc(text, 2 * room + 1);
            room = more != NULL ? 2 * room : size;
            text = more != NULL ? more : text;
        }
        if (size == room) {
            memmove(text, text + size - size / 2, size / 2);
            size /= 2;
        }
    }
    fclose(file);
    if (text != NULL) {
        text[size] = '\0';
    }
    if (size_p != NULL) {
        *size_p = size;
    }
    return weft__doctor_keep(doctor, text);
}

bool weft__look_exists(const weft_doctor_t *doctor, const char *format, ...)
{
    MAKE_PATH(path);
    return access(path, F_OK) == 0;
}

bool weft__look_link(const weft_doctor_t *doctor, char name[WEFT_LOOK_LINE], const char *format,
                     ...)
{
    char target[WEFT_PATH_BYTES];
    MAKE_PATH(path);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    name[0] = '\0';
    if (length <= 0) {
        return false;
    }
    target[length] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(name, WEFT_LOOK_LINE, "%.*s", WEFT_LOOK_LINE - 1, slash != NULL ? slash + 1 : target);
    return true;
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

const char *const *weft__look_folder(weft_doctor_t *doctor, const char *format, ...)
{
    static const char *const none[] = {NULL};
    struct dirent **entries;
    MAKE_PATH(path);
    int count = scandir(path, &entries, is_shown, alphasort);
    if (count < 0) {
        return none;
    }
    const char **names = calloc((size_t)count + 1, sizeof(*names));
    for (int i = 0; i < count; i++) {
        if (names != NULL) {
            names[i] = weft__doctor_text(doctor, "%s", entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    const void *kept = weft__doctor_keep(doctor, names);
    return kept != NULL ? kept : none;
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

static bool has(const unsigned long *mask, int cpu)
{
    return (mask[cpu / WORD_BITS] >> cpu % WORD_BITS & 1) != 0;
}

static int count_of(const unsigned long *mask)
{
    int count = 0;
    for (int i = 0; i < WEFT_DOCTOR_WORDS; i++) {
        count += __builtin_popcountl(mask[i]);
    }
    return count;
}

/* Cores that have a CPU of `mask`: each is counted at the first of them. */
static int count_cores(const weft_doctor_t *doctor, const unsigned long *mask)
{
    int cores = 0;
    for (int cpu = 0; cpu < WEFT_DOCTOR_CPUS; cpu++) {
        char line[WEFT_LOOK_LINE];
        unsigned long siblings[WEFT_DOCTOR_WORDS];
        bool first = true;
        if (!has(mask, cpu)) {
            continue;
        }
        if (weft__look_line(doctor, line,
                            "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu) &&
            weft__cpu_list_read(line, siblings, WEFT_DOCTOR_WORDS)) {
            for (int other = 0; other < cpu && first; other++) {
                first = !has(siblings, other) || !has(mask, other);
            }
        }
        cores += first;
    }
    return cores;
}

/* A rank that its launcher has bound to cores says little about the job, whose ranks have others:
 * the job has what the launcher may use. */
static void widen_to_launcher(weft_doctor_t *doctor)
{
    weft_doctor_cpus_t *cpus = &doctor->cpus;
    unsigned long mask[WEFT_DOCTOR_WORDS];
    const char *status = doctor->asked.launcher > 0
                             ? weft__look_text(doctor, NULL, "/proc/%d/status",
                                               doctor->asked.launcher)
                             : NULL;
    const char *list = status != NULL ? weft__parse_key(status, "Cpus_allowed_list") : NULL;
    if (list == NULL || !weft__cpu_list_read(list, mask, WEFT_DOCTOR_WORDS)) {
        return;
    }
    for (int i = 0; i < WEFT_DOCTOR_WORDS; i++) {
        cpus->launchers |= (mask[i] & cpus->online[i] & ~cpus->allowed[i]) != 0;
        cpus->allowed[i] |= mask[i] & cpus->online[i];
    }
}

void weft__look_cpus(weft_doctor_t *doctor)
{
    weft_doctor_cpus_t *cpus = &doctor->cpus;
    char line[WEFT_LOOK_LINE];
    *cpus = (weft_doctor_cpus_t){0};
    if (weft__look_line(doctor, line, "/sys/devices/system/cpu/online")) {
        weft__cpu_list_read(line, cpus->online, WEFT_DOCTOR_WORDS);
    }
    memcpy(cpus->allowed, cpus->online, sizeof(cpus->allowed));
    const char *status = weft__look_text(doctor, NULL, "/proc/self/status");
    const char *list = status != NULL ? weft__parse_key(status, "Cpus_allowed_list") : NULL;
    if (list != NULL && weft__cpu_list_read(list, cpus->allowed, WEFT_DOCTOR_WORDS)) {
        for (int i = 0; i < WEFT_DOCTOR_WORDS && count_of(cpus->online) > 0; i++) {
            cpus->allowed[i] &= cpus->online[i]; /* it may name CPUs that are not there */
        }
    }
    widen_to_launcher(doctor);
    cpus->online_count = count_of(cpus->online);
    cpus->allowed_count = count_of(cpus->allowed);
    cpus->online_cores = count_cores(doctor, cpus->online);
    cpus->allowed_cores = cpus->allowed_count == cpus->online_count
                              ? cpus->online_cores
                              : count_cores(doctor, cpus->allowed);
    const char *const *nodes = weft__look_folder(doctor, "/sys/devices/system/node");
    for (; *nodes != NULL; nodes++) {
        unsigned long mask[WEFT_DOCTOR_WORDS];
        if (strncmp(*nodes, "node", 4) == 0 &&
            weft__look_line(doctor, line, "/sys/devices/system/node/%s/cpulist", *nodes) &&
            weft__cpu_list_read(line, mask, WEFT_DOCTOR_WORDS)) {
            cpus->nodes++;
        }
    }
}

bool weft__look_virtual(weft_doctor_t *doctor)
{
    const char *text = weft__look_text(doctor, NULL, "/proc/cpuinfo");
    const char *flags = text != NULL ? strstr(text, "\nflags") : NULL;
    const char *found = flags != NULL ? strstr(flags, " hypervisor") : NULL;
    return found != NULL && found < flags + 1 + strcspn(flags + 1, "\n");
}

/* ---- network --------------------------------------------------------------------------------- */

static void add_port(weft_doctor_t *doctor, const char *device, const char *port,
                     weft_look_port_t *out)
{
    char line[WEFT_LOOK_LINE];
    int64_t numa = -1;
    *out = (weft_look_port_t){.device = device, .number = (int)strtol(port, NULL, 10)};
    if (weft__look_line(doctor, line, "/sys/class/infiniband/%s/ports/%s/state", device, port)) {
        out->active = strstr(line, "ACTIVE") != NULL;
    }
    if (weft__look_line(doctor, line, "/sys/class/infiniband/%s/ports/%s/link_layer", device,
                        port)) {
        out->ethernet = strcmp(line, "Ethernet") == 0;
    }
    if (weft__look_line(doctor, line, "/sys/class/infiniband/%s/ports/%s/rate", device, port)) {
        out->gbit = weft__parse_rate(line);
    }
    weft__look_number(doctor, &numa, "/sys/class/infiniband/%s/device/numa_node", device);
    out->numa = (int)numa;
}

#define PORTS_MOST 256

const weft_look_port_t *weft__look_ports(weft_doctor_t *doctor, int *count_p)
{
    weft_look_port_t *ports = calloc(PORTS_MOST, sizeof(*ports));
    *count_p = 0;
    if (weft__doctor_keep(doctor, ports) == NULL) {
        return NULL;
    }
    const char *const *devices = weft__look_folder(doctor, "/sys/class/infiniband");
    for (; *devices != NULL; devices++) {
        const char *const *numbers = weft__look_folder(doctor, "/sys/class/infiniband/%s/ports",
                                                       *devices);
        for (; *numbers != NULL && *count_p < PORTS_MOST; numbers++) {
            add_port(doctor, *devices, *numbers, &ports[(*count_p)++]);
        }
    }
    return ports;
}

bool weft__look_default_route(weft_doctor_t *doctor, char name[32])
{
    const char *text = weft__look_text(doctor, NULL, "/proc/net/route");
    return text != NULL && weft__parse_route(text, name, 32);
}
