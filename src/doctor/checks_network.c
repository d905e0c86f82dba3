/* The network: interfaces, RDMA ports, names and clocks. */
#include <stdlib.h>
#include <string.h>

#include "doctor/checks.h"
#include "doctor/look.h"
#include "doctor/parse.h"

static bool has_prefix(const char *name, const char *const *prefixes)
{
    for (; *prefixes != NULL; prefixes++) {
        if (strncmp(name, *prefixes, strlen(*prefixes)) == 0) {
            return true;
        }
    }
    return false;
}

/* Is it up, and a piece of hardware? */
static bool is_up(const weft_doctor_t *doctor, const char *name)
{
    char state[WEFT_LOOK_LINE];
    return weft__look_line(doctor, state, "/sys/class/net/%s/operstate", name) &&
           strcmp(state, "up") == 0 && weft__look_exists(doctor, "/sys/class/net/%s/device", name);
}

const char *weft__check_route(weft_doctor_t *doctor)
{
    static const char *const inner[] = {"docker", "virbr", "veth", "br-", "cni", "lxc", NULL};
    static const char *const tunnels[] = {"tun", "tap", "wg", "ppp", "tailscale", NULL};
    bool several = doctor->asked.hosts > 1;
    char name[32];
    if (!weft__look_default_route(doctor, name)) {
        if (!several) {
            return "there is no default route, and one host needs none";
        }
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "there is no default route",
                         "/proc/net/route has no entry for 0.0.0.0",
                         "it is not known by which interface other hosts are reached",
                         "export NCCL_SOCKET_IFNAME and WEFT_MASTER_ADDR of the right network");
        return NULL;
    }
    bool wireless = weft__look_exists(doctor, "/sys/class/net/%s/wireless", name);
    if (has_prefix(name, inner)) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING,
                         "the default route leads to a network inside this host",
                         weft__doctor_text(doctor, "/proc/net/route: 0.0.0.0 by %s", name),
                         "ranks tell others an address that these cannot reach",
                         "export NCCL_SOCKET_IFNAME of the real interface; docker --network host");
    } else if (has_prefix(name, tunnels) || wireless) {
        weft__doctor_add(
            doctor, several ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
            wireless ? "the default route is wireless" : "the default route is a tunnel",
            weft__doctor_text(doctor, "/proc/net/route: 0.0.0.0 by %s", name),
            "none on one host; between hosts it is slow and loses packets",
            "export NCCL_SOCKET_IFNAME of a wired interface for jobs of several hosts");
    }
    return NULL;
}

/* Interfaces of one speed whose MTU differs from that of `name`. */
static void compare_mtu(weft_doctor_t *doctor, const char *name, int64_t mtu)
{
    int64_t speed = 0;
    weft__look_number(doctor, &speed, "/sys/class/net/%s/speed", name);
    const char *const *names = weft__look_folder(doctor, "/sys/class/net");
    for (; speed >= 10000 && *names != NULL; names++) {
        int64_t others = 0, as_fast = 0;
        if (strcmp(*names, name) <= 0 || !is_up(doctor, *names) ||
            !weft__look_number(doctor, &as_fast, "/sys/class/net/%s/speed", *names) ||
            as_fast != speed ||
            !weft__look_number(doctor, &others, "/sys/class/net/%s/mtu", *names)) {
            continue;
        }
        if (others != mtu) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING, "interfaces of one speed have different MTUs",
                weft__doctor_text(doctor, "/sys/class/net: %s mtu %lld, %s mtu %lld", name,
                                  (long long)mtu, *names, (long long)others),
                "packets that are too large for one end are dropped: transfers stall, or crawl",
                weft__doctor_text(doctor,
                                  "as root: ip link set %s mtu %lld, on all hosts and "
                                  "switches alike",
                                  mtu < others ? name : *names,
                                  (long long)(mtu < others ? others : mtu)));
        }
    }
}

const char *weft__check_mtu(weft_doctor_t *doctor)
{
    char route[32] = "";
    const char *const *names = weft__look_folder(doctor, "/sys/class/net");
    weft__look_default_route(doctor, route);
    for (; *names != NULL; names++) {
        int64_t mtu;
        bool ours = strcmp(*names, route) == 0;
        if ((!ours && !is_up(doctor, *names)) ||
            !weft__look_number(doctor, &mtu, "/sys/class/net/%s/mtu", *names)) {
            continue;
        }
        if (ours && mtu > 0 && mtu < 1500) {
            weft__doctor_add(
                doctor, mtu < 1280 ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
                weft__doctor_text(doctor, "%s has a small MTU", *names),
                weft__doctor_text(doctor, "/sys/class/net/%s/mtu: %lld", *names, (long long)mtu),
                "more packets and more interrupts for the same data",
                weft__doctor_text(doctor,
                                  "as root: ip link set %s mtu 1500 (9000 where all hosts "
                                  "and switches have it); tunnels and some clouds need less",
                                  *names));
        }
        compare_mtu(doctor, *names, mtu);
    }
    return NULL;
}

