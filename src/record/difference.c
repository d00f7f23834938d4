/* difference.c: two records of one step, compared. */
#include "record/record.h"

#include <string.h>

const ordo_record_digest *ordo_step_digest(const ordo_record_step *s, uint32_t name, size_t hint)
{
    for (size_t x = 0; x < s->count; x++) {
        const size_t at = (hint + x) % s->count;
        if (s->digests[at].name == name)
            return &s->digests[at];
    }
    return NULL;
}

static bool texts_differ(const char *a, const char *b)
{
    return a && b && strcmp(a, b) != 0;
}

static bool has_kind(const ordo_record_step *s, const ordo_names *names, bool gradient)
{
    for (size_t x = 0; x < s->count; x++)
        if (names->at[s->digests[x].name].gradient == gradient)
            return true;
    return false;
}

typedef struct kinds {
    bool weights, gradients; /* both steps have some */
} kinds;

static void add_tensor(ordo_step_difference *d, bool gradient, uint32_t name, bool differs)
{
    size_t *other = gradient ? &d->other_gradients : &d->other_weights;
    (*(gradient ? &d->gradients : &d->weights))++;
    if (differs && (*other)++ == 0)
        *(gradient ? &d->gradient : &d->weight) = name;
}

static void add_missing(ordo_step_difference *d, bool gradient, uint32_t name)
{
    add_tensor(d, gradient, name, true);
    if (d->missing++ == 0)
        d->missing_name = name;
}

/* Tensors of `a` in recorded order; then those that only `b` has. */
static void compare_tensors(ordo_step_difference *d, const ordo_record_step *a,
                            const ordo_record_step *b, const ordo_names *names, kinds both)
{
    size_t hint = 0;
    for (size_t x = 0; x < a->count; x++) {
        const uint32_t name = a->digests[x].name;
        const bool gradient = names->at[name].gradient;
        if (!(gradient ? both.gradients : both.weights))
            continue;
        const ordo_record_digest *found = ordo_step_digest(b, name, hint);
        if (found) {
            hint = (size_t)(found - b->digests) + 1;
            add_tensor(d, gradient, name, found->value != a->digests[x].value);
        } else {
            add_missing(d, gradient, name);
        }
    }
    hint = 0;
    for (size_t x = 0; x < b->count; x++) {
        const uint32_t name = b->digests[x].name;
        const bool gradient = names->at[name].gradient;
        const ordo_record_digest *found = ordo_step_digest(a, name, hint);
        if (found)
            hint = (size_t)(found - a->digests) + 1;
        else if (gradient ? both.gradients : both.weights)
            add_missing(d, gradient, name);
    }
}

ordo_step_difference ordo_step_compare(const ordo_record_step *a, const ordo_record_step *b,
                                       const ordo_names *names, bool with_seeds)
{
    ordo_step_difference d = {
        .batch = texts_differ(a->batch, b->batch),
        .seeds = with_seeds && texts_differ(a->seeds, b->seeds),
        .loss = a->has_loss && b->has_loss && a->loss != b->loss,
    };
    const kinds both = { has_kind(a, names, false) && has_kind(b, names, false),
                         has_kind(a, names, true) && has_kind(b, names, true) };
    compare_tensors(&d, a, b, names, both);
    d.any = d.batch || d.seeds || d.loss || d.other_weights > 0 || d.other_gradients > 0;
    return d;
}
