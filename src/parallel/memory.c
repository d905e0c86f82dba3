/* What a rank's memory is used for: see memory.h. */
#include "parallel/memory.h"

#include <string.h>

#include <weft/device.h>

#include "base/log.h"

#define ROUND 256
#define COLUMN 9

weft_status_t weft__ledger_malloc(weft_ledger_t *ledger, weft_memory_kind_t kind, size_t bytes,
                                  void *memory_pp)
{
    void **memory_p = memory_pp;
    ledger->bytes[kind] += (bytes + ROUND - 1) / ROUND * ROUND;
    *memory_p = NULL;
    if (ledger->dry) {
        return WEFT_OK;
    }
    if (kind == WEFT_MEMORY_HOST) {
        WEFT_TRY(weft_host_malloc(memory_p, bytes));
        memset(*memory_p, 0, bytes);
        return WEFT_OK;
    }
    WEFT_TRY(weft_malloc(memory_p, bytes));
    return weft_memset(*memory_p, 0, bytes, NULL);
}

size_t weft__ledger_total(const weft_ledger_t *ledger)
{
    size_t total = 0;
    for (int i = 0; i < WEFT_MEMORY_HOST; i++) {
        total += ledger->bytes[i];
    }
    return total;
}

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

static const char *const names[] = {
#define WEFT_MEMORY_NAME(name, text, help) text,
    WEFT_MEMORY_TABLE(WEFT_MEMORY_NAME)
#undef WEFT_MEMORY_NAME
};

/* Of the column of a kind: as wide as its name, or 100 GiB in MiB. */
static int width(int kind)
{
    int length = (int)strlen(names[kind]);
    return 1 + (length > COLUMN ? length : COLUMN);
}

void weft__ledger_print_head(FILE *out, bool peak)
{
    fprintf(out, "memory of devices, in MiB; host is not part of the sum\n%6s", "ranks");
    for (int i = 0; i < WEFT_MEMORY_KINDS; i++) {
        fprintf(out, "%*s", width(i), names[i]);
    }
    fprintf(out, " %*s", COLUMN, "predicted");
    if (peak) {
        fprintf(out, " %*s", COLUMN, "measured");
    }
    fputc('\n', out);
}

void weft__ledger_print(FILE *out, int first, int last, const weft_ledger_t *ledger,
                        const size_t *peak)
{
    char ranks[32];
    snprintf(ranks, sizeof(ranks), first == last ? "%d" : "%d-%d", first, last);
    fprintf(out, "%6s", ranks);
    for (int i = 0; i < WEFT_MEMORY_KINDS; i++) {
        fprintf(out, "%*.2f", width(i), mib(ledger->bytes[i]));
    }
    fprintf(out, " %*.2f", COLUMN, mib(weft__ledger_total(ledger)));
    if (peak != NULL) {
        fprintf(out, " %*.2f", COLUMN, mib(*peak));
    }
    fprintf(out, "\n");
}