/* Is there an interface of the same hardware that is faster? */
static bool find_faster(weft_doctor_t *doctor, const char *name, int64_t speed, const char **than_p,
                        int64_t *faster_p)
{
    char vendor[WEFT_LOOK_LINE], device[WEFT_LOOK_LINE], line[WEFT_LOOK_LINE];
    if (!weft__look_line(doctor, vendor, "/sys/class/net/%s/device/vendor", name) ||
        !weft__look_line(doctor, device, "/sys/class/net/%s/device/device", name)) {
        return false;
    }
    const char *const *names = weft__look_folder(doctor, "/sys/class/net");
    for (; *names != NULL; names++) {
        if (is_up(doctor, *names) &&
            weft__look_line(doctor, line, "/sys/class/net/%s/device/vendor", *names) &&
            strcmp(line, vendor) == 0 &&
            weft__look_line(doctor, line, "/sys/class/net/%s/device/device", *names) &&
            strcmp(line, device) == 0 &&
            weft__look_number(doctor, faster_p, "/sys/class/net/%s/speed", *names) &&
            *faster_p > speed) {
            *than_p = *names;
            return true;
        }
    }
    return false;
}

static void check_speed_of(weft_doctor_t *doctor, const char *name)
{
    char duplex[WEFT_LOOK_LINE];
    int64_t speed = 0, faster = 0;
    const char *than = "";
    bool several = doctor->asked.hosts > 1;
    if (!weft__look_number(doctor, &speed, "/sys/class/net/%s/speed", name) || speed <= 0) {
        return; /* virtual cards do not say */
    }
    weft__look_line(doctor, duplex, "/sys/class/net/%s/duplex", name);
    if (strcmp(duplex, "half") == 0 || speed < 1000) {
        weft__doctor_add(
            doctor,
            several || strcmp(duplex, "half") == 0 ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
            weft__doctor_text(doctor, "%s runs at %lld Mbit/s%s", name, (long long)speed,
                              strcmp(duplex, "half") == 0 ? ", one way at a time" : ""),
            weft__doctor_text(doctor, "/sys/class/net/%s: speed %lld, duplex %s", name,
                              (long long)speed, duplex),
            "less than a gigabit: gradients of a small model take seconds",
            weft__doctor_text(doctor, "look at cable and switch port (ethtool %s)", name));
    } else if (find_faster(doctor, name, speed, &than, &faster)) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "%s is slower than its card can be", name),
            weft__doctor_text(doctor,
                              "/sys/class/net: %s %lld Mbit/s; %s, of the same hardware, "
                              "%lld",
                              name, (long long)speed, than, (long long)faster),
            "rings run at the speed of their slowest link",
            weft__doctor_text(doctor, "look at cable and switch port (ethtool %s)", name));
    }
}

/* The PCIe link of an RDMA card against what the card can. */
static void check_slot_of(weft_doctor_t *doctor, const char *device)
{
    char now[WEFT_LOOK_LINE], most[WEFT_LOOK_LINE];
    int64_t width = 0, widest = 0;
    if (!weft__look_line(doctor, now, "/sys/class/infiniband/%s/device/current_link_speed",
                         device) ||
        !weft__look_line(doctor, most, "/sys/class/infiniband/%s/device/max_link_speed", device)) {
        return;
    }
    weft__look_number(doctor, &width, "/sys/class/infiniband/%s/device/current_link_width", device);
    weft__look_number(doctor, &widest, "/sys/class/infiniband/%s/device/max_link_width", device);
    int generation = weft__parse_link_speed(now), best = weft__parse_link_speed(most);
    if ((generation > 0 && generation < best) || (width > 0 && width < widest)) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "%s has a PCIe link below what it can", device),
            weft__doctor_text(doctor,
                              "/sys/class/infiniband/%s/device: %s x%lld now, %s x%lld "
                              "possible",
                              device, now, (long long)width, most, (long long)widest),
            "the card cannot be fed at its line rate",
            "seat it anew, take another slot, look for bifurcation in the BIOS");
    }
}

const char *weft__check_speed(weft_doctor_t *doctor)
{
    const char *const *names = weft__look_folder(doctor, "/sys/class/net");
    for (; *names != NULL; names++) {
        if (is_up(doctor, *names)) {
            check_speed_of(doctor, *names);
        }
    }
    const char *const *devices = weft__look_folder(doctor, "/sys/class/infiniband");
    for (; *devices != NULL; devices++) {
        check_slot_of(doctor, *devices);
    }
    return NULL;
}

