#define _GNU_SOURCE 1 /* memmem */
#include "doctor/parse.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- /proc ----------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t') {
        at++;
    }
    return at;
}

static const char *next_line(const char *at)
{
    const char *end = strchr(at, '\n');
    return end != NULL ? end + 1 : at + strlen(at);
}

/* A number or "unlimited"; moves *at_p behind it. */
static bool read_limit(const char **at_p, int64_t *value_p)
{
    const char *at = skip_blanks(*at_p);
    char *end;
    if (strncmp(at, "unlimited", 9) == 0) {
        *value_p = WEFT_UNLIMITED;
        *at_p = at + 9;
        return true;
    }
    long long value = strtoll(at, &end, 10);
    if (end == at || !isdigit((unsigned char)*at)) {
        return false;
    }
    *value_p = value;
    *at_p = end;
    return true;
}

bool weft__parse_limit(const char *text, const char *name, int64_t *soft_p, int64_t *hard_p)
{
    size_t length = strlen(name);
    for (const char *at = text; *at != '\0'; at = next_line(at)) {
        if (strncmp(at, name, length) == 0 && (at[length] == ' ' || at[length] == '\t')) {
            const char *rest = at + length;
            int64_t soft, hard;
            if (read_limit(&rest, &soft) && read_limit(&rest, &hard)) {
                *soft_p = soft;
                *hard_p = hard;
                return true;
            }
        }
    }
    return false;
}

const char *weft__parse_key(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = text; *at != '\0'; at = next_line(at)) {
        if (strncmp(at, key, length) == 0 && at[length] == ':') {
            return skip_blanks(at + length + 1);
        }
    }
    return NULL;
}

bool weft__parse_key_number(const char *text, const char *key, int64_t *value_p)
{
    const char *at = weft__parse_key(text, key);
    if (at == NULL || !isdigit((unsigned char)*at)) {
        return false;
    }
    *value_p = strtoll(at, NULL, 10);
    return true;
}

double weft__parse_cpu_max(const char *text)
{
    char *end;
    double quota = strtod(text, &end);
    if (end == text || !isdigit((unsigned char)*text)) { /* "max" */
        return 0;
    }
    double period = *end == ' ' && isdigit((unsigned char)end[1]) ? strtod(end + 1, NULL) : 100000;
    return quota > 0 && period > 0 ? quota / period : 0;
}

bool weft__parse_choice(const char *text, char *word, size_t room)
{
    const char *open = strchr(text, '[');
    const char *close = open != NULL ? strchr(open, ']') : NULL;
    if (close == NULL || (size_t)(close - open) > room) {
        return false;
    }
    snprintf(word, room, "%.*s", (int)(close - open - 1), open + 1);
    return true;
}

/* ---- network --------------------------------------------------------------------------------- */

bool weft__parse_route(const char *text, char *name, size_t room)
{
    bool found = false;
    unsigned best = 0;
    for (const char *at = text; *at != '\0'; at = next_line(at)) {
        char interface[32];
        unsigned long destination, mask;
        unsigned flags, metric;
        if (sscanf(at, "%31s %lx %*x %x %*u %*u %u %lx", interface, &destination, &flags, &metric,
                   &mask) != 5 ||
            destination != 0 || mask != 0 || (flags & 1) == 0) { /* 1: it is up */
            continue;
        }
        if (!found || metric < best) {
            snprintf(name, room, "%s", interface);
            best = metric;
            found = true;
        }
    }
    return found;
}

/* Is `host` one of the names from `at` up to the end of the line or a comment? */
static bool names_host(const char *at, const char *host)
{
    size_t length = strlen(host);
    while (*at != '\0' && *at != '\n' && *at != '#') {
        size_t word = strcspn(at, " \t\n#");
        if (word == length && length > 0 && strncasecmp(at, host, length) == 0) {
            return true;
        }
        at = skip_blanks(at + word);
    }
    return false;
}

bool weft__parse_hosts(const char *text, const char *host, char *address, size_t room)
{
    for (const char *at = text; *at != '\0'; at = next_line(at)) {
        const char *start = skip_blanks(at);
        size_t length = strcspn(start, " \t\n#");
        if (length > 0 && length < room && names_host(skip_blanks(start + length), host)) {
            snprintf(address, room, "%.*s", (int)length, start);
            return true;
        }
    }
    return false;
}

double weft__parse_rate(const char *text)
{
    char *end;
    double rate = isdigit((unsigned char)*text) ? strtod(text, &end) : 0;
    return rate > 0 && rate < 1e6 && strncmp(end, " Gb/sec", 7) == 0 ? rate : 0;
}

/* ---- PCI ------------------------------------------------------------------------------------- */

int weft__parse_link_speed(const char *text)
{
    static const double speeds[] = {2.5, 5, 8, 16, 32, 64, 128};
    double speed = isdigit((unsigned char)*text) ? strtod(text, NULL) : 0;
    for (int i = 0; i < (int)(sizeof(speeds) / sizeof(speeds[0])); i++) {
        if (speed > speeds[i] - 0.1 && speed < speeds[i] + 0.1) {
            return i + 1;
        }
    }
    return 0;
}

#define EXTENDED 0x100 /* where extended capabilities begin */
#define CAPABILITY_ACS 0x000d
#define ACS_CONTROL 6
#define ACS_REDIRECTS 0x0d /* validate source, redirect requests, redirect completions */

int weft__parse_acs(const uint8_t *config, size_t size)
{
    size_t at = EXTENDED;
    for (int steps = 0; steps < 64 && at >= EXTENDED && at + 8 <= size; steps++) {
        uint32_t head = (uint32_t)config[at] | (uint32_t)config[at + 1] << 8 |
                        (uint32_t)config[at + 2] << 16 | (uint32_t)config[at + 3] << 24;
        if (head == 0 || head == UINT32_MAX) {
            return -1;
        }
        if ((head & 0xffff) == CAPABILITY_ACS) {
            return (config[at + ACS_CONTROL] | config[at + ACS_CONTROL + 1] << 8) & ACS_REDIRECTS;
        }
        at = head >> 20;
    }
    return -1;
}

/* ---- the kernel log -------------------------------------------------------------------------- */

static const char *find(const char *at, const char *end, const char *word)
{
    return end > at ? memmem(at, (size_t)(end - at), word, strlen(word)) : NULL;
}

bool weft__parse_xid(const char **at_p, const char *end, weft_xid_t *xid_p)
{
    static const char mark[] = "NVRM: Xid (";
    const char *start = *at_p;
    for (const char *at; (at = find(*at_p, end, mark)) != NULL;) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end != NULL ? line_end : end;
        *at_p = line_end;
        const char *bus = at + sizeof(mark) - 1;
        const char *close = find(bus, line_end, "): ");
        if (close == NULL || close + 3 >= line_end || !isdigit((unsigned char)close[3])) {
            continue;
        }
        bus += close - bus > 4 && strncmp(bus, "PCI:", 4) == 0 ? 4 : 0;
        snprintf(xid_p->bus, sizeof(xid_p->bus), "%.*s", (int)(close - bus), bus);
        xid_p->number = 0;
        for (const char *digit = close + 3;
             digit < line_end && isdigit((unsigned char)*digit) && xid_p->number < 100000;
             digit++) {
            xid_p->number = 10 * xid_p->number + (*digit - '0');
        }
        while (at > start && at[-1] != '\n') {
            at--;
        }
        xid_p->line = at;
        xid_p->length = (size_t)(line_end - at);
        return true;
    }
    return false;
}
