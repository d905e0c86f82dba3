/* Where the program keeps its variables, and which program it is.
 *
 *     a writable segment of the executable
 *     | relocated, then read-only (RELRO) | .data        | .bss               |
 *                                         ^ page                              ^ page
 *
 * The part after RELRO is what is symmetric. Variables of shared libraries are not: every PE may
 * have loaded them elsewhere, or others. */
#define _GNU_SOURCE 1 /* dl_iterate_phdr */
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mac.h"
#include "symm/shmem/segment.h"

typedef struct found {
    weft_shmem_span_t span;
    uint64_t program;
} found_t;

/* A number for some bytes that is not another's. */
static uint64_t fingerprint(const void *bytes, size_t count)
{
    const uint8_t no_key[WEFT_MAC_KEY_BYTES] = {0};
    uint8_t mac[WEFT_MAC_BYTES];
    uint64_t number;
    weft__mac(no_key, bytes, count, mac);
    memcpy(&number, mac, sizeof(number));
    return number;
}

/* The fingerprint of the build id among notes; 0 if there is none. */
static uint64_t build_id(const char *notes, size_t bytes)
{
    size_t at = 0;
    while (at + sizeof(ElfW(Nhdr)) <= bytes) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof(note));
        size_t name = at + sizeof(note);
        size_t text = name + ((size_t)note.n_namesz + 3) / 4 * 4;
        if (text + note.n_descsz > bytes) {
            break;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(notes + name, "GNU", 4) == 0) {
            return fingerprint(notes + text, note.n_descsz);
        }
        at = text + ((size_t)note.n_descsz + 3) / 4 * 4;
    }
    return 0;
}

/* Without a build id, the file tells. */
static uint64_t file_id(void)
{
    struct stat file;
    if (stat("/proc/self/exe", &file) != 0) {
        return 0;
    }
    const uint64_t words[] = {file.st_dev, file.st_ino, (uint64_t)file.st_size,
                              (uint64_t)file.st_mtim.tv_sec, (uint64_t)file.st_mtim.tv_nsec};
    return fingerprint(words, sizeof(words));
}

static int look_at_program(struct dl_phdr_info *info, size_t size, void *found_p)
{
    found_t *found = found_p;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t fixed = 0; /* the end of RELRO */
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_GNU_RELRO) {
            fixed = ((uintptr_t)at + part->p_memsz) / page * page;
        } else if (part->p_type == PT_NOTE && found->program == 0) {
            found->program = build_id(at, part->p_memsz);
        }
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_W) == 0) {
            continue;
        }
        uintptr_t from = (info->dlpi_addr + part->p_vaddr) / page * page;
        uintptr_t to = (info->dlpi_addr + part->p_vaddr + part->p_memsz + page - 1) / page * page;
        from = fixed > from && fixed <= to ? fixed : from;
        if (to - from > found->span.bytes) { /* some linkers keep RELRO in a segment of its own */
            found->span = (weft_shmem_span_t){from, to - from};
        }
    }
    if (found->program == 0) {
        found->program = file_id();
    }
    return 1; /* the program itself comes first; libraries follow */
}

void weft__shmem_find_data(weft_shmem_span_t *span_p, uint64_t *program_p)
{
    found_t found = {{0, 0}, 0};
    dl_iterate_phdr(look_at_program, &found);
    *span_p = found.span;
    *program_p = found.program;
}
