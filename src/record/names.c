/* names.c: names of tensors: an array, and a table with open addressing. */
#include "record/names.h"

#include "base/xxh64.h"

#include <stdlib.h>
#include <string.h>

static bool grow(ordo_names *n)
{
    const size_t room = n->room ? 2 * n->room : 64;
    ordo_name *at = realloc(n->at, room * sizeof *at);
    if (!at)
        return false;
    n->at = at;
    uint32_t *slots = calloc(4 * room, sizeof *slots);
    if (!slots)
        return false;
    free(n->slots);
    n->slots = slots;
    n->slot_count = 4 * room;
    n->room = room;
    for (size_t x = 0; x < n->count; x++) {
        size_t slot = n->at[x].hash & (n->slot_count - 1);
        while (slots[slot])
            slot = (slot + 1) & (n->slot_count - 1);
        slots[slot] = (uint32_t)x + 1;
    }
    return true;
}

bool ordo_names_find(ordo_names *n, const char *text, bool gradient, uint32_t *number)
{
    const uint64_t hash = ordo_xxh64(text, strlen(text)) + gradient;
    if (n->count == n->room && !grow(n))
        return false;
    size_t slot = hash & (n->slot_count - 1);
    for (; n->slots[slot]; slot = (slot + 1) & (n->slot_count - 1)) {
        const ordo_name *name = &n->at[n->slots[slot] - 1];
        if (name->hash == hash && name->gradient == gradient && strcmp(name->text, text) == 0) {
            *number = n->slots[slot] - 1;
            return true;
        }
    }
    char *copy = strdup(text);
    if (!copy)
        return false;
    n->at[n->count] = (ordo_name) { copy, gradient, hash };
    *number = (uint32_t)n->count++;
    n->slots[slot] = *number + 1;
    return true;
}

void ordo_names_free(ordo_names *n)
{
    for (size_t x = 0; x < n->count; x++)
        free(n->at[x].text);
    free(n->at);
    free(n->slots);
    *n = (ordo_names) { 0 };
}
