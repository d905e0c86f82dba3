/* GPUs: the driver and its versions, who may use them, and how they fare. */
#include <stdlib.h>
#include <string.h>

#include "device/sysmem.h"
#include "doctor/checks.h"
#include "doctor/gpu_words.h"
#include "doctor/look.h"
#include "doctor/parse.h"

#define NO_GPU "there is no GPU"

void weft__gpu_list_add(weft_gpu_list_t *list, const weft_gpu_t *gpu)
{
    size_t length = strlen(list->text);
    if (list->count++ == 0) {
        snprintf(list->text, sizeof(list->text), "GPU %d", gpu->index);
    } else if (length + 12 < sizeof(list->text)) {
        snprintf(list->text + length, sizeof(list->text) - length, ", %d", gpu->index);
    } else if (length + 4 < sizeof(list->text) && list->text[length - 1] != '.') {
        snprintf(list->text + length, sizeof(list->text) - length, "...");
    }
}

/* ---- the driver ------------------------------------------------------------------------------ */

/* A display or 3D controller of NVIDIA's on the PCI bus; "" if there is none. */
static const char *find_card(weft_doctor_t *doctor)
{
    const char *const *devices = weft__look_folder(doctor, "/sys/bus/pci/devices");
    for (; *devices != NULL; devices++) {
        char vendor[WEFT_LOOK_LINE], class[WEFT_LOOK_LINE];
        if (weft__look_line(doctor, vendor, "/sys/bus/pci/devices/%s/vendor", *devices) &&
            strcmp(vendor, "0x10de") == 0 &&
            weft__look_line(doctor, class, "/sys/bus/pci/devices/%s/class", *devices) &&
            strncmp(class, "0x03", 4) == 0) {
            return *devices;
        }
    }
    return "";
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.10  Mon ..." against the library's. */
static void compare_module(weft_doctor_t *doctor, const char *version)
{
    const char *driver = doctor->asked.gpus->driver;
    const char *at = strstr(version, " Kernel Module ");
    at = at != NULL ? at : strstr(version, " Kernel Module");
    const char *number = at != NULL ? at + strcspn(at, "0123456789\n") : NULL;
    if (number == NULL || *number < '0' || *number > '9' || driver[0] == '\0') {
        return;
    }
    size_t length = strspn(number, "0123456789.");
    if (length != strlen(driver) || strncmp(number, driver, length) != 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_ERROR, "kernel module and libraries of the driver differ",
            weft__doctor_text(doctor, "/proc/driver/nvidia/version: %.*s; NVML: %s", (int)length,
                              number, driver),
            "CUDA fails to start after the next process that loads the driver",
            "as root: rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia, or "
            "reboot; in a container, one that mounts the host's libraries");
    }
}

const char *weft__check_driver(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (gpus->count == 0) {
        const char *card = find_card(doctor);
        if (card[0] == '\0') {
            return NO_GPU;
        }
        weft__doctor_add(
            doctor, WEFT_FINDING_ERROR, "there is an NVIDIA GPU, and no driver for it",
            weft__doctor_text(doctor, "/sys/bus/pci/devices/%s; %s", card, gpus->reason),
            "the GPU cannot be used",
            "install the driver, or load it (as root: modprobe nvidia); in a container: docker "
            "--gpus all with the NVIDIA container toolkit");
        return NULL;
    }
    if (gpus->trouble[0] != '\0') {
        weft__doctor_add(
            doctor, WEFT_FINDING_ERROR, "a GPU does not answer", gpus->trouble,
            "it is lost until it is reset; jobs that want all GPUs fail",
            "dmesg | grep -i xid says why; as root: nvidia-smi --gpu-reset, or reboot; "
            "if it happens again, the board or its power is faulty");
    }
    const char *version = weft__look_text(doctor, NULL, "/proc/driver/nvidia/version");
    if (version != NULL) {
        compare_module(doctor, version);
    }
    return NULL;
}

