/* Names in a text. Looking for each name at each place takes as long as text times names, and a
 * name of a million letters "a" in a text of them takes the square. The automaton reads every byte
 * once: its state is the longest end of what was read that begins some name. Names are put in
 * backwards and the text is read backwards, so what the state tells is what starts here; read
 * forwards, the longest name would be known only where it ends, and a text in which long ones
 * nearly match would be read again from each place. */
#include "text/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define NONE UINT32_MAX

typedef struct node {
    uint32_t child, next; /* the first child, the next one of the same parent; 0: none */
    uint32_t fail;        /* of the longest end of this one's string that is a node too */
    uint32_t value;       /* of the longest name that ends (begins in the text) here; NONE */
    unsigned char byte;
} node_t;

struct weft_names {
    node_t *nodes; /* 0: the root */
    size_t count, room;
    uint32_t first[256]; /* children of the root */
};

weft_status_t weft__names_create(weft_names_t **names_p)
{
    weft_names_t *names = calloc(1, sizeof(*names));
    node_t *nodes = malloc(16 * sizeof(*nodes));
    if (names == NULL || nodes == NULL) {
        free(names);
        free(nodes);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for names of tokens");
    }
    nodes[0] = (node_t){.value = NONE};
    *names = (weft_names_t){.nodes = nodes, .count = 1, .room = 16};
    *names_p = names;
    return WEFT_OK;
}

void weft__names_destroy(weft_names_t *names)
{
    if (names != NULL) {
        free(names->nodes);
        free(names);
    }
}

/* The child of `node` by `byte`; 0: none. */
static uint32_t child_of(const weft_names_t *names, uint32_t node, unsigned char byte)
{
    if (node == 0) {
        return names->first[byte];
    }
    uint32_t child = names->nodes[node].child;
    while (child != 0 && names->nodes[child].byte != byte) {
        child = names->nodes[child].next;
    }
    return child;
}

static weft_status_t add_child(weft_names_t *names, uint32_t node, unsigned char byte,
                               uint32_t *child_p)
{
    if (names->count == names->room) {
        size_t room = names->room * 2;
        node_t *larger = room <= UINT32_MAX ? realloc(names->nodes, room * sizeof(*larger)) : NULL;
        if (larger == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of names of tokens",
                              names->count);
        }
        names->nodes = larger;
        names->room = room;
    }
    uint32_t child = (uint32_t)names->count++;
    names->nodes[child] = (node_t){.next = names->nodes[node].child, .value = NONE, .byte = byte};
    names->nodes[node].child = child;
    if (node == 0) {
        names->first[byte] = child;
    }
    *child_p = child;
    return WEFT_OK;
}

weft_status_t weft__names_add(weft_names_t *names, const char *name, size_t length, uint32_t value)
{
    uint32_t node = 0;
    for (size_t at = length; at-- > 0;) {
        unsigned char byte = (unsigned char)name[at];
        uint32_t child = child_of(names, node, byte);
        if (child == 0) {
            WEFT_TRY(add_child(names, node, byte, &child));
        }
        node = child;
    }
    if (names->nodes[node].value != NONE || length == 0) {
        return weft__fail(WEFT_ERR_INVALID, "the name %.64s is empty or occurs twice", name);
    }
    names->nodes[node].value = value;
    return WEFT_OK;
}

/* Where `byte` leads from `node`: down, or down from the longest end that goes on with it. */
static uint32_t step(const weft_names_t *names, uint32_t node, unsigned char byte)
{
    uint32_t child = child_of(names, node, byte);
    while (child == 0 && node != 0) {
        node = names->nodes[node].fail;
        child = child_of(names, node, byte);
    }
    return child;
}

weft_status_t weft__names_build(weft_names_t *names)
{
    node_t *nodes = names->nodes;
    uint32_t *queue = malloc(names->count * sizeof(*queue)); /* by depth */
    if (queue == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of names of tokens",
                          names->count);
    }
    size_t done = 0, filled = 0;
    queue[filled++] = 0;
    while (done < filled) {
        uint32_t node = queue[done++];
        for (uint32_t child = nodes[node].child; child != 0; child = nodes[child].next) {
            nodes[child].fail = node != 0 ? step(names, nodes[node].fail, nodes[child].byte) : 0;
            if (nodes[child].value == NONE) {
                nodes[child].value = nodes[nodes[child].fail].value;
            }
            queue[filled++] = child;
        }
    }
    free(queue);
    return WEFT_OK;
}

static weft_status_t note(weft_name_matches_t *matches, size_t at, uint32_t value)
{
    if (matches->count == matches->room) {
        size_t room = matches->room * 2 + 64;
        weft_name_match_t *larger = realloc(matches->list, room * sizeof(*larger));
        if (larger == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu names in a text", room);
        }
        matches->list = larger;
        matches->room = room;
    }
    matches->list[matches->count++] = (weft_name_match_t){at, value};
    return WEFT_OK;
}

weft_status_t weft__names_find(const weft_names_t *names, const char *text, size_t length,
                               weft_name_matches_t *matches)
{
    uint32_t node = 0;
    for (size_t at = length; at-- > 0;) {
        node = step(names, node, (unsigned char)text[at]);
        if (node != 0 && names->nodes[node].value != NONE) {
            WEFT_TRY(note(matches, at, names->nodes[node].value));
        }
    }
    return WEFT_OK;
}
