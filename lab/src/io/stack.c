/* stack.c: Mattson's stack algorithm: the miss curve of fully associative LRU caches of every size,
 * in one pass.
 *
 * The stack distance of an access is the position of its line among all lines in order of last use:
 * a cache of C lines hits if the distance is at most C. Each line has the time slot of its last
 * use, and a bitmap marks the slots that are the last use of some line; the distance is the number
 * of marks from that slot on. Counts of marks over 64, 1024, 16384, ... slots reduce that to a few
 * short sums. When the slots run out, the marked ones are renumbered from 0.
 *
 * Write-backs for every size follow from one more number per line: the smallest cache in which it
 * is dirty. A write sets it to 1; an access at distance s means that caches below s had evicted the
 * line. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "io/cache.h"

enum {
    RADIX_BITS = 4,
    RADIX = 1 << RADIX_BITS, /* counts summed into one of the next level */
    LEVELS = 7,              /* above the bitmap: 64 * 16^6 slots, more than 2^28 */
    FIRST_SLOTS = 1 << 12,
    NEVER = 0
};

typedef struct line_state {
    uint32_t slot;  /* slot of its last use, plus one; or NEVER */
    uint32_t dirty; /* smallest cache, in lines, that holds it dirty; 0 = clean everywhere */
} line_state;

struct ordo_io_stack {
    int shift;
    int64_t lines, scratch, most;
    line_state *state;
    uint32_t *owner; /* line of a slot */
    uint64_t *marks;
    uint32_t *counts[LEVELS]; /* marks in 64 * 16^level slots */
    int levels;               /* number of counts, for the capacity in slots */
    int64_t slots, now, marked;
    int64_t *fills;   /* [s]: reads, and writes of long lines, at distance s; [most + 1]: further */
    int64_t *dirtied; /* running sum at C: write-backs of a cache of C lines */
    int64_t cold;     /* fills of lines never seen before */
    bool failed;
};

/* ---- slots ---- */

static void mark(ordo_io_stack *s, int64_t slot)
{
    s->marks[slot >> 6] |= (uint64_t)1 << (slot & 63);
    for (int level = 0, by = 6; level < s->levels; level++, by += RADIX_BITS)
        s->counts[level][slot >> by]++;
    s->marked++;
}

static void unmark(ordo_io_stack *s, int64_t slot)
{
    s->marks[slot >> 6] &= ~((uint64_t)1 << (slot & 63));
    for (int level = 0, by = 6; level < s->levels; level++, by += RADIX_BITS)
        s->counts[level][slot >> by]--;
    s->marked--;
}

/* Marks at `slot` and after it. */
static int64_t marks_from(const ordo_io_stack *s, int64_t slot)
{
    int64_t sum = __builtin_popcountll(s->marks[slot >> 6] >> (slot & 63));
    for (int level = 0, by = 6; level < s->levels; level++, by += RADIX_BITS) {
        const int64_t index = slot >> by, end = (index | (RADIX - 1)) + 1;
        for (int64_t i = index + 1; i < end; i++)
            sum += s->counts[level][i];
        if (end << by > s->now) /* no later slot is marked */
            break;
    }
    return sum;
}

static void release_slots(ordo_io_stack *s)
{
    free(s->owner);
    free(s->marks);
    for (int level = 0; level < s->levels; level++)
        free(s->counts[level]);
}

/* Allocate `slots`, none of them marked; each level is padded to a multiple of the radix. */
static bool take_slots(ordo_io_stack *s, int64_t slots)
{
    bool complete = true;
    s->slots = slots;
    s->levels = 0;
    s->owner = malloc((size_t)slots * sizeof *s->owner);
    s->marks = calloc((size_t)(slots / 64 + 1), sizeof *s->marks);
    for (int by = 6; slots >> by > 0; by += RADIX_BITS) {
        uint32_t **counts = &s->counts[s->levels++];
        *counts = calloc((size_t)((slots >> by) + 2 * RADIX), sizeof **counts);
        complete = complete && *counts;
    }
    s->now = s->marked = 0;
    return complete && s->owner && s->marks;
}

/* Renumber the marked slots from 0; double the capacity if they fill half of it. */
static void renumber(ordo_io_stack *s)
{
    ordo_io_stack before = *s;
    const int64_t slots = before.marked * 2 > before.slots ? before.slots * 2 : before.slots;
    if (!take_slots(s, slots)) {
        release_slots(s);
        *s = before;
        s->failed = true;
        return;
    }
    for (int64_t slot = 0; slot < before.now; slot++) {
        const uint32_t line = before.owner[slot];
        if (before.state[line].slot != slot + 1)
            continue;
        s->owner[s->now] = line;
        mark(s, s->now++);
        s->state[line].slot = (uint32_t)s->now;
    }
    release_slots(&before);
}