const char *weft__check_cuda(weft_doctor_t *doctor)
{
    int built = doctor->asked.facts.module_cuda, driver = doctor->asked.gpus->cuda_version;
    if (doctor->asked.gpus->count == 0) {
        return NO_GPU;
    }
    if (built == 0) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "Weft has no CUDA module",
                         "libweft-cuda.so is not beside Weft's own files, nor where "
                         "WEFT_CUDA_MODULE says",
                         "ranks run on virtual GPUs; the real ones are not used",
                         "build Weft where nvcc is (cmake says whether it found it), or set "
                         "WEFT_CUDA_MODULE");
        return NULL;
    }
    if (built < 0 || driver < 0) {
        return "the driver or the module does not tell its version";
    }
    if (built / 1000 > driver / 1000) {
        weft__doctor_add(
            doctor, WEFT_FINDING_ERROR, "Weft was built for a newer CUDA than the driver runs",
            weft__doctor_text(doctor, "libweft-cuda.so: CUDA %d.%d; driver %s: CUDA %d.%d",
                              built / 1000, built % 1000 / 10, doctor->asked.gpus->driver,
                              driver / 1000, driver % 1000 / 10),
            "no GPU can be used: \"CUDA driver version is insufficient for CUDA runtime version\"",
            weft__doctor_text(doctor, "update the driver, or build Weft with CUDA %d",
                              driver / 1000));
    } else if (built > driver) {
        weft__doctor_add(
            doctor, WEFT_FINDING_NOTE, "Weft was built for a newer CUDA than the driver's own",
            weft__doctor_text(doctor, "libweft-cuda.so: CUDA %d.%d; driver %s: CUDA %d.%d",
                              built / 1000, built % 1000 / 10, doctor->asked.gpus->driver,
                              driver / 1000, driver % 1000 / 10),
            "none within one major version, but for kernels that the driver has to compile",
            "update the driver when there is a chance");
    }
    return NULL;
}

const char *weft__check_nccl_library(weft_doctor_t *doctor)
{
    const char *nccl = doctor->asked.facts.nccl;
    if (doctor->asked.gpus->count == 0) {
        return NO_GPU;
    }
    if (nccl == NULL) {
        return "nobody looked for it";
    }
    if (nccl[0] == '\0') {
        bool needed = doctor->asked.hosts > 1;
        weft__doctor_add(doctor, needed ? WEFT_FINDING_ERROR : WEFT_FINDING_NOTE,
                         "there is no NCCL",
                         "the library that WEFT_NCCL names cannot be loaded (weft info says why)",
                         needed ? "GPUs of several hosts cannot be connected"
                                : "none within a host whose GPUs reach each other's memory; "
                                  "several hosts need it",
                         "install libnccl2, or set WEFT_NCCL to the path of libnccl.so.2");
    }
    return NULL;
}

const char *weft__check_visible(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    const char *set = weft__doctor_env(doctor, "CUDA_VISIBLE_DEVICES");
    if (gpus->count == 0) {
        return NO_GPU;
    }
    int shown = gpus->cuda_count; /* those that are cut are what gpu-mig is about */
    for (int i = 0; i < gpus->count; i++) {
        shown += gpus->gpus[i].mig == 1 && gpus->gpus[i].cuda < 0;
    }
    if (gpus->cuda_count == 0 || (set != NULL && gpus->cuda_note[0] != '\0')) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING,
                         gpus->cuda_count == 0 ? "CUDA shows no GPU"
                                               : "CUDA_VISIBLE_DEVICES is odd",
                         weft__doctor_text(doctor, "CUDA_VISIBLE_DEVICES=%s, %d GPU%s%s%s",
                                           set ? set : "", gpus->count, gpus->count == 1 ? "" : "s",
                                           gpus->cuda_note[0] != '\0' ? "; " : "", gpus->cuda_note),
                         gpus->cuda_count == 0 ? "ranks run on virtual GPUs"
                                               : "GPUs behind the odd entry are not used",
                         "unset CUDA_VISIBLE_DEVICES, or list numbers that nvidia-smi -L shows");
    } else if (shown < gpus->count) {
        weft__doctor_add(
            doctor, WEFT_FINDING_NOTE,
            weft__doctor_text(doctor, "CUDA shows %d of %d GPUs", gpus->cuda_count, gpus->count),
            weft__doctor_text(doctor, "CUDA_VISIBLE_DEVICES=%s", set ? set : ""),
            "the others are not used", "unset CUDA_VISIBLE_DEVICES if it is not on purpose");
    }
    return NULL;
}

