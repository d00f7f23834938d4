/* barrier_model.h: blocks of a kernel as warps that wait for barriers, in random interleavings.
 *
 * A kernel is data (barrier_kernels.h): its mbarriers, and one short program per role. One schedule
 * draws units of work and their steps, then lets a warp or a copy that can go on do so, drawn each
 * time, until all programs have ended. It has failed if
 *
 *   hang      no warp can go on, no copy is under way, and a program has not ended
 *   wrong     a warp has passed a full barrier, or arrives at an empty one, and the buffer does not
 *             hold what it was loaded for: overwritten too soon, or not there yet
 *   arrivals  a warp arrives at an mbarrier whose arrivals of this use are complete, or twice at
 *             a named barrier before that was passed
 *
 * Rules of the hardware: a use of an mbarrier ends with its last arrival and its last byte, and a
 * wait for parity p passes while the parity of the current use is not p. Copies end in any order.
 * Stage and parity of use n of a barrier with s stages are n % s and n / s % 2; a wait for "empty"
 * takes the other parity, so that it passes at first. */
#ifndef TESTS_CUDA_BARRIER_MODEL_H
#define TESTS_CUDA_BARRIER_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    MODEL_BARRIERS = 20,
    MODEL_STAGES = 17, /* a planted fault has one more than a kernel */
    MODEL_NAMED = 12,
    MODEL_WARPS = 32, /* in all blocks; a mask of them has 32 bits */
    MODEL_BLOCKS = 2,
    MODEL_ROLES = 6,
    MODEL_UNITS = 6, /* most of one schedule */
    MODEL_STEPS = 12,
    MODEL_COPIES = 64
};

typedef enum model_op {
    M_STOP,
    M_WAIT_FULL,  /* barrier, offset: of use counter + offset */
    M_WAIT_EMPTY, /* barrier, offset */
    M_ARRIVE,     /* barrier, offset: all that was read of it has been used */
    M_READ,       /* barrier, offset: the buffer is used once more */
    M_EXPECT,     /* barrier, offset: announce a copy, and arrive */
    M_COPY,       /* barrier, offset: begin it; it completes the use later */
    M_STORE,      /* barrier, offset: write by this warp, and arrive */
    M_SYNC,       /* named barrier, which, warps */
    M_PASS,       /* the same, without waiting */
    M_UNITS,      /* this block's units, up to M_UNITS_END */
    M_UNITS_END,
    M_STEPS, /* steps of the unit, up to M_STEPS_END */
    M_STEPS_END,
    M_MORE, /* all but the last step, up to M_MORE_END, which goes on to the next */
    M_MORE_END,
    M_ALL_STEPS, /* every `barrier`th step of the block, from the role's own number on */
    M_ALL_STEPS_END,
    M_NEXT, /* step */
    M_IF,   /* condition in `barrier`, up to M_END */
    M_END,
    M_TURN_WAIT, /* for the unit's turn at the step's tile, over all blocks */
    M_TURN_PASS
} model_op;

typedef enum model_if {
    IF_FIRST,
    IF_NOT_FIRST,
    IF_LAST,
    IF_NOT_LAST,
    IF_NEXT_IS_LAST,
    IF_BEFORE, /* the steps that this warpgroup sees: passed on, */
    IF_BEGIN,  /* the first, */
    IF_WITHIN, /* after it, up to the last, */
    IF_CLOSE,  /* the last, */
    IF_BEHIND  /* passed on again */
} model_if;

/* Which named barrier: the number in `barrier`, and of the warpgroup `mine` and step j */
typedef enum model_which {
    PLAIN,
    MINE,         /* + mine */
    OTHER,        /* + 1 - mine */
    STAGE_MINE,   /* + 2 (j % 2) + mine */
    STAGE_OTHER,  /* + 2 (j % 2) + 1 - mine */
    BEFORE_MINE,  /* + 2 ((j + 1) % 2) + mine */
    BEFORE_OTHER, /* + 2 ((j + 1) % 2) + 1 - mine */
    ZEROTH        /* by warpgroup 0 alone */
} model_which;

typedef struct model_instruction {
    model_op op;
    int barrier, offset, warps;
    int flipped, more; /* planted faults: the other parity, a stage more */
    int pair;          /* the other end of a loop or condition; model_open() finds it */
} model_instruction;

typedef struct model_barrier {
    const char *name;
    int stages, arrivals;
    bool by_unit; /* uses are counted by units, else by steps */
    int of;       /* an empty barrier: the full one of the same buffer, or -1 */
} model_barrier;

