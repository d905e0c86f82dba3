/* Reading the files of the machine that a doctor looks at: paths are below its root. */
#ifndef WEFT_DOCTOR_LOOK_H
#define WEFT_DOCTOR_LOOK_H

#include "doctor/doctor.h"

#define WEFT_LOOK_LINE 512

/* The first line without its end; false, and "" if there is no such file. */
bool weft__look_line(const weft_doctor_t *doctor, char line[WEFT_LOOK_LINE], const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

/* The number that the file begins with. */
bool weft__look_number(const weft_doctor_t *doctor, int64_t *value_p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The whole file, or its last megabyte; NULL: there is none. It belongs to the doctor. *size_p may
 * be NULL. */
const char *weft__look_text(weft_doctor_t *doctor, size_t *size_p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

bool weft__look_exists(const weft_doctor_t *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The last part of where a link leads ("mlx5_core" of .../driver); false: it is no link. */
bool weft__look_link(const weft_doctor_t *doctor, char name[WEFT_LOOK_LINE], const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

/* The names in a folder, sorted, without those that begin with a dot; NULL-terminated, the
 * doctor's. An empty list if there is no such folder. */
const char *const *weft__look_folder(weft_doctor_t *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The CPUs: cpus of the doctor are filled in. */
void weft__look_cpus(weft_doctor_t *doctor);

/* An RDMA device's port, as /sys/class/infiniband has it. */
typedef struct weft_look_port {
    const char *device; /* "mlx5_0" */
    int number;         /* of the port */
    bool active, ethernet;
    double gbit; /* per second; 0: unknown */
    int numa;    /* -1: unknown */
} weft_look_port_t;

/* All ports; the doctor's. */
const weft_look_port_t *weft__look_ports(weft_doctor_t *doctor, int *count_p);

/* The interface of the default route; false: there is none. */
bool weft__look_default_route(weft_doctor_t *doctor, char name[32]);

/* Does this machine run under a hypervisor? */
bool weft__look_virtual(weft_doctor_t *doctor);

#endif