/* ---- who may use them ------------------------------------------------------------------------ */

const char *weft__check_persistence(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    weft_gpu_list_t off = {0};
    if (gpus->count == 0) {
        return NO_GPU;
    }
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->gpus[i].health.persistence == 0) {
            weft__gpu_list_add(&off, &gpus->gpus[i]);
        }
    }
    if (off.count > 0) {
        weft__doctor_add(doctor, WEFT_FINDING_NOTE,
                         "the driver is unloaded whenever no process uses a GPU",
                         weft__doctor_text(doctor, "persistence mode is off: %s", off.text),
                         "each start of a job takes a second or more a GPU, and clocks that were "
                         "set are forgotten",
                         "as root: nvidia-smi -pm 1, or start nvidia-persistenced");
    }
    return NULL;
}

const char *weft__check_mode(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    weft_gpu_list_t closed = {0}, exclusive = {0};
    if (gpus->count == 0) {
        return NO_GPU;
    }
    for (int i = 0; i < gpus->cuda_count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[gpus->cuda[i]];
        if (gpu->mode == WEFT_GPU_PROHIBITED) {
            weft__gpu_list_add(&closed, gpu);
        } else if (gpu->mode == WEFT_GPU_EXCLUSIVE) {
            weft__gpu_list_add(&exclusive, gpu);
        }
    }
    if (closed.count > 0) {
        weft__doctor_add(doctor, WEFT_FINDING_ERROR, "no process may compute on some GPUs",
                         weft__doctor_text(doctor, "compute mode Prohibited: %s", closed.text),
                         "ranks on them fail with \"all CUDA-capable devices are busy\"",
                         "as root: nvidia-smi -c DEFAULT");
    }
    if (exclusive.count > 0 && doctor->ranks > gpus->cuda_count && gpus->mps != 1) {
        weft__doctor_add(
            doctor, WEFT_FINDING_ERROR, "one process only may use a GPU, and ranks are to share it",
            weft__doctor_text(doctor,
                              "compute mode Exclusive_Process: %s; %d ranks, %d GPUs, no "
                              "MPS",
                              exclusive.text, doctor->ranks, gpus->cuda_count),
            "the second rank of a GPU fails with \"all CUDA-capable devices are busy\"",
            "nvidia-cuda-mps-control -d, or as root: nvidia-smi -c DEFAULT");
    }
    return NULL;
}

const char *weft__check_mps(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (gpus->cuda_count == 0) {
        return NO_GPU;
    }
    if (!doctor->on_gpus || doctor->ranks <= gpus->cuda_count) {
        return "no two ranks share a GPU";
    }
    bool exclusive = false; /* that is what gpu-mode says */
    for (int i = 0; i < gpus->cuda_count; i++) {
        exclusive |= gpus->gpus[gpus->cuda[i]].mode == WEFT_GPU_EXCLUSIVE;
    }
    if (gpus->mps == 0 && !exclusive) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "%d ranks share %d GPU%s without MPS", doctor->ranks,
                              gpus->cuda_count, gpus->cuda_count == 1 ? "" : "s"),
            "nvidia-cuda-mps-control.pid is not in CUDA_MPS_PIPE_DIRECTORY (/tmp/nvidia-mps)",
            "processes take turns of milliseconds, in which their kernels wait for each other; "
            "Weft refuses to start such ranks",
            "nvidia-cuda-mps-control -d, or make ranks threads of one process");
    }
    return NULL;
}

const char *weft__check_mig(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    weft_gpu_list_t cut = {0};
    if (gpus->count == 0) {
        return NO_GPU;
    }
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->gpus[i].mig == 1) {
            weft__gpu_list_add(&cut, &gpus->gpus[i]);
        }
    }
    if (cut.count > 0) {
        weft__doctor_add(doctor, doctor->ranks > 1 ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
                         "GPUs are cut into MIG devices",
                         weft__doctor_text(doctor, "MIG is on: %s", cut.text),
                         "a process sees one part of one GPU, without NVLink and without access to "
                         "other GPUs",
                         "as root, with no process on them: nvidia-smi -mig 0");
    }
    return NULL;
}