typedef struct model_role {
    const char *name;
    int warps, mine; /* mine: its warpgroup, or its number among its like */
    model_instruction program[64];
} model_role;

typedef struct model_kernel {
    const char *name;
    int blocks; /* most that take turns with each other */
    model_barrier barriers[MODEL_BARRIERS];
    model_role roles[MODEL_ROLES];
} model_kernel;

/* ---- state ---- */

typedef struct model_warp {
    const model_role *role;
    int block, pc;
    int unit, step, in_unit; /* counters: units and steps of the block so far, steps of the unit */
} model_warp;

typedef struct model_use {
    int left, bytes; /* arrivals and copies that this use still waits for */
    int parity;
    uint32_t waiting;
} model_use;

typedef struct model_named {
    int arrived;
    uint32_t passed, waiting;
} model_named;

typedef struct model_copy {
    int block, barrier, use;
} model_copy;

typedef struct model {
    model_kernel kernel[1]; /* a copy: faults are planted in it */
    uint64_t random;
    int units[MODEL_BLOCKS], steps[MODEL_BLOCKS][MODEL_UNITS], all[MODEL_BLOCKS];
    int ticket[MODEL_BLOCKS][MODEL_UNITS];    /* counted over all blocks */
    int begins[MODEL_BLOCKS][MODEL_UNITS][2]; /* the first step that each warpgroup sees, */
    int closes[MODEL_BLOCKS][MODEL_UNITS][2]; /* and the last */
    int turn_of[MODEL_BLOCKS * MODEL_UNITS][MODEL_STEPS]; /* by ticket and tile */
    int turns[MODEL_STEPS];
    int warps, copies;
    model_warp warp[MODEL_WARPS];
    uint32_t ready, ended, turning;
    model_use uses[MODEL_BLOCKS][MODEL_BARRIERS][MODEL_STAGES];
    int buffers[MODEL_BARRIERS]; /* that exist, whatever stages a planted fault makes of them */
    int holds[MODEL_BLOCKS][MODEL_BARRIERS][MODEL_STAGES]; /* the use whose data is there; -1: none,
                                                              or on its way */
    model_named named[MODEL_BLOCKS][MODEL_NAMED];
    model_copy copy[MODEL_COPIES];
    char why[200];
} model;

static inline uint32_t model_draw(model *m, uint32_t below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (uint32_t)(((m->random >> 32) * below) >> 32);
}

static inline bool model_fail(model *m, const model_warp *w, const char *what, const char *barrier,
                              int use)
{
    if (m->why[0] == '\0')
        (void)snprintf(m->why, sizeof m->why, "%s: %s, block %d, instruction %d: %s of %s, use %d",
                       m->kernel->name, w->role->name, w->block, w->pc, what, barrier, use);
    return false;
}

/* ---- barriers ---- */

static inline int model_stage(int use, int stages)
{
    return stages == 2 ? use & 1 : stages == 1 ? 0 : use % stages;
}

static inline model_use *model_use_of(model *m, int block, int barrier, int use, int more)
{
    return &m->uses[block][barrier][model_stage(use, m->kernel->barriers[barrier].stages + more)];
}

static inline int *model_holds(model *m, int block, int barrier, int use)
{
    return &m->holds[block][barrier][model_stage(use, m->buffers[barrier])];
}

static inline void model_complete(model *m, int barrier, model_use *p)
{
    if (p->left > 0 || p->bytes > 0)
        return;
    p->left = m->kernel->barriers[barrier].arrivals;
    p->parity ^= 1;
    m->ready |= p->waiting;
    p->waiting = 0;
}

static inline bool model_arrive(model *m, model_warp *w, int barrier, int use)
{
    const model_barrier *const b = &m->kernel->barriers[barrier];
    model_use *const p = model_use_of(m, w->block, barrier, use, 0);
    if (p->left == 0)
        return model_fail(m, w, "arrivals", b->name, use);
    if (b->of >= 0 && *model_holds(m, w->block, b->of, use) != use)
        return model_fail(m, w, "wrong buffer at the arrival", b->name, use);
    p->left--;
    model_complete(m, barrier, p);
    return true;
}

