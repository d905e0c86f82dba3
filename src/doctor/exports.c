/* Variables that this machine justifies, each with its reason. Nothing that libraries find out by
 * themselves: what is exported without need hurts on the next machine. */
#include <string.h>

#include "doctor/checks.h"
#include "doctor/look.h"

#define LIST_ROOM 512

/* What NCCL would take by itself: the first by name of those that are up, InfiniBand's first, but
 * neither loopback nor docker's. "" if there is none. *count_p: how many it has to choose from. */
static const char *nccl_choice(weft_doctor_t *doctor, int *count_p)
{
    const char *const *names = weft__look_folder(doctor, "/sys/class/net");
    const char *first = "", *ib = "";
    *count_p = 0;
    for (; *names != NULL; names++) {
        char state[WEFT_LOOK_LINE];
        if (strcmp(*names, "lo") == 0 || strncmp(*names, "docker", 6) == 0 ||
            !weft__look_line(doctor, state, "/sys/class/net/%s/operstate", *names) ||
            strcmp(state, "up") != 0) {
            continue;
        }
        (*count_p)++;
        first = first[0] == '\0' ? *names : first;
        ib = ib[0] == '\0' && strncmp(*names, "ib", 2) == 0 ? *names : ib;
    }
    return ib[0] != '\0' ? ib : first;
}

static void recommend_interface(weft_doctor_t *doctor)
{
    char route[32];
    int count;
    const char *choice = nccl_choice(doctor, &count);
    if (weft__doctor_env(doctor, "NCCL_SOCKET_IFNAME") == NULL && count > 1 &&
        weft__look_default_route(doctor, route) && strcmp(route, choice) != 0 &&
        strncmp(choice, "ib", 2) != 0) {
        weft__doctor_export(
            doctor, "NCCL_SOCKET_IFNAME", weft__doctor_text(doctor, "=%s", route),
            weft__doctor_text(doctor,
                              "%d interfaces are up; NCCL would take %s, and the default "
                              "route is %s",
                              count, choice, route));
    }
}

/* RDMA devices by name where some must not be used: ports that are down, or slower ones for
 * management and storage. */
static void recommend_hcas(weft_doctor_t *doctor)
{
    char list[LIST_ROOM] = "";
    int count, good = 0;
    double best = 0;
    const weft_look_port_t *ports = weft__look_ports(doctor, &count);
    for (int i = 0; i < count; i++) {
        best = ports[i].active && ports[i].gbit > best ? ports[i].gbit : best;
    }
    for (int i = 0; i < count; i++) {
        size_t length = strlen(list);
        if (ports[i].active && ports[i].gbit >= best &&
            length + strlen(ports[i].device) + 16 < sizeof(list)) {
            snprintf(list + length, sizeof(list) - length, "%s%s:%d", good > 0 ? "," : "=",
                     ports[i].device, ports[i].number);
            good++;
        }
    }
    if (good > 0 && good < count && weft__doctor_env(doctor, "NCCL_IB_HCA") == NULL) {
        weft__doctor_export(
            doctor, "NCCL_IB_HCA", weft__doctor_text(doctor, "%s", list),
            weft__doctor_text(doctor,
                              "%d of %d RDMA ports are up at %.4g Gbit/s; a ring through "
                              "another one would be as slow as that",
                              good, count, best));
    }
}

/* Clouds tell NCCL by a file what their virtual PCIe tree hides. */
static void recommend_topology(weft_doctor_t *doctor)
{
    static const char *const files[] = {"/opt/microsoft/ndv5-topo.xml",
                                        "/opt/microsoft/ndv4-topo.xml", "/etc/nccl/topo.xml"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (weft__doctor_env(doctor, "NCCL_TOPO_FILE") == NULL && doctor->asked.gpus->count > 1 &&
            weft__look_exists(doctor, "%s", files[i])) {
            weft__doctor_export(doctor, "NCCL_TOPO_FILE", files[i],
                                "the virtual machine hides which GPU is near which network card; "
                                "this file of its provider says it");
            return;
        }
    }
}

void weft__doctor_recommend(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (gpus->cuda_count == 0) {
        return; /* what virtual GPUs need is the default */
    }
    if (weft__doctor_env(doctor, "WEFT_DEVICE") == NULL && doctor->asked.facts.module_cuda > 0) {
        weft__doctor_export(doctor, "WEFT_DEVICE", "cuda",
                            weft__doctor_text(doctor,
                                              "%d GPU%s %s here; the library's default are "
                                              "virtual ones",
                                              gpus->cuda_count, gpus->cuda_count == 1 ? "" : "s",
                                              gpus->cuda_count == 1 ? "is" : "are"));
    }
    recommend_interface(doctor);
    recommend_hcas(doctor);
    recommend_topology(doctor);
}
