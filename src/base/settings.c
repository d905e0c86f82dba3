/* The settings table at work. */
#include "base/settings.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/log.h"

extern char **environ;

#define PREFIX "WEFT_"
#define PREFIX_LENGTH (sizeof(PREFIX) - 1)

typedef enum kind { KIND_INT, KIND_BOOL, KIND_SIZE, KIND_MS, KIND_STR } kind_t;

typedef struct row {
    kind_t kind;
    size_t offset; /* of the field in weft_settings_t */
    const char *name, *value, *text;
} row_t;

static const row_t table[] = {
#define ROW(kind, field, name, value, text)                                                        \
    {KIND_##kind, offsetof(weft_settings_t, field), name, value, text},
    WEFT_SETTINGS_TABLE(ROW)
#undef ROW
};

#define ROWS ((int)(sizeof(table) / sizeof(table[0])))

/* WEFT_* variables that are no settings: by them Weft's own tests find what was built. */
static const char *const not_settings[] = {"WEFT_BIN", "WEFT_BUILD", "WEFT_SOURCE",
                                           "WEFT_TEST_SEED"};

static weft_settings_t settings; /* written inside load, and by commands before they start */
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

/* false, and the field is unchanged, if `value` is no such thing. */
static bool assign(const row_t *row, const char *value, weft_settings_t *out)
{
    void *field = (char *)out + row->offset;
    switch (row->kind) {
    case KIND_INT:
        return weft__parse_int(value, field);
    case KIND_BOOL:
        return weft__parse_bool(value, field);
    case KIND_SIZE:
        return weft__parse_size(value, field);
    case KIND_MS:
        return weft__parse_ms(value, field);
    case KIND_STR:
        *(const char **)field = value;
        return true;
    }
    return false;
}

static const char *kind_text(kind_t kind)
{
    switch (kind) {
    case KIND_INT:
        return "a whole number";
    case KIND_BOOL:
        return "yes or no";
    case KIND_SIZE:
        return "a size such as 4096, 64K or 1.5G";
    case KIND_MS:
        return "a time such as 300, 1.5s, 20ms or 5m";
    case KIND_STR:
        break;
    }
    return "a text";
}

/* The row of the variable whose name is the first `length` bytes of `entry`. */
static const row_t *find_row(const char *entry, size_t length)
{
    for (int i = 0; i < ROWS; i++) {
        if (strlen(table[i].name) == length && memcmp(table[i].name, entry, length) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static void warn_unknown(const char *entry, size_t length, void (*warn)(const char *text))
{
    const char *names[ROWS];
    char name[64], text[256];
    for (size_t i = 0; i < sizeof(not_settings) / sizeof(not_settings[0]); i++) {
        if (strlen(not_settings[i]) == length && memcmp(not_settings[i], entry, length) == 0) {
            return;
        }
    }
    /* Compared without the prefix, which would make any two names look alike. */
    for (int i = 0; i < ROWS; i++) {
        names[i] = table[i].name + PREFIX_LENGTH;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(length > 100 ? 100 : length), entry);
    const char *nearest = weft__nearest(name + PREFIX_LENGTH, names, ROWS);
    if (nearest != NULL) {
        snprintf(text, sizeof(text), "%s is not a setting of Weft; did you mean " PREFIX "%s?",
                 name, nearest);
    } else {
        snprintf(text, sizeof(text), "%s is not a setting of Weft; weft info lists them", name);
    }
    warn(text);
}

static void parse_entry(const char *entry, weft_settings_t *out, void (*warn)(const char *text))
{
    const char *equals = strchr(entry, '=');
    if (strncmp(entry, PREFIX, PREFIX_LENGTH) != 0 || equals == NULL) {
        return;
    }
    size_t length = (size_t)(equals - entry);
    const row_t *row = find_row(entry, length);
    if (row == NULL) {
        if (warn != NULL) {
            warn_unknown(entry, length, warn);
        }
        return;
    }
    /* Set to nothing is not set: the way a shell line takes a variable back. */
    if (equals[1] != '\0' && !assign(row, equals + 1, out) && warn != NULL) {
        char text[256];
        snprintf(text, sizeof(text), "%s=%.64s is not %s; using %s", row->name, equals + 1,
                 kind_text(row->kind), row->value);
        warn(text);
    }
}

static void set_defaults(weft_settings_t *out)
{
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < ROWS; i++) {
        assign(&table[i], table[i].value, out); /* the unit test checks that all of them parse */
    }
}

void weft__settings_parse(char *const *environ_p, weft_settings_t *out,
                          void (*warn)(const char *text))
{
    set_defaults(out);
    for (; *environ_p != NULL; environ_p++) {
        parse_entry(*environ_p, out, warn);
    }
}

static char told[256]; /* written inside load */

static bool was_told(const char *name, size_t length)
{
    for (const char *at = told; *at != '\0';) {
        size_t word = strcspn(at, ",");
        if (word == length && memcmp(at, name, length) == 0) {
            return true;
        }
        at += word + (at[word] == ',' ? 1 : 0);
    }
    return false;
}

/* Once for a job: what its launcher has said its ranks do not repeat. A sentence begins with the
 * name. One that has no room in the list is repeated. */
static void warn_log(const char *text)
{
    size_t length = strcspn(text, "= "), used = strlen(told);
    if (was_told(text, length)) {
        return;
    }
    weft__warn("%s", text);
    if (used + 1 + length < sizeof(told)) {
        snprintf(told + used, sizeof(told) - used, "%s%.*s", used > 0 ? "," : "", (int)length,
                 text);
    }
}

const char *weft__settings_told(void)
{
    weft__settings();
    return told;
}

/* Strings that were copied; others may still point to those of settings that were changed since. */
static struct kept {
    struct kept *next;
    char text[];
} * kept;

static const char *keep(const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct kept *copy = malloc(sizeof(*copy) + bytes);
    if (copy == NULL) {
        return text;
    }
    memcpy(copy->text, text, bytes);
    copy->next = kept;
    kept = copy;
    return copy->text;
}

/* Copy the strings: a later setenv or putenv of the program may free what environ holds now. If
 * there is no memory for that, the original stays. */
static void keep_strings(weft_settings_t *out)
{
    for (int i = 0; i < ROWS; i++) {
        if (table[i].kind == KIND_STR) {
            const char **field = (const char **)((char *)out + table[i].offset);
            *field = *field != table[i].value ? keep(*field) : *field;
        }
    }
}

static void load(void)
{
    /* The level comes first, so that the warnings below do not ask for the settings again. */
    const char *level = getenv("WEFT_LOG");
    level = level != NULL && *level != '\0' ? level : "warn";
    bool known = weft__log_set_level(level);

    const char *before = getenv("WEFT_TOLD");
    snprintf(told, sizeof(told), "%s", before != NULL ? before : "");
    weft__settings_parse(environ, &settings, warn_log);
    keep_strings(&settings);
    if (!known) {
        char text[160];
        snprintf(text, sizeof(text),
                 "WEFT_LOG=%.64s is not error, warn, info, debug or trace; using warn", level);
        warn_log(text);
        settings.log = "warn";
    }
}

const weft_settings_t *weft__settings(void)
{
    pthread_once(&settings_once, load);
    return &settings;
}

const char *weft__settings_device(const char *otherwise)
{
    const char *given = getenv("WEFT_DEVICE");
    return given != NULL && given[0] != '\0' ? weft__settings()->device : otherwise;
}

void weft__settings_set(const char *name, const char *value)
{
    pthread_once(&settings_once, load);
    setenv(name, value, 1);
    weft__settings_parse(environ, &settings, NULL);
    keep_strings(&settings);
}

/* ---- showing ---------------------------------------------------------------------------- */

static void print_ms(char *out, size_t room, int value)
{
    if (value == 0) {
        snprintf(out, room, "0");
    } else if (value % 60000 == 0) {
        snprintf(out, room, "%dm", value / 60000);
    } else if (value % 1000 == 0) {
        snprintf(out, room, "%ds", value / 1000);
    } else {
        snprintf(out, room, "%dms", value);
    }
}

static const char *print_value(const row_t *row, const weft_settings_t *from, char *room,
                               size_t bytes)
{
    const void *field = (const char *)from + row->offset;
    switch (row->kind) {
    case KIND_INT:
        snprintf(room, bytes, "%d", *(const int *)field);
        break;
    case KIND_BOOL:
        snprintf(room, bytes, "%s", *(const bool *)field ? "yes" : "no");
        break;
    case KIND_SIZE:
        weft__print_size(room, bytes, *(const size_t *)field);
        break;
    case KIND_MS:
        print_ms(room, bytes, *(const int *)field);
        break;
    case KIND_STR:
        if (row->offset == offsetof(weft_settings_t, secret)) {
            return **(const char *const *)field != '\0' ? "(set)" : "";
        }
        return *(const char *const *)field;
    }
    return room;
}

void weft__settings_each(void (*fn)(const char *name, const char *value, bool is_default,
                                    const char *text, void *ctx),
                         void *ctx)
{
    const weft_settings_t *now = weft__settings();
    weft_settings_t defaults;
    set_defaults(&defaults);
    for (int i = 0; i < ROWS; i++) {
        char room[32], default_room[32];
        const char *value = print_value(&table[i], now, room, sizeof(room));
        const char *usual = print_value(&table[i], &defaults, default_room, sizeof(default_room));
        fn(table[i].name, value, strcmp(value, usual) == 0, table[i].text, ctx);
    }
}

void weft__settings_print(FILE *out)
{
    enum { NAME = 20, VALUE = 18, TEXT = NAME + 1 + VALUE };
    const weft_settings_t *now = weft__settings();
    weft_settings_t defaults;
    set_defaults(&defaults);
    fprintf(out, "%-*s %-*s%s\n", NAME, "setting", VALUE, "value", "what it does");
    for (int i = 0; i < ROWS; i++) {
        char room[32], default_room[32], text[512];
        const char *value = print_value(&table[i], now, room, sizeof(room));
        const char *usual = print_value(&table[i], &defaults, default_room, sizeof(default_room));
        bool same = strcmp(value, usual) == 0;
        snprintf(text, sizeof(text), "%s%s%s%s", table[i].text, same ? "" : " (default ",
                 same             ? ""
                 : *usual != '\0' ? usual
                                  : "empty",
                 same ? "" : ")");
        int column = fprintf(out, "%-*s %-*s", NAME, table[i].name, VALUE - 1,
                             *value != '\0' ? value : "-");
        fprintf(out, "%s%*s", column < TEXT ? "" : "\n", column < TEXT ? TEXT - column : TEXT, "");
        weft__print_wrapped(out, text, TEXT, TEXT);
    }
}
