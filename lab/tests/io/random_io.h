/* random_io.h: random problems of the I/O model, and what must hold of every run. */
#ifndef TESTS_IO_RANDOM_IO_H
#define TESTS_IO_RANDOM_IO_H

#include "check.h"
#include "ordo/lab/io.h"

enum { IO_BLOCKS = 64 * 64 };

typedef struct io_case {
    ordo_io_problem problem;
    uint8_t blocks[IO_BLOCKS];
} io_case;

/* One head of n rows and columns, head size d, m words of fast memory. */
static inline ordo_io_problem io_attention(ordo_io_pass pass, int64_t n, int64_t d, int64_t m)
{
    ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
    p.pass = pass;
    p.q_len = n;
    p.head_dim = d;
    p.cache_words = m;
    return p;
}

/* Rows and columns up to `longest`, head sizes up to `widest`; masks, windows, blocks, dropout,
 * groups and unequal sizes, each in a part of the cases. */
static inline void io_random_case(io_case *c, uint64_t *random, int64_t longest, int64_t widest)
{
    ordo_io_problem *p = &c->problem;
    memset(c, 0, sizeof *c);
    p->size = sizeof *p;
    p->q_len = check_between(random, 1, longest);
    p->kv_len = check_between(random, 0, 2) ? p->q_len : check_between(random, 1, longest);
    p->head_dim = check_between(random, 1, widest);
    p->v_head_dim = check_between(random, 0, 2) ? p->head_dim : check_between(random, 1, widest);
    p->kv_heads = check_between(random, 1, 2);
    p->heads = p->kv_heads * (check_between(random, 0, 2) ? 1 : check_between(random, 2, 3));
    p->mask = (ordo_mask)check_between(random, 0, 2);
    p->window.on = check_between(random, 0, 3) == 0;
    p->window.left = check_between(random, -1, p->kv_len);
    p->window.right = check_between(random, -1, p->kv_len);
    if (check_between(random, 0, 3) == 0) {
        p->block_q = check_between(random, 1 + p->q_len / 32, 1 + p->q_len);
        p->block_k = check_between(random, 1 + p->kv_len / 32, 1 + p->kv_len);
        p->blocks = c->blocks;
        for (int i = 0; i < IO_BLOCKS; i++)
            c->blocks[i] = check_between(random, 0, 2) > 0;
    }
    p->dropout_p = check_between(random, 0, 1) ? 0 : 0.25;
    p->seed = check_random(random);
    p->strip = check_between(random, 1, 4);
    const double d = (double)(p->head_dim + p->v_head_dim) / 2;
    p->cache_words = (int64_t)(d * d * exp2(3 * check_uniform(random)));
    p->cache_words = p->cache_words < 24 ? 24 : p->cache_words;
    if (check_between(random, 0, 1))
        p->workspace_words =
            2 * p->kv_len * check_between(random, 1, p->q_len * p->heads / p->kv_heads);
}

static inline void io_describe(const ordo_io_problem *p, ordo_io_algorithm a)
{
    printf("    %s %s q %" PRId64 " kv %" PRId64 " dk %" PRId64 " dv %" PRId64 " heads %" PRId64
           "/%" PRId64 " mask %d window %d %" PRId64 ",%" PRId64 " blocks %" PRId64 "x%" PRId64
           " p %g M %" PRId64 " strip %" PRId64 " workspace %" PRId64 "\n",
           ordo_io_pass_name(p->pass), ordo_io_algorithm_name(a), p->q_len, p->kv_len, p->head_dim,
           p->v_head_dim, p->heads, p->kv_heads, (int)p->mask, (int)p->window.on, p->window.left,
           p->window.right, p->block_q, p->block_k, p->dropout_p, p->cache_words, p->strip,
           p->workspace_words);
}

/* Run one algorithm: counts equal the closed form to the word, fast memory is enough, results are
 * the oracle's, no bound is violated. Returns whether it ran; some do not fit. */
static inline bool io_check_run(const ordo_io_problem *p, ordo_io_algorithm algorithm,
                                const ordo_io_tiles *tiles, double *worst)
{
    ordo_io_report r;
    ordo_io_bound bound;
    const int before = check_failures;
    const ordo_status status = ordo_io_run(p, algorithm, tiles, &r);
    if (status == ORDO_ERR_UNSUPPORTED)
        return false;
    if (status != ORDO_OK) {
        CHECK_FAIL("%s", ordo_last_error());
        io_describe(p, algorithm);
        return false;
    }
    CHECK(ordo_io_bound_best(p, &bound) == ORDO_OK);
    CHECK_INT(r.loads, r.predicted.loads);
    CHECK_INT(r.stores, r.predicted.stores);
    CHECK(r.peak <= p->cache_words);
    CHECK(r.peak <= r.predicted.cache);
    CHECK((double)(r.loads + r.stores) >= bound.words);
    CHECK(r.error <= (p->pass == ORDO_IO_GRADIENT ? 1e-6 : 1e-12));
    *worst = r.error <= *worst ? *worst : r.error;
    if (check_failures > before)
        io_describe(p, algorithm);
    return true;
}

/* Every algorithm of both passes, with the best tiles and with tiles drawn at random. */
static inline int io_check_case(io_case *c, uint64_t *random, double *worst)
{
    int runs = 0;
    for (int pass = ORDO_IO_FORWARD; pass <= ORDO_IO_BACKWARD; pass++)
        for (int a = 1; a <= ORDO_IO_ALGORITHM_COUNT; a++) {
            ordo_io_problem *p = &c->problem;
            p->pass = (ordo_io_pass)pass;
            runs += io_check_run(p, (ordo_io_algorithm)a, NULL, worst);
            const int64_t side = 1 + (int64_t)sqrt((double)p->cache_words);
            const ordo_io_tiles tiles = {
                check_between(random, 1, side), check_between(random, 1, side),
                check_between(random, 1, side), check_between(random, 1, side),
                check_between(random, 1, side), check_between(random, 0, p->q_len),
            };
            runs += io_check_run(p, (ordo_io_algorithm)a, &tiles, worst);
        }
    return runs;
}

#endif
