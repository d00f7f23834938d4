/* grid_trial.h: one combination in work: its passes, and what is found.
 *
 * fail() prints a line with the command that repeats it, refuse() counts what the backend does not
 * have. */
#ifndef TESTS_CUDA_GRID_TRIAL_H
#define TESTS_CUDA_GRID_TRIAL_H

#include "grid_run.h"
#include "grid_session.h"

#include <pthread.h>
#include <stdarg.h>

/* One combination in work. */
typedef struct trial {
    session *s;
    int64_t number;
    grid_lab lab;
    grid_lab host; /* --against: of the emulator */
    grid_image whole, other, again;
    grid_case c;
    ordo_plan *plan;
    ordo_plan_info info;
    bool failed, refused;
    int64_t passes;
} trial;

/* ---- what is found ---- */

__attribute__((format(printf, 3, 4))) static inline void fail(trial *t, const char *level,
                                                              const char *format, ...)
{
    char what[TEXT_SIZE], about[TEXT_SIZE], line[3 * TEXT_SIZE];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(what, sizeof what, format, list);
    va_end(list);
    session *s = t->s;
    grid_describe(&t->c, about, sizeof about);
    const int used = snprintf(line, sizeof line, "FAIL %s: %s; %s; ", level, what, about);
    say_again(s, t->number, line + used, sizeof line - (size_t)used);
    pthread_mutex_lock(&s->lock);
    t->failed = true;
    if (s->failure_count < FAILURES_MAX)
        s->failures[s->failure_count++] = strdup(line);
    fprintf(s->json ? stderr : stdout, "%s\n", line);
    fflush(stdout);
    pthread_mutex_unlock(&s->lock);
}