const char *weft__check_gpu_memory(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    weft_gpu_list_t full = {0};
    char a[WEFT_BYTES_TEXT], b[WEFT_BYTES_TEXT];
    const weft_gpu_t *first = NULL;
    if (gpus->count == 0) {
        return NO_GPU;
    }
    for (int i = 0; i < gpus->count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[i];
        if (gpu->memory > 0 && gpu->memory_free >= 0 &&
            gpu->memory - gpu->memory_free > gpu->memory / 5) {
            first = first != NULL ? first : gpu;
            weft__gpu_list_add(&full, gpu);
        }
    }
    if (full.count > 0) {
        weft__doctor_add(doctor, WEFT_FINDING_NOTE, "others use the memory of GPUs",
                         weft__doctor_text(doctor, "%s; GPU %d: %s of %s free", full.text,
                                           first->index,
                                           weft__bytes_text((uint64_t)first->memory_free, a),
                                           weft__bytes_text((uint64_t)first->memory, b)),
                         "jobs find less memory, and share the GPU's time",
                         "nvidia-smi shows who; end what was left of a job that ended badly");
    }
    return NULL;
}

const char *weft__check_alike(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (gpus->cuda_count < 2) {
        return "there are no two GPUs";
    }
    const weft_gpu_t *first = &gpus->gpus[gpus->cuda[0]];
    for (int i = 1; i < gpus->cuda_count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[gpus->cuda[i]];
        if (strcmp(gpu->name, first->name) != 0) {
            weft__doctor_add(doctor, WEFT_FINDING_WARNING, "the GPUs are of different kinds",
                             weft__doctor_text(doctor, "GPU %d is %s, GPU %d is %s", first->index,
                                               first->name, gpu->index, gpu->name),
                             "every step takes as long as on the slowest of them",
                             "choose those of one kind with CUDA_VISIBLE_DEVICES");
            if (weft__doctor_env(doctor, "CUDA_DEVICE_ORDER") == NULL) {
                weft__doctor_export(doctor, "CUDA_DEVICE_ORDER", "PCI_BUS_ID",
                                    "the GPUs differ: CUDA would put the fastest first, and its "
                                    "numbers would not be nvidia-smi's");
            }
            break;
        }
    }
    return NULL;
}

/* ---- how they fare --------------------------------------------------------------------------- */

const char *weft__check_throttle(weft_doctor_t *doctor)
{
    static const struct {
        int bit;
        weft_finding_level_t level;
        const char *what, *cost, *fix;
    } reasons[] = {
        {WEFT_THROTTLE_HARDWARE_THERMAL, WEFT_FINDING_WARNING, "too hot: the hardware slows it",
         "clocks fall to a half or less, and all ranks wait for this GPU",
         "look at fans, air flow and the room (nvidia-smi -q -d TEMPERATURE)"},
        {WEFT_THROTTLE_THERMAL, WEFT_FINDING_WARNING, "too hot: the driver slows it",
         "clocks fall until it is cooler, and all ranks wait for this GPU",
         "look at fans, air flow and the room (nvidia-smi -q -d TEMPERATURE)"},
        {WEFT_THROTTLE_POWER_BRAKE, WEFT_FINDING_WARNING, "the power supply asks it to slow down",
         "clocks fall to a half or less, and all ranks wait for this GPU",
         "look at power supplies and cables (the machine's BMC log)"},
        {WEFT_THROTTLE_HARDWARE, WEFT_FINDING_WARNING, "the hardware slows it down",
         "clocks fall to a half or less, and all ranks wait for this GPU",
         "nvidia-smi -q -d PERFORMANCE says more; look at power and cooling"},
        {WEFT_THROTTLE_SETTING, WEFT_FINDING_NOTE, "somebody has set its clocks",
         "it runs at these clocks, and no faster", "as root: nvidia-smi -rac -rgc"},
    };
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (gpus->count == 0) {
        return NO_GPU;
    }
    for (int i = 0; i < gpus->count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[i];
        for (size_t k = 0; gpu->health.throttle > 0 && k < sizeof(reasons) / sizeof(reasons[0]);
             k++) {
            if ((gpu->health.throttle & reasons[k].bit) != 0) {
                weft__doctor_add(
                    doctor, reasons[k].level,
                    weft__doctor_text(doctor, "GPU %d: %s", gpu->index, reasons[k].what),
                    weft__doctor_text(doctor, "clock throttle reasons 0x%llx",
                                      (unsigned long long)gpu->health.throttle),
                    reasons[k].cost, reasons[k].fix);
                break; /* the worst of them */
            }
        }
    }
    return NULL;
}