/* Whether the wait passes; *failed if it does and should not. */
static inline bool model_wait(model *m, model_warp *w, uint32_t self, const model_instruction *x,
                              int use, bool *failed)
{
    const model_barrier *const b = &m->kernel->barriers[x->barrier];
    model_use *const p = model_use_of(m, w->block, x->barrier, use, x->more);
    const bool full = x->op == M_WAIT_FULL;
    const int stages = b->stages + x->more;
    const int round = stages == 2 ? use >> 1 : stages == 1 ? use : use / stages;
    const int parity = (round + !full + x->flipped) & 1;
    if (p->parity == parity) {
        p->waiting |= self;
        m->ready &= ~self;
        return false;
    }
    if (full && *model_holds(m, w->block, x->barrier, use) != use)
        *failed = !model_fail(m, w, "wrong buffer behind the wait", b->name, use);
    return true;
}

static inline int model_named_of(const model_warp *w, const model_instruction *x)
{
    const int mine = w->role->mine, stage = w->step & 1;
    switch ((model_which)x->offset) {
    case MINE: return x->barrier + mine;
    case OTHER: return x->barrier + 1 - mine;
    case STAGE_MINE: return x->barrier + 2 * stage + mine;
    case STAGE_OTHER: return x->barrier + 2 * stage + 1 - mine;
    case BEFORE_MINE: return x->barrier + 2 * (1 - stage) + mine;
    case BEFORE_OTHER: return x->barrier + 2 * (1 - stage) + 1 - mine;
    case PLAIN:
    case ZEROTH: break;
    }
    return x->barrier;
}

/* Arrives at a named barrier; a warp that waits becomes ready again when it is passed. */
static inline bool model_meet(model *m, model_warp *w, uint32_t self, const model_instruction *x)
{
    model_named *const n = &m->named[w->block][model_named_of(w, x)];
    if (x->op == M_PASS) {
        if (n->passed & self)
            return model_fail(m, w, "second arrival before it was passed", "a named barrier",
                              model_named_of(w, x));
        n->passed |= self;
    } else {
        n->waiting |= self;
        m->ready &= ~self;
    }
    if (++n->arrived == x->warps) {
        m->ready |= n->waiting;
        *n = (model_named) { 0 };
    }
    return true;
}

/* ---- programs ---- */

static inline bool model_true(const model *m, const model_warp *w, model_if condition)
{
    const int last = m->steps[w->block][w->unit] - 1, mine = w->role->mine & 1;
    const int begin = m->begins[w->block][w->unit][mine],
              close = m->closes[w->block][w->unit][mine];
    switch (condition) {
    case IF_FIRST: return w->in_unit == 0;
    case IF_NOT_FIRST: return w->in_unit != 0;
    case IF_LAST: return w->in_unit == last;
    case IF_NOT_LAST: return w->in_unit != last;
    case IF_NEXT_IS_LAST: return w->in_unit + 1 == last;
    case IF_BEFORE: return w->in_unit < begin;
    case IF_BEGIN: return w->in_unit == begin;
    case IF_WITHIN: return w->in_unit > begin && w->in_unit <= close;
    case IF_CLOSE: return w->in_unit == close;
    case IF_BEHIND: return w->in_unit > close;
    }
    return false;
}

/* The unit and its step of step number `step` of a block. */
static inline void model_locate(const model *m, model_warp *w)
{
    for (w->unit = 0, w->in_unit = w->step;
         w->unit < m->units[w->block] && w->in_unit >= m->steps[w->block][w->unit]; w->unit++)
        w->in_unit -= m->steps[w->block][w->unit];
}