static inline void refuse(trial *t, const char *level)
{
    char text[TEXT_SIZE];
    const char *said = ordo_last_error();
    int at = snprintf(text, sizeof text, "%s: ", level);
    for (; *said && at < TEXT_SIZE - 1; said++) {
        const bool digit = *said >= '0' && *said <= '9';
        if (!digit || text[at - 1] != '#')
            text[at++] = digit ? '#' : *said;
    }
    text[at] = 0;
    session *s = t->s;
    pthread_mutex_lock(&s->lock);
    t->refused = true;
    int x = 0;
    while (x < s->refusal_count && strcmp(s->refusals[x].text, text) != 0)
        x++;
    if (x < REFUSALS_MAX) {
        s->refusals[x].count++;
        if (x == s->refusal_count) {
            s->refusal_count++;
            memcpy(s->refusals[x].text, text, sizeof text);
            s->refusals[x].first = t->number;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

/* True if a call went well; else it was refused, or has failed. */
static inline bool fine(trial *t, const char *level, ordo_status status)
{
    if (status == ORDO_ERR_UNSUPPORTED)
        refuse(t, level);
    else if (status != ORDO_OK)
        fail(t, level, "%s: %s", ordo_status_name(status), ordo_last_error());
    if (status == ORDO_ERR_DEVICE) { /* nothing works after that */
        fflush(NULL);
        _Exit(1);
    }
    return status == ORDO_OK;
}

static inline void fail_at(trial *t, const char *level, const char *how, const grid_place *at)
{
    fail(t, level, "%s: %s(sequence %d, head %d, row %d, %d) is %#x, in the whole %#x", how,
         grid_tensors[at->tensor].name, (int)at->sequence, (int)at->head, (int)at->row,
         (int)at->column, at->bits, at->expected);
}

/* ---- passes ---- */

/* For --wrong: one bit of o, on the way, of the first row there is. */
static inline void spoil(trial *t, const grid_image *image, const grid_case *c)
{
    for (int64_t b = 0; b < c->problem.batch; b++)
        if (c->q_lens[b] > 0) {
            unsigned char *at =
                image->memory.at + image->at[GRID_O] + grid_at(c, GRID_O, b, 0, 0) + 1;
            unsigned char byte;
            grid_move(&t->lab, &byte, at, 1);
            byte ^= 0x40;
            grid_move(&t->lab, at, &byte, 1);
            return;
        }
}

static inline bool run(trial *t, const char *level, grid_image *image, const grid_case *c,
                       const ordo_plan *plan)
{
    static const int poisons[] = { 0xff, 0, 0xa5 };
    t->passes++;
    pthread_mutex_lock(&t->s->lock);
    t->s->on_device = t->number;
    t->s->level = level;
    t->s->since = seconds_since(&t->s->start);
    pthread_mutex_unlock(&t->s->lock);
    const int poison = poisons[t->passes % 3], threads = 1 + (int)(t->passes % 3);
    if (!fine(t, level, grid_run(&t->lab, image, plan, poison, threads)))
        return false;
    if (t->s->wrong && strcmp(t->s->wrong, level) == 0)
        spoil(t, image, c);
    return true;
}

/* Rows past the end of a padded sequence: o = 0, lse = -inf, gradients 0. */
static inline void check_padding(trial *t, const char *level, const grid_case *c)
{
    for (int tensor = GRID_OUTPUTS; tensor < GRID_TENSORS; tensor++) {
        const bool keys = grid_tensors[tensor].keys;
        const uint32_t expected = tensor == GRID_LSE ? 0xff800000 : 0;
        for (int64_t b = 0; b < c->problem.batch; b++)
            for (int64_t r = grid_length(c, keys, b); r < grid_space(c, keys, b); r++)
                for (int64_t h = 0; h < grid_heads(c, tensor); h++)
                    for (int64_t d = 0; d < grid_dim(c, tensor); d++) {
                        const size_t at = grid_at(c, tensor, b, r, h);
                        const uint32_t bits =
                            grid_bits(c, tensor, at + (size_t)d * grid_width(tensor));
                        if (bits != expected) {
                            const grid_place place = { tensor, b, h, r, d, bits, expected };
                            fail_at(t, level, "padding", &place);
                            return;
                        }
                    }
    }
}

/* A case made from the whole, with the whole's numeric key, run by a plan of its own. */
static inline bool run_other(trial *t, const char *level, const char *how, grid_case *c,
                             ordo_problem *resolved)
{
    ordo_plan *plan = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    const bool ran = fine(t, level, grid_plan(&t->lab, c, 0, ORDO_ISSUE_DEFAULT, &plan)) &&
                     fine(t, level, ordo_plan_query(plan, &info)) &&
                     fine(t, level, ordo_plan_problem(plan, resolved)) &&
                     fine(t, level, grid_load(&t->lab, &t->other, c)) &&
                     run(t, level, &t->other, c, plan);
    const bool alike = !c->mask == !t->c.mask && c->problem.dropout.p == t->c.problem.dropout.p;
    if (ran && alike && strcmp(info.numeric_key, t->info.numeric_key) != 0)
        fail(t, level, "%s: key %s, in the whole %s", how, info.numeric_key, t->info.numeric_key);
    if (ran && !grid_fetch(&t->lab, &t->other, c))
        fail(t, level, "%s: written past the end of an output", how);
    ordo_plan_destroy(plan);
    return ran;
}

/* Part of `from`, which has the case's tensors, has the bits of the whole. */
static inline void check_same_of(trial *t, const char *level, const char *how,
                                 const grid_case *from, grid_part part)
{
    grid_case c;
    ordo_problem resolved = ORDO_PROBLEM_INIT;
    grid_place at;
    grid_part_of(&c, from, &part);
    if (run_other(t, level, how, &c, &resolved)) {
        int64_t sequence, head;
        if (grid_differ(&t->c, &c, &part, &at))
            fail_at(t, level, how, &at);
        else if (!part.tensors && grid_sinks_differ(&t->c, &c, &part, &sequence, &head))
            fail(t, level, "%s: dsink_parts(sequence %d, head %d) has other bits", how,
                 (int)sequence, (int)head);
        else if (!part.tensors && grid_bias_differs(&t->c, &c, &part, 0, 0))
            fail(t, level, "%s: dbias has other bits", how);
        else
            check_padding(t, level, &c);
    }
    grid_close(&c);
}

/* Part of the case, or all of it in another way, has the bits of the whole. */
static inline void check_same(trial *t, const char *level, const char *how, grid_part part)
{
    check_same_of(t, level, how, &t->c, part);
}

#endif
