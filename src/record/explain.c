/* explain.c: words for what a comparison found: the first thing that differs, and why. */
#include "record/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXCERPT = 60 };

const char *ordo_cause_name(unsigned cause)
{
    static const char *const names[ORDO_CAUSE_COUNT] = { "repeat",  "tensors", "batch",  "seeds",
                                                         "plan",    "version", "device", "ranks",
                                                         "weights", "numerics" };
    for (int i = 0; i < ORDO_CAUSE_COUNT; i++)
        if (cause == 1u << i)
            return names[i];
    return "unknown";
}

static bool texts_differ(const char *a, const char *b)
{
    return a && b && strcmp(a, b) != 0;
}

/* ---- causes ---- */

static unsigned find_causes(const ordo_comparison *c)
{
    const ordo_step_pair *p = &c->first;
    const ordo_step_difference *d = &c->difference;
    const bool same_ranks = p->session_a->ranks == p->session_b->ranks;
    unsigned causes = 0;
    causes |= c->repeated ? ORDO_CAUSE_REPEAT : 0;
    causes |= d->missing > 0 ? ORDO_CAUSE_TENSORS : 0;
    causes |= d->batch ? ORDO_CAUSE_BATCH : 0;
    causes |= d->seeds ? ORDO_CAUSE_SEEDS : 0;
    causes |= same_ranks && texts_differ(p->a->plans, p->b->plans) ? ORDO_CAUSE_PLAN : 0;
    causes |= texts_differ(p->session_a->versions, p->session_b->versions) ? ORDO_CAUSE_VERSION : 0;
    causes |= texts_differ(p->session_a->device, p->session_b->device) ? ORDO_CAUSE_DEVICE : 0;
    causes |= same_ranks ? 0 : ORDO_CAUSE_RANKS;
    causes |= d->other_weights > 0 ? ORDO_CAUSE_WEIGHTS : 0;
    return causes ? causes : ORDO_CAUSE_NUMERICS;
}

/* The words in which two texts differ first. */
static void write_words(FILE *out, const char *a, const char *b)
{
    static const char separators[] = " ,[]{}";
    size_t at = 0;
    while (a[at] && a[at] == b[at])
        at++;
    while (at > 0 && !strchr(separators, a[at - 1]))
        at--;
    const size_t in_a = strcspn(a + at, separators), in_b = strcspn(b + at, separators);
    fprintf(out, "%.*s | %.*s", (int)(in_a < EXCERPT ? in_a : EXCERPT), a + at,
            (int)(in_b < EXCERPT ? in_b : EXCERPT), b + at);
}

static void write_weights(FILE *out, const ordo_comparison *c)
{
    const int64_t step = c->first.a->step;
    if (c->info.equal_steps == 0) {
        fprintf(out,
                "the weights differ in the first step compared: other initial weights, another "
                "checkpoint, or a difference before it");
        return;
    }
    const int64_t before = ordo_comparison_number(c, (size_t)c->info.equal_steps - 1);
    fprintf(out, "the weights differ before step %" PRId64 " computes: they changed ", step);
    if (before + 1 == step)
        fprintf(out,
                "after step %" PRId64 ", whose gradients are equal (optimizer, checkpoint or "
                "memory)",
                before);
    else
        fprintf(out, "in the steps after %" PRId64 ", which were not recorded", before);
}

static void write_cause(FILE *out, const ordo_comparison *c, unsigned cause)
{
    const ordo_step_pair *p = &c->first;
    switch (cause) {
    case ORDO_CAUSE_REPEAT:
        fprintf(out, "%c recorded step %" PRId64 " twice, with different results", c->repeated,
                p->a->step);
        break;
    case ORDO_CAUSE_TENSORS:
        fprintf(out, "another model: %s is only in one of them",
                c->names.at[c->difference.missing_name].text);
        break;
    case ORDO_CAUSE_BATCH:
        fprintf(out, "other batch ids: ");
        write_words(out, p->a->batch, p->b->batch);
        break;
    case ORDO_CAUSE_SEEDS:
        fprintf(out, "other seeds of dropout: ");
        write_words(out, p->a->seeds, p->b->seeds);
        break;
    case ORDO_CAUSE_PLAN:
        fprintf(out, "another plan line: ");
        write_words(out, p->a->plans, p->b->plans);
        break;
    case ORDO_CAUSE_VERSION:
        fprintf(out, "another version: ");
        write_words(out, p->session_a->versions, p->session_b->versions);
        break;
    case ORDO_CAUSE_DEVICE:
        fprintf(out, "another device: %s | %s", p->session_a->device, p->session_b->device);
        break;
    case ORDO_CAUSE_RANKS:
        fprintf(out, "another number of ranks: %" PRId64 " | %" PRId64, p->session_a->ranks,
                p->session_b->ranks);
        break;
    case ORDO_CAUSE_WEIGHTS: write_weights(out, c); break;
    default:
        fprintf(out, "numerics: what was recorded of the inputs of step %" PRId64 " is equal",
                p->a->step);
    }
}