/* One instruction. False: the schedule has failed. */
static inline bool model_step(model *m, int number)
{
    model_warp *const w = &m->warp[number];
    const uint32_t self = 1u << number;
    const model_instruction *const program = w->role->program, *const x = &program[w->pc];
    const bool counted = x->op >= M_WAIT_FULL && x->op <= M_STORE;
    const int use =
        counted ? (m->kernel->barriers[x->barrier].by_unit ? w->unit : w->step) + x->offset : 0;
    bool failed = false;
    switch (x->op) {
    case M_STOP:
        m->ended |= self;
        m->ready &= ~self;
        return true;
    case M_WAIT_FULL:
    case M_WAIT_EMPTY:
        if (!model_wait(m, w, self, x, use, &failed))
            return true;
        break;
    case M_ARRIVE:
        if (!model_arrive(m, w, x->barrier, use))
            return false;
        break;
    case M_READ:
        if (*model_holds(m, w->block, x->barrier, use) != use)
            return model_fail(m, w, "wrong buffer at a read", m->kernel->barriers[x->barrier].name,
                              use);
        break;
    case M_EXPECT:
        model_use_of(m, w->block, x->barrier, use, 0)->bytes++;
        if (!model_arrive(m, w, x->barrier, use))
            return false;
        break;
    case M_COPY:
        *model_holds(m, w->block, x->barrier, use) = -1;
        m->copy[m->copies++] = (model_copy) { w->block, x->barrier, use };
        break;
    case M_STORE:
        *model_holds(m, w->block, x->barrier, use) = use;
        if (!model_arrive(m, w, x->barrier, use))
            return false;
        break;
    case M_SYNC:
    case M_PASS:
        if ((x->offset != ZEROTH || w->role->mine == 0) && !model_meet(m, w, self, x))
            return false;
        break;
    case M_UNITS:
        w->in_unit = 0;
        if (w->unit >= m->units[w->block])
            w->pc = x->pair;
        break;
    case M_UNITS_END:
        w->unit++;
        w->in_unit = 0;
        w->pc = x->pair - 1;
        break;
    case M_STEPS: break;
    case M_STEPS_END:
        w->step++;
        if (++w->in_unit < m->steps[w->block][w->unit])
            w->pc = x->pair;
        break;
    case M_MORE:
        if (w->in_unit >= m->steps[w->block][w->unit] - 1)
            w->pc = x->pair;
        break;
    case M_MORE_END:
        w->step++;
        w->in_unit++;
        w->pc = x->pair - 1;
        break;
    case M_ALL_STEPS:
        if (w->step < w->role->mine)
            w->step = w->role->mine;
        model_locate(m, w);
        if (w->step >= m->all[w->block])
            w->pc = x->pair;
        break;
    case M_ALL_STEPS_END:
        w->step += program[x->pair].barrier;
        w->pc = x->pair - 1;
        break;
    case M_NEXT:
        w->step++;
        w->in_unit++;
        break;
    case M_IF:
        if (!model_true(m, w, (model_if)x->barrier))
            w->pc = x->pair;
        break;
    case M_END: break;
    case M_TURN_WAIT:
        if (m->turns[w->in_unit] != m->turn_of[m->ticket[w->block][w->unit]][w->in_unit]) {
            m->turning |= self;
            m->ready &= ~self;
            return true;
        }
        break;
    case M_TURN_PASS:
        m->turns[w->in_unit]++;
        m->ready |= m->turning;
        m->turning = 0;
        break;
    }
    w->pc++;
    return !failed;
}

/* ---- schedules ---- */

static inline bool model_opens(model_op op)
{
    return op == M_UNITS || op == M_STEPS || op == M_MORE || op == M_ALL_STEPS || op == M_IF;
}

static inline bool model_closes(model_op op)
{
    return op == M_UNITS_END || op == M_STEPS_END || op == M_MORE_END || op == M_ALL_STEPS_END ||
           op == M_END;
}

/* A warpgroup has four warps; halved, two, with half of their arrivals: that is faster. */
static inline void model_halve(model_kernel *kernel)
{
    for (int x = 0; x < MODEL_BARRIERS; x++)
        if (kernel->barriers[x].arrivals >= 4)
            kernel->barriers[x].arrivals -= kernel->barriers[x].arrivals / 4 * 2;
    for (int r = 0; r < MODEL_ROLES && kernel->roles[r].name; r++) {
        model_instruction *const program = kernel->roles[r].program;
        if (kernel->roles[r].warps == 4)
            kernel->roles[r].warps = 2;
        for (int pc = 0; program[pc].op != M_STOP; pc++)
            program[pc].warps -= program[pc].warps / 2; /* those that meet at a named barrier */
    }
}

static inline void model_open(model *m, const model_kernel *kernel, bool halved, uint64_t seed)
{
    *m->kernel = *kernel;
    m->random = seed * 2 + 1;
    if (halved)
        model_halve(m->kernel);
    for (int x = 0; x < MODEL_BARRIERS; x++)
        m->buffers[x] = kernel->barriers[x].stages;
    for (int r = 0; r < MODEL_ROLES && m->kernel->roles[r].name; r++) {
        model_instruction *const program = m->kernel->roles[r].program;
        int open[8], depth = 0;
        for (int pc = 0; program[pc].op != M_STOP; pc++) {
            if (model_opens(program[pc].op)) {
                open[depth++] = pc;
            } else if (model_closes(program[pc].op)) {
                program[pc].pair = open[--depth];
                program[program[pc].pair].pair = pc;
            }
        }
    }
}