/* ---- accesses ---- */

/* Return the distance of a line, 0 if it is new, and make it the most recently used. */
static int64_t promote(ordo_io_stack *s, uint32_t line)
{
    line_state *state = &s->state[line];
    int64_t distance = 0;
    if (state->slot != NEVER) {
        if (state->slot == s->now)
            return 1;
        distance = marks_from(s, state->slot - 1);
        unmark(s, state->slot - 1);
        state->slot = NEVER; /* so that renumbering does not take it for the last use of the line */
    }
    if (s->now == s->slots)
        renumber(s);
    if (s->failed)
        return 0;
    s->owner[s->now] = line;
    mark(s, s->now++);
    state->slot = (uint32_t)s->now;
    return distance;
}

static int64_t clamp(const ordo_io_stack *s, int64_t distance)
{
    return distance < s->most + 1 ? distance : s->most + 1;
}

static void access_line(ordo_io_stack *s, uint32_t line, unsigned write)
{
    const int64_t distance = promote(s, line);
    line_state *state = &s->state[line];
    if (!write || s->shift > 0) {
        if (distance == 0)
            s->cold++;
        else
            s->fills[clamp(s, distance)]++;
    }
    if (state->dirty && (int64_t)state->dirty < distance) {
        s->dirtied[clamp(s, state->dirty)]++;
        s->dirtied[clamp(s, distance)]--;
        state->dirty = (uint32_t)clamp(s, distance);
    }
    if (write)
        state->dirty = 1;
}

void ordo_io_stack_take(void *stack, const uint32_t *accesses, size_t count)
{
    ordo_io_stack *s = stack;
    const int shift = s->shift + 1;
    for (size_t i = 0; i < count && !s->failed; i++)
        access_line(s, accesses[i] >> shift, accesses[i] & 1);
}

/* ---- */

ordo_status ordo_io_stack_create(ordo_io_stack **stack, ordo_io_extent memory, int64_t line,
                                 int64_t most)
{
    enum { LONGEST_LINE = 64 };
    if (line < 1 || line > LONGEST_LINE || (line & (line - 1)) != 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "line %" PRId64 ": expected a power of two, 1 to %d",
                         line, LONGEST_LINE);
    ordo_io_stack *s = calloc(1, sizeof *s);
    *stack = s;
    if (!s)
        return ordo_fail(ORDO_ERR_MEMORY, "stack: out of memory");
    while ((int64_t)1 << s->shift < line)
        s->shift++;
    s->lines = (memory.words + line - 1) / line;
    s->scratch = memory.scratch / line;
    s->most = most;
    s->state = calloc((size_t)s->lines, sizeof *s->state);
    s->fills = calloc((size_t)most + 2, sizeof *s->fills);
    s->dirtied = calloc((size_t)most + 2, sizeof *s->dirtied);
    if (!s->state || !s->fills || !s->dirtied || !take_slots(s, FIRST_SLOTS))
        return ordo_fail(ORDO_ERR_MEMORY, "stack: out of memory");
    return ORDO_OK;
}

void ordo_io_stack_destroy(ordo_io_stack *s)
{
    if (!s)
        return;
    release_slots(s);
    free(s->state);
    free(s->fills);
    free(s->dirtied);
    free(s);
}

ordo_status ordo_io_stack_finish(ordo_io_stack *s, ordo_io_words *curve)
{
    if (s->failed)
        return ordo_fail(ORDO_ERR_MEMORY, "stack: out of memory");
    for (int64_t line = 0; line < s->lines; line++) {
        const line_state *state = &s->state[line];
        if (!state->dirty)
            continue;
        const int64_t place = marks_from(s, state->slot - 1);
        if (line < s->scratch) {
            s->dirtied[clamp(s, state->dirty)]++;
        } else if (state->dirty < place) { /* caches too small for it evicted it before the end */
            s->dirtied[clamp(s, state->dirty)]++;
            s->dirtied[clamp(s, place)]--;
        }
    }
    int64_t missed = s->cold, written = 0;
    for (int64_t d = 1; d <= s->most + 1; d++)
        missed += s->fills[d];
    for (int64_t c = 1; c <= s->most; c++) {
        missed -= s->fills[c];
        written += s->dirtied[c];
        curve[c - 1] =
            (ordo_io_words) { missed << s->shift, written << s->shift, c << s->shift, 0 };
    }
    return ORDO_OK;
}
