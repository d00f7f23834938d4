/* comparison.c: read two records, find the first step that differs, answer questions about it. */
#include "record/explain.h"

#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"

#include <stdlib.h>

static const ordo_struct info_kind =
    ORDO_STRUCT(ordo_comparison_info, "comparison info", ORDO_COMPARISON_INFO_INIT, NULL);
static const ordo_struct step_kind =
    ORDO_STRUCT(ordo_comparison_step, "comparison step", ORDO_COMPARISON_STEP_INIT, NULL);

static ordo_step_difference compare_pair(const ordo_comparison *c, const ordo_step_pair *p)
{
    const bool same_ranks = p->session_a->ranks == p->session_b->ranks;
    return ordo_step_compare(p->a, p->b, &c->names, same_ranks);
}

static ordo_step_pair pair_of(const ordo_comparison *c, const ordo_step_match *m)
{
    const ordo_record_step *a = &c->a.steps[m->a], *b = &c->b.steps[m->b];
    return (ordo_step_pair) { a, b, &c->a.sessions[a->session], &c->b.sessions[b->session] };
}

/* Every step that both have. */
static ordo_status find_matches(ordo_comparison *c)
{
    const size_t most = c->a.count < c->b.count ? c->a.count : c->b.count;
    c->matches = calloc(most + 1, sizeof *c->matches);
    if (!c->matches)
        return ordo_fail(ORDO_ERR_MEMORY, "comparison: out of memory");
    for (size_t x = 0, y = 0; x < c->a.count && y < c->b.count;) {
        const int64_t a = c->a.steps[x].step, b = c->b.steps[y].step;
        if (a == b)
            c->matches[c->count++] = (ordo_step_match) { .a = x, .b = y };
        x += a <= b;
        y += b <= a;
    }
    return ORDO_OK;
}

static void find_first(ordo_comparison *c)
{
    for (size_t x = 0; x < c->count; x++) {
        const ordo_step_pair pair = pair_of(c, &c->matches[x]);
        const ordo_step_difference d = compare_pair(c, &pair);
        c->matches[x].equal = !d.any;
        if (d.any && !c->first.a) {
            c->first = pair;
            c->difference = d;
        }
    }
}

/* A step that one file holds twice, if it is not after the first that differs between them. */
static void find_repeated(ordo_comparison *c, const ordo_record *r, char name)
{
    const ordo_record_step *before = r->changed;
    if (!before || (c->first.a && c->first.a->step < before->step))
        return;
    const ordo_record_step *after = ordo_record_find(r, before->step);
    c->first = (ordo_step_pair) { .a = before,
                                  .b = after,
                                  .session_a = &r->sessions[before->session],
                                  .session_b = &r->sessions[after->session] };
    c->difference = compare_pair(c, &c->first);
    c->repeated = name;
}

static void fill_info(ordo_comparison *c)
{
    ordo_comparison_info *i = &c->info;
    const ordo_record_step *first = c->first.a;
    i->size = sizeof *i;
    i->equal = !first;
    i->steps = (int64_t)c->count;
    i->first = ordo_comparison_number(c, 0);
    i->last = ordo_comparison_number(c, c->count - 1);
    i->tensors = (int64_t)c->names.count;
    for (size_t x = 0; x < c->count; x++)
        i->equal_steps += !first || ordo_comparison_number(c, x) < first->step;
    i->step = first ? first->step : 0;
    i->weights = (int64_t)c->difference.weights;
    i->other_weights = (int64_t)c->difference.other_weights;
    i->gradients = (int64_t)c->difference.gradients;
    i->other_gradients = (int64_t)c->difference.other_gradients;
    i->steps_a = (int64_t)c->a.count;
    i->steps_b = (int64_t)c->b.count;
    i->ignored_a = c->a.ignored;
    i->ignored_b = c->b.ignored;
    i->incomplete_a = c->a.incomplete;
    i->incomplete_b = c->b.incomplete;
}