static void check_counters(weft_doctor_t *doctor, const weft_look_port_t *port)
{
    static const struct {
        const char *name;
        int64_t most;
    } counters[] = {{"symbol_error", 1000},
                    {"port_rcv_errors", 1000},
                    {"local_link_integrity_errors", 10},
                    {"link_downed", 100}};
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        int64_t count;
        if (weft__look_number(doctor, &count, "/sys/class/infiniband/%s/ports/%d/counters/%s",
                              port->device, port->number, counters[i].name) &&
            count > counters[i].most) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                weft__doctor_text(doctor, "%s port %d has many errors", port->device, port->number),
                weft__doctor_text(doctor, "counters/%s: %lld", counters[i].name, (long long)count),
                "packets are sent again: the link is slow now and then, and rings with it",
                "clean or replace the cable; ibqueryerrors shows the other end");
            return;
        }
    }
}

const char *weft__check_rdma(weft_doctor_t *doctor)
{
    int count, active = 0;
    const weft_look_port_t *ports = weft__look_ports(doctor, &count);
    if (count == 0) {
        return "there is no RDMA device";
    }
    for (int i = 0; i < count; i++) {
        active += ports[i].active;
    }
    for (int i = 0; i < count; i++) {
        const weft_look_port_t *port = &ports[i];
        double best = 0;
        for (int k = 0; k < count; k++) {
            bool alike = ports[k].active && ports[k].ethernet == port->ethernet;
            best = alike && ports[k].gbit > best ? ports[k].gbit : best;
        }
        if (!port->active) {
            weft__doctor_add(
                doctor, active == 0 ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
                weft__doctor_text(doctor, "%s port %d is down", port->device, port->number),
                weft__doctor_text(doctor, "/sys/class/infiniband/%s/ports/%d/state is not ACTIVE",
                                  port->device, port->number),
                active == 0 ? "TCP is used between hosts: a tenth of the bandwidth"
                            : "its bandwidth is missing, if it is meant to be up",
                "look at cable and switch port; with InfiniBand at the subnet manager (ibstat)");
        } else if (!port->ethernet && port->gbit > 0 && port->gbit < 0.9 * best) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                weft__doctor_text(doctor, "%s port %d is slower than the others", port->device,
                                  port->number),
                weft__doctor_text(doctor,
                                  "/sys/class/infiniband/%s/ports/%d/rate: %.4g of %.4g "
                                  "Gbit/s",
                                  port->device, port->number, port->gbit, best),
                "rings run at the speed of their slowest link",
                "a cable or port came up with fewer lanes: clean, seat or replace it");
        }
        check_counters(doctor, port);
    }
    return NULL;
}

/* ---- names and clocks ------------------------------------------------------------------------ */

const char *weft__check_name(weft_doctor_t *doctor)
{
    const char *host = doctor->asked.facts.host;
    const char *hosts = weft__look_text(doctor, NULL, "/etc/hosts");
    char address[64];
    if (doctor->asked.hosts < 2) {
        return "there is one host; SLURM_NNODES or a launcher would tell of more";
    }
    if (host == NULL || hosts == NULL) {
        return "the host's name or /etc/hosts cannot be read";
    }
    if (weft__parse_hosts(hosts, host, address, sizeof(address)) &&
        (strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0)) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "the host's own name leads back to itself",
            weft__doctor_text(doctor, "/etc/hosts: %s is %s", host, address),
            "a rank 0 that tells others its name or its address sends them to themselves",
            "export WEFT_MASTER_ADDR (MASTER_ADDR) with the address of rank 0's network, or give "
            "the name its address in /etc/hosts");
    }
    return NULL;
}

const char *weft__check_resolver(weft_doctor_t *doctor)
{
    bool several = doctor->asked.hosts > 1;
    if (doctor->asked.facts.name_resolves < 0) {
        return "it was not asked";
    }
    if (doctor->asked.facts.name_resolves == 0) {
        weft__doctor_add(
            doctor, several ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
            "the host's own name has no address",
            weft__doctor_text(doctor, "getaddrinfo %s",
                              doctor->asked.facts.host ? doctor->asked.facts.host : ""),
            several ? "launchers and torchrun wait for the resolver, or fail"
                    : "none for Weft on one host; other launchers may wait for the "
                      "resolver",
            "add the name to /etc/hosts, or to the DNS");
    }
    return NULL;
}

const char *weft__check_clock(weft_doctor_t *doctor)
{
    bool several = doctor->asked.hosts > 1;
    if (doctor->asked.facts.clock_synchronised < 0) {
        return "the kernel does not tell";
    }
    if (doctor->asked.facts.clock_synchronised == 0) {
        weft__doctor_add(doctor, several ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
                         "the clock is not synchronised", "adjtimex: STA_UNSYNC",
                         several ? "logs and traces of hosts do not fit together"
                                 : "times in logs and results may be off",
                         "start chronyd or systemd-timesyncd (timedatectl set-ntp true)");
    }
    return NULL;
}