static void check_memory_of(weft_doctor_t *doctor, const weft_gpu_t *gpu)
{
    const weft_gpu_health_t *health = &gpu->health;
    if (health->rows_failed == 1) {
        weft__doctor_add(
            doctor, WEFT_FINDING_ERROR,
            weft__doctor_text(doctor, "GPU %d has no spare memory rows left", gpu->index),
            "remapped rows: a replacement failed",
            "the next uncorrected error in that row ends jobs again and again",
            "replace the board (nvidia-smi -q -d ROW_REMAPPER for its maker)");
    } else if (health->rows_pending == 1 || health->retire_pending == 1) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "GPU %d has faulty memory that a reset would take out of use",
                              gpu->index),
            health->rows_pending == 1 ? "remapped rows: pending" : "retired pages: pending",
            "jobs that touch it are ended by an uncorrected ECC error",
            weft__doctor_text(doctor,
                              "as root, with no process on it: nvidia-smi -i %d --gpu-reset",
                              gpu->index));
    } else if (health->ecc_uncorrected > 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_ERROR,
            weft__doctor_text(doctor, "GPU %d has had uncorrected memory errors", gpu->index),
            weft__doctor_text(doctor, "ECC: %lld uncorrected since the driver was loaded",
                              (long long)health->ecc_uncorrected),
            "a job that had the data has ended or computed with wrong numbers",
            weft__doctor_text(doctor,
                              "as root, with no process on it: nvidia-smi -i %d --gpu-reset; if "
                              "they come again, replace the board",
                              gpu->index));
    }
}

const char *weft__check_ecc(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (gpus->count == 0) {
        return NO_GPU;
    }
    for (int i = 0; i < gpus->count; i++) {
        check_memory_of(doctor, &gpus->gpus[i]);
    }
    return NULL;
}

/* What a program did wrong, not the machine. */
static bool is_of_program(int number)
{
    return number == 13 || number == 31 || number == 43 || number == 45 || number == 68;
}

const char *weft__check_xid(weft_doctor_t *doctor)
{
    static const char *const logs[] = {"/var/log/kern.log", "/var/log/messages", "/var/log/syslog"};
    const char *text = NULL, *log = "";
    size_t size = 0;
    weft_xid_t xid, worst = {.number = -1};
    int count = 0;
    if (doctor->asked.gpus->count == 0) {
        return NO_GPU;
    }
    for (size_t i = 0; i < sizeof(logs) / sizeof(logs[0]) && text == NULL; i++) {
        text = weft__look_text(doctor, &size, "%s", logs[i]);
        log = logs[i];
    }
    if (text == NULL) {
        return "the kernel log is for root to read: dmesg | grep -i xid";
    }
    for (const char *at = text; weft__parse_xid(&at, text + size, &xid);) {
        count++;
        if (worst.number < 0 || is_of_program(worst.number)) {
            worst = xid;
        }
    }
    if (count > 0) {
        bool program = is_of_program(worst.number);
        size_t length = worst.length < 200 ? worst.length : 200;
        weft__doctor_add(
            doctor, program ? WEFT_FINDING_NOTE : WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "the kernel log has %d error%s of GPUs (Xid %d of %s)", count,
                              count == 1 ? "" : "s", worst.number, worst.bus),
            weft__doctor_text(doctor, "%s: %.*s", log, (int)length, worst.line),
            program ? "a program was ended for it; the GPU is well"
                    : "jobs on it were ended, or its links were lost",
            program ? "look for the program in the log's line"
                    : "look the number up in NVIDIA's list of Xid errors; reset the GPU, and "
                      "have it replaced if it happens again");
    }
    return NULL;
}
