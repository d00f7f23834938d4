/* guard_test.c: the CPU backend and the oracle touch nothing behind their arguments. Every array of
 * a call ends where its memory does, and the page after it can be neither read nor written: an
 * access past the end ends the program. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <sys/mman.h>
#include <unistd.h>

#include "attention_case.h"

/* Memory whose last byte is the last before a page that nobody may touch. */
typedef struct guarded {
    char *pages;
    size_t bytes; /* size of the mapping */
    void *place;  /* the pointer that leads here for now */
    void *usual;  /* and what it was before */
} guarded;

enum { MOST = 20 };
typedef struct guards {
    guarded of[MOST];
    int count;
} guards;

/* Move the `bytes` that the pointer at `place` leads to in front of such a page; NULL stays. */
static void guard(guards *all, void *place, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (bytes + page - 1) / page * page;
    void *usual;
    memcpy(&usual, place, sizeof usual);
    if (!usual)
        return;
    char *pages =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + room, page, PROT_NONE) != 0 || all->count == MOST)
        abort();
    all->of[all->count++] = (guarded) { pages, room + page, place, usual };
    void *const now = memcpy(pages + room - bytes, usual, bytes);
    memcpy(place, &now, sizeof now);
}

static void unguard(guards *all)
{
    for (int x = 0; x < all->count; x++) {
        memcpy(all->of[x].place, &all->of[x].usual, sizeof(void *));
        munmap(all->of[x].pages, all->of[x].bytes);
    }
    all->count = 0;
}

static int64_t bit_words(const attention_case *c)
{
    int64_t blocks = 0;
    for (int64_t b = 0; b < c->problem.batch; b++)
        blocks +=
            c->problem.heads * ordo_keep_blocks(case_space(c, false, b), case_space(c, true, b));
    return blocks * ORDO_KEEP_WORDS;
}

static void guard_call(guards *all, attention_case *c)
{
    const size_t width = case_width(c), batch = (size_t)c->problem.batch;
    const size_t slopes =
        (size_t)c->problem.heads * (c->call.slopes_batch_stride ? (size_t)c->problem.batch : 1);
    const struct {
        void *place; /* a pointer of the call */
        size_t bytes;
    } arrays[] = {
        { &c->call.q.data, c->q_count * width },
        { &c->call.k.data, c->k_count * width },
        { &c->call.v.data, c->v_count * width },
        { &c->call.o.data, c->o_count * width },
        { &c->call.dout.data, c->o_count * width },
        { &c->call.dq.data, c->q_count * width },
        { &c->call.dk.data, c->k_count * width },
        { &c->call.dv.data, c->v_count * width },
        { &c->call.lse, c->lse_count * 4 },
        { &c->call.dlse, c->lse_count * 4 },
        { &c->call.cu_q, (batch + 1) * 4 },
        { &c->call.cu_kv, (batch + 1) * 4 },
        { &c->call.q_lens, batch * 4 },
        { &c->call.kv_lens, batch * 4 },
        { &c->call.sequence_ids, batch * 8 },
        { &c->call.slopes, slopes * 4 },
        { &c->call.keep_bits, (size_t)bit_words(c) * 4 },
    };
    for (size_t x = 0; x < sizeof arrays / sizeof arrays[0]; x++)
        guard(all, arrays[x].place, arrays[x].bytes);
}

/* Run with a plan on 1 .. 4 threads, each with the bits of the run without guards. */
static void run_guarded(attention_case *c, ordo_plan *plan)
{
    guards all = { .count = 0 };
    case_results one = case_first(c, plan, 1);
    guard_call(&all, c);
    for (int threads = 1; threads <= 4; threads++) {
        case_again(c, plan, threads, &one, "guarded arguments");
    }
    unguard(&all);
    case_drop(&one);
    ordo_plan_destroy(plan);
}

/* Where threads share a chain, the last key tile leaves some of them no column: their first one is
 * then past the last block of bits. */
TEST(given_bits_where_threads_share_chains)
{
    static const int tiles[] = { 64, 100, 128, 200, 256, 300 }, lengths[] = { 10, 130, 257, 310 };
    uint64_t seed = case_seed(80);
    for (int t = 0; t < 6; t++)
        for (int l = 0; l < 4; l++)
            for (int layout = 0; layout < 3; layout++) {
                attention_case c = { .problem = ORDO_PROBLEM_INIT };
                ordo_problem *p = &c.problem;
                p->layout = (ordo_layout)layout;
                p->batch = p->heads = p->kv_heads = 1;
                p->q_len = 40;
                p->kv_len = lengths[l];
                p->head_dim = p->v_head_dim = 8;
                p->mask = (ordo_mask)(l % 3);
                p->dropout.p = 0.3;
                c.q_lens[0] = c.cu_q[1] = 40;
                c.kv_lens[0] = c.cu_kv[1] = lengths[l];
                if (p->layout == ORDO_PACKED) {
                    p->total_q = p->q_len;
                    p->total_kv = p->kv_len;
                }
                case_open(&c, 81);
                case_store_bits(&c, &seed);
                ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
                options.backward_tile = (ordo_tile) { 32, tiles[t] };
                run_guarded(&c, case_plan(&c, &options));
                case_close(&c);
            }
}

TEST(any_problem)
{
    uint64_t seed = case_seed(82);
    for (int trial = 0; trial < 60; trial++) {
        attention_case c;
        case_random(&c, &seed, trial % 8 ? 60 : 300);
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        if (trial % 2)
            options.backward_tile = options.forward_tile =
                (ordo_tile) { check_between(&seed, 1, 70), check_between(&seed, 1, 320) };
        run_guarded(&c, case_plan(&c, &options));
        case_close(&c);
    }
}

TEST(the_oracle)
{
    uint64_t seed = case_seed(83);
    for (int trial = 0; trial < 20; trial++) {
        attention_case c;
        guards all = { .count = 0 };
        case_random(&c, &seed, 40);
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        options.backend = ORDO_BACKEND_REF;
        ordo_plan *plan = NULL;
        CHECK(ordo_plan_create(&plan, &c.problem, NULL, &options) == ORDO_OK);
        guard_call(&all, &c);
        CHECK(case_run(&c, plan, 1) == ORDO_OK);
        unguard(&all);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN()
