/* What the kernel and others write about a machine, taken apart. Functions of text alone: anything
 * may stand there. */
#ifndef WEFT_DOCTOR_PARSE_H
#define WEFT_DOCTOR_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_UNLIMITED INT64_MAX

/* "Max open files   1024   4096   files" of /proc/PID/limits. "unlimited" is WEFT_UNLIMITED. */
bool weft__parse_limit(const char *text, const char *name, int64_t *soft_p, int64_t *hard_p);

/* "Cpus_allowed_list:	0-3" of /proc/PID/status, or "MemTotal: 16 kB" of meminfo: where the value
 * of `key` begins; NULL: there is no such line. */
const char *weft__parse_key(const char *text, const char *key);
bool weft__parse_key_number(const char *text, const char *key, int64_t *value_p);

/* cpu.max of control groups, version 2: "max 100000" or "200000 100000"; CPUs, 0: no limit. */
double weft__parse_cpu_max(const char *text);

/* The chosen one of "always [madvise] never". */
bool weft__parse_choice(const char *text, char *word, size_t room);

/* The interface of the default route with the least metric in /proc/net/route. */
bool weft__parse_route(const char *text, char *name, size_t room);

/* The first address that /etc/hosts has for `host`, in any case of letters. */
bool weft__parse_hosts(const char *text, const char *host, char *address, size_t room);

/* PCIe generation of "16.0 GT/s PCIe": 4; 0: unknown. */
int weft__parse_link_speed(const char *text);

/* "400 Gb/sec (4X NDR)" of InfiniBand: 400; 0: unknown. */
double weft__parse_rate(const char *text);

/* The next "NVRM: Xid (PCI:0000:1b:00): 79, ..." of a kernel log from *at_p on, which moves behind
 * it. false: there is no further. */
typedef struct weft_xid {
    char bus[32];
    int number;
    const char *line; /* where its line begins, and its length */
    size_t length;
} weft_xid_t;
bool weft__parse_xid(const char **at_p, const char *end, weft_xid_t *xid_p);

/* Whether a PCI bridge sends peers' requests up to the root (Access Control Services): bits of its
 * ACS control register that do so, of its configuration space. -1: it has no ACS, or only the first
 * 64 bytes are there, as for users that are not root. */
int weft__parse_acs(const uint8_t *config, size_t size);

#endif