static void write_hint(FILE *out, const ordo_comparison *c)
{
    const char *between = "";
    for (int i = 0; i < ORDO_CAUSE_COUNT; i++)
        if (c->info.causes & 1u << i) {
            fputs(between, out);
            write_cause(out, c, 1u << i);
            between = "; ";
        }
}

/* ---- the verdict ---- */

static void write_different(FILE *out, const ordo_comparison *c)
{
    const ordo_step_difference *d = &c->difference;
    if (d->batch)
        fputs("batch", out);
    else if (d->seeds)
        fputs("seeds", out);
    else if (d->other_weights > 0)
        fprintf(out, "weight %s", c->names.at[d->weight].text);
    else if (d->loss)
        fputs("loss", out);
    else if (d->other_gradients > 0)
        fprintf(out, "gradient %s", c->names.at[d->gradient].text);
    else
        fputs("record", out); /* one file's repeat: changed, and changed back */
}

static void write_gradient(FILE *out, const ordo_comparison *c)
{
    if (c->difference.other_gradients > 0)
        fputs(c->names.at[c->difference.gradient].text, out);
}

static void write_notes(FILE *out, const ordo_comparison *c)
{
    const ordo_record *const records[] = { &c->a, &c->b };
    if (c->a.count != c->count || c->b.count != c->count)
        fprintf(out, "A has %zu steps and B %zu; %zu are in both\n", c->a.count, c->b.count,
                c->count);
    for (int i = 0; i < 2; i++) {
        const ordo_record *r = records[i];
        if (r->incomplete)
            fprintf(out, "%c: the last line is incomplete, and was ignored\n", 'A' + i);
        if (r->truncated > 0)
            fprintf(out, "%c: %" PRId64 " line%s truncated where the run was resumed\n", 'A' + i,
                    r->truncated, r->truncated == 1 ? "" : "s");
        if (r->ignored > 0)
            fprintf(out, "%c: %" PRId64 " line%s ignored, the first is line %" PRId64 "\n", 'A' + i,
                    r->ignored, r->ignored == 1 ? "" : "s", r->first_ignored);
    }
}

static void write_text(FILE *out, const ordo_comparison *c)
{
    const ordo_comparison_info *i = &c->info;
    const ordo_step_difference *d = &c->difference;
    if (i->equal) {
        fprintf(out, "equal: %" PRId64 " steps, %" PRId64 " to %" PRId64 ", %" PRId64 " tensors\n",
                i->steps, i->first, i->last, i->tensors);
        write_notes(out, c);
        return;
    }
    fprintf(out, "DIFFERENT at step %" PRId64 ": %s\n", i->step, c->different);
    if (i->equal_steps > 0)
        fprintf(out, "equal up to step %" PRId64 ": %" PRId64 " steps\n",
                ordo_comparison_number(c, (size_t)i->equal_steps - 1), i->equal_steps);
    fprintf(out,
            "at step %" PRId64 ": %" PRId64 " of %" PRId64 " weights and %" PRId64 " of %" PRId64
            " gradients differ, and the loss %s\n",
            i->step, i->other_weights, i->weights, i->other_gradients, i->gradients,
            d->loss ? "does" : "does not");
    if (*c->gradient)
        fprintf(out, "first gradient in backward order: %s\n", c->gradient);
    fprintf(out, "hint: %s\n", c->hint);
    write_notes(out, c);
}

static char *made_by(void (*write)(FILE *, const ordo_comparison *), const ordo_comparison *c)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    write(out, c);
    const bool good = !ferror(out);
    if (fclose(out) == 0 && good)
        return text;
    free(text);
    return NULL;
}

static void write_nothing(FILE *out, const ordo_comparison *c)
{
    (void)out;
    (void)c;
}

bool ordo_comparison_explain(ordo_comparison *c)
{
    const bool differs = c->first.a != NULL;
    c->info.causes = differs ? find_causes(c) : 0;
    c->hint = made_by(differs ? write_hint : write_nothing, c);
    c->different = made_by(differs ? write_different : write_nothing, c);
    c->gradient = made_by(differs ? write_gradient : write_nothing, c);
    if (!c->hint || !c->different || !c->gradient)
        return false;
    c->text = made_by(write_text, c);
    c->info.text = c->text;
    c->info.hint = c->hint;
    c->info.different = c->different;
    c->info.gradient = c->gradient;
    return c->text != NULL;
}
