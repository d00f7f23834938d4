/* overlap.c: whether two strided tensors share a byte.
 *
 * Byte x of a is byte y of b when  sum a_i x_i - sum b_i y_i = address(b) - address(a)  with
 * each index in its range. Axes of equal stride merge into one term with a wider range; the
 * search then fixes terms from the largest stride down. What the smaller terms can still reach
 * bounds each choice, so for nested strides two or three values survive a level. */
#include "api/overlap.h"

enum { TERMS = 2 * (ORDO_AXES + 1), BUDGET = 100000 };

typedef struct term {
    int64_t stride, low, high; /* contributes stride * x for low <= x <= high */
} term;

typedef struct search {
    term terms[TERMS];
    int count, budget;
    int64_t least[TERMS + 1], most[TERMS + 1]; /* reach of the terms from here on */
} search;

bool ordo_extent_bytes(const ordo_extent *x, int64_t *bytes)
{
    int64_t total = x->width;
    for (int i = 0; i < ORDO_AXES; i++) {
        int64_t span;
        if (__builtin_mul_overflow(x->size[i] - 1, x->stride[i], &span) ||
            __builtin_add_overflow(total, span, &total) || total >= INT64_C(1) << 62)
            return false;
    }
    *bytes = total;
    return true;
}

bool ordo_extent_nests(const ordo_extent *x)
{
    int64_t reach = x->width; /* bytes that the axes seen so far span */
    bool seen[ORDO_AXES] = { false };
    for (int round = 0; round < ORDO_AXES; round++) {
        int next = -1;
        for (int i = 0; i < ORDO_AXES; i++)
            if (!seen[i] && x->size[i] > 1 && (next < 0 || x->stride[i] < x->stride[next]))
                next = i;
        if (next < 0)
            break;
        if (x->stride[next] < reach)
            return false;
        seen[next] = true;
        reach += (x->size[next] - 1) * x->stride[next];
    }
    return true;
}

/* Terms stay sorted, largest stride first; equal strides add their ranges. */
static void insert(search *s, int64_t stride, int64_t low, int64_t high)
{
    if ((low == 0 && high == 0) || stride == 0)
        return;
    int at = 0;
    while (at < s->count && s->terms[at].stride > stride)
        at++;
    if (at < s->count && s->terms[at].stride == stride) {
        s->terms[at].low += low;
        s->terms[at].high += high;
        return;
    }
    for (int i = s->count++; i > at; i--)
        s->terms[i] = s->terms[i - 1];
    s->terms[at] = (term) { stride, low, high };
}

static int64_t floor_div(int64_t a, int64_t b) /* b > 0 */
{
    return a / b - (a % b < 0);
}

/* Whether terms[at..] can add up to `target`. */
static bool reaches(search *s, int at, int64_t target)
{
    if (target < s->least[at] || target > s->most[at])
        return false;
    if (at == s->count)
        return true; /* target is 0 */
    if (s->budget-- <= 0)
        return true; /* not ruled out */

    const term *t = &s->terms[at];
    int64_t first = -floor_div(s->most[at + 1] - target, t->stride); /* rounds up */
    int64_t last = floor_div(target - s->least[at + 1], t->stride);
    first = first > t->low ? first : t->low;
    last = last < t->high ? last : t->high;
    for (int64_t x = first; x <= last; x++)
        if (reaches(s, at + 1, target - x * t->stride))
            return true;
    return false;
}

bool ordo_extent_overlap(const ordo_extent *a, const ordo_extent *b)
{
    int64_t a_bytes, b_bytes;
    if (!ordo_extent_bytes(a, &a_bytes) || !ordo_extent_bytes(b, &b_bytes))
        return true;
    if (a->address < b->address ? b->address - a->address >= (uint64_t)a_bytes
                                : a->address - b->address >= (uint64_t)b_bytes)
        return false; /* one ends before the other begins: nearly always */

    search s = { .budget = BUDGET };
    insert(&s, 1, 0, a->width - 1);
    insert(&s, 1, 1 - b->width, 0);
    for (int i = 0; i < ORDO_AXES; i++) {
        insert(&s, a->stride[i], 0, a->size[i] - 1);
        insert(&s, b->stride[i], 1 - b->size[i], 0);
    }
    for (int i = s.count - 1; i >= 0; i--) {
        s.least[i] = s.least[i + 1] + s.terms[i].stride * s.terms[i].low;
        s.most[i] = s.most[i + 1] + s.terms[i].stride * s.terms[i].high;
    }
    return reaches(&s, 0, (int64_t)(b->address - a->address));
}