/* Units and steps: mostly few, now and then so many that every ring of stages comes round. */
static inline void model_problem(model *m, int blocks)
{
    const bool many = model_draw(m, 64) == 0;
    const int units = (int)model_draw(m, many ? MODEL_UNITS : 3);
    memset(m->units, 0, sizeof m->units);
    memset(m->all, 0, sizeof m->all);
    memset(m->turns, 0, sizeof m->turns);
    int visits[MODEL_STEPS] = { 0 };
    for (int t = 0; t < units; t++) {
        const int b = (int)model_draw(m, (uint32_t)blocks), u = m->units[b]++;
        const int steps = 1 + (int)model_draw(m, many ? MODEL_STEPS : 3);
        m->steps[b][u] = steps;
        m->all[b] += steps;
        m->ticket[b][u] = t;
        for (int k = 0; k < steps; k++)
            m->turn_of[t][k] = visits[k]++;
        for (int g = 0; g < 2; g++) {
            m->begins[b][u][g] = (int)model_draw(m, (uint32_t)steps);
            m->closes[b][u][g] =
                m->begins[b][u][g] + (int)model_draw(m, (uint32_t)(steps - m->begins[b][u][g]));
        }
    }
    for (int b = 0; b < blocks; b++) { /* conditions behind the last unit are false */
        const int u = m->units[b];
        if (u < MODEL_UNITS) {
            m->steps[b][u] = 0;
            m->begins[b][u][0] = m->begins[b][u][1] = m->closes[b][u][0] = m->closes[b][u][1] = 0;
        }
    }
}

static inline void model_begin(model *m, int blocks)
{
    m->warps = m->copies = 0;
    m->ready = m->ended = m->turning = 0;
    m->why[0] = '\0';
    for (int b = 0; b < blocks; b++) {
        memset(m->named[b], 0, sizeof m->named[b]);
        for (int x = 0; x < MODEL_BARRIERS && m->kernel->barriers[x].name; x++)
            for (int s = 0; s <= m->kernel->barriers[x].stages; s++) {
                m->uses[b][x][s] = (model_use) { m->kernel->barriers[x].arrivals, 0, 0, 0 };
                m->holds[b][x][s] = -1;
            }
        for (int r = 0; r < MODEL_ROLES && m->kernel->roles[r].name; r++)
            for (int n = 0; n < m->kernel->roles[r].warps; n++) {
                m->warp[m->warps] = (model_warp) { &m->kernel->roles[r], b, 0, 0, 0, 0 };
                m->ready |= 1u << m->warps++;
            }
    }
}

static inline int model_bit(uint32_t mask,
                            uint32_t which) /* number of the which-th bit that is set */
{
    for (; which > 0; which--)
        mask &= mask - 1;
    return __builtin_ctz(mask);
}

/* Runs one schedule; false, and why, if it failed. */
static inline bool model_run(model *m)
{
    const int blocks =
        m->kernel->blocks > 1 ? 1 + (int)model_draw(m, (uint32_t)m->kernel->blocks) : 1;
    model_problem(m, blocks);
    model_begin(m, blocks);
    const uint32_t everyone = m->warps == 32 ? ~0u : (1u << m->warps) - 1;
    while (m->ended != everyone) {
        const uint32_t warps = (uint32_t)__builtin_popcount(m->ready), copies = (uint32_t)m->copies;
        if (warps + copies == 0) {
            const int number = __builtin_ctz(everyone & ~m->ended);
            const model_warp *const w = &m->warp[number];
            const model_instruction *const x = &w->role->program[w->pc];
            return model_fail(m, w, "a wait without an end",
                              x->op <= M_STORE ? m->kernel->barriers[x->barrier].name
                                               : "a named barrier",
                              w->step);
        }
        const uint32_t pick = model_draw(m, warps + copies);
        if (pick >= warps) {
            const model_copy c = m->copy[pick - warps];
            model_use *const p = model_use_of(m, c.block, c.barrier, c.use, 0);
            m->copy[pick - warps] = m->copy[--m->copies];
            *model_holds(m, c.block, c.barrier, c.use) = c.use;
            p->bytes--;
            model_complete(m, c.barrier, p);
            continue;
        }
        const int number = model_bit(m->ready, pick);
        /* A stretch of random length, so that warps run far ahead of others, too. */
        for (uint32_t left = 1 + model_draw(m, 8); left > 0 && m->ready >> number & 1; left--)
            if (!model_step(m, number))
                return false;
    }
    return true;
}

#endif