static ordo_status compare(ordo_comparison *c, const char *a, const char *b)
{
    ORDO_TRY(ordo_record_read(&c->a, a, &c->names));
    ORDO_TRY(ordo_record_read(&c->b, b, &c->names));
    ORDO_TRY(find_matches(c));
    if (c->count == 0)
        return ordo_fail(ORDO_ERR_SHAPE, "%s has %zu steps and %s has %zu: expected some in common",
                         a, c->a.count, b, c->b.count);
    find_first(c);
    find_repeated(c, &c->b, 'B');
    find_repeated(c, &c->a, 'A');
    fill_info(c);
    if (!ordo_comparison_explain(c))
        return ordo_fail(ORDO_ERR_MEMORY, "comparison: out of memory");
    return ORDO_OK;
}

ordo_status ordo_comparison_create(ordo_comparison **comparison, const char *a, const char *b)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("comparison", comparison));
    *comparison = NULL;
    ORDO_TRY(ordo_check_pointer("a", a));
    ORDO_TRY(ordo_check_pointer("b", b));
    ordo_comparison *c = calloc(1, sizeof *c);
    if (!c)
        return ordo_fail(ORDO_ERR_MEMORY, "comparison: out of memory");
    const ordo_status status = compare(c, a, b);
    if (status == ORDO_OK)
        *comparison = c;
    else
        ordo_comparison_destroy(c);
    return status;
}

void ordo_comparison_destroy(ordo_comparison *c)
{
    if (!c)
        return;
    ordo_record_free(&c->a);
    ordo_record_free(&c->b);
    ordo_names_free(&c->names);
    free(c->matches);
    free(c->text);
    free(c->hint);
    free(c->different);
    free(c->gradient);
    free(c);
}

/* ---- questions ---- */

ordo_status ordo_comparison_query(const ordo_comparison *c, ordo_comparison_info *info)
{
    ORDO_TRY(ordo_check_pointer("comparison", c));
    ORDO_TRY(ordo_check_pointer("info", info));
    return ordo_versioned_answer(info, &c->info, &info_kind);
}

ordo_status ordo_comparison_step_at(const ordo_comparison *c, int64_t index,
                                    ordo_comparison_step *step)
{
    ORDO_TRY(ordo_check_pointer("comparison", c));
    ORDO_TRY(ordo_check_pointer("step", step));
    ORDO_TRY(ordo_check_range("index", index, 0, (int64_t)c->count - 1));
    const ordo_step_pair p = pair_of(c, &c->matches[index]);
    const ordo_comparison_step answer = { sizeof answer, p.a->step, p.a->loss_value,
                                          p.b->loss_value, c->matches[index].equal };
    return ordo_versioned_answer(step, &answer, &step_kind);
}

const char *ordo_comparison_tensor(const ordo_comparison *c, int64_t tensor, bool *gradient)
{
    if (!c || tensor < 0 || tensor >= (int64_t)c->names.count)
        return NULL;
    if (gradient)
        *gradient = c->names.at[tensor].gradient;
    return c->names.at[tensor].text;
}

ordo_cell ordo_comparison_cell(const ordo_comparison *c, int64_t tensor, int64_t index)
{
    if (!c || tensor < 0 || tensor >= (int64_t)c->names.count || index < 0 ||
        index >= (int64_t)c->count)
        return ORDO_CELL_ABSENT;
    const ordo_step_pair p = pair_of(c, &c->matches[index]);
    const ordo_record_digest *a = ordo_step_digest(p.a, (uint32_t)tensor, (size_t)tensor);
    const ordo_record_digest *b = ordo_step_digest(p.b, (uint32_t)tensor, (size_t)tensor);
    if (!a && !b)
        return ORDO_CELL_ABSENT;
    return a && b && a->value == b->value ? ORDO_CELL_EQUAL : ORDO_CELL_DIFFERENT;
}
