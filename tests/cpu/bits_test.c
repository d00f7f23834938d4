/* bits_test.c: what must not change a bit of the CPU backend: threads, repeats, load, delays, the
 * instruction set, the caller's floating-point environment, workspace, strides, and every choice
 * of a plan that is not part of its numeric key. */
#include "attention_case.h"
#include "cpu/kernels.h"
#include "fp_control.h"

#include <pthread.h>
#include <stdatomic.h>

/* Problems of several tiles each way that between them have every feature. */
enum { MIXES = 6 };

static void open_mix(attention_case *c, int mix)
{
    static const struct {
        ordo_dtype dtype;
        ordo_layout layout;
        ordo_mask mask;
        int heads, kv_heads, q_len, kv_len, dim, v_dim, left;
        double softcap, p;
        bool alibi, dlse;
    } mixes[MIXES] = {
        { ORDO_F32, ORDO_DENSE, ORDO_MASK_FULL, 3, 3, 257, 257, 32, 32, 0, 0, 0, false, false },
        { ORDO_BF16, ORDO_DENSE, ORDO_MASK_CAUSAL, 8, 4, 300, 300, 24, 24, 0, 0, 0.1, false, true },
        { ORDO_F16, ORDO_PADDED, ORDO_MASK_CAUSAL, 4, 1, 270, 310, 16, 40, 100, 6, 0, true, false },
        { ORDO_BF16, ORDO_PACKED, ORDO_MASK_CAUSAL, 5, 5, 290, 290, 40, 17, 0, 0, 0.17, true,
          true },
        { ORDO_F32, ORDO_PACKED, ORDO_MASK_FULL, 4, 2, 200, 333, 16, 16, 70, 9, 0.17, false, true },
        { ORDO_F16, ORDO_PADDED, ORDO_MASK_CAUSAL_TOP_LEFT, 4, 4, 333, 200, 33, 33, 0, 0, 0.1, true,
          false },
    };
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT };
    ordo_problem *p = &c->problem;
    p->dtype = mixes[mix].dtype;
    p->layout = mixes[mix].layout;
    p->mask = mixes[mix].mask;
    p->batch = 2;
    p->heads = mixes[mix].heads;
    p->kv_heads = mixes[mix].kv_heads;
    p->q_len = mixes[mix].q_len;
    p->kv_len = mixes[mix].kv_len;
    p->head_dim = mixes[mix].dim;
    p->v_head_dim = mixes[mix].v_dim;
    p->window = (ordo_window) { mixes[mix].left > 0, mixes[mix].left, 0 };
    p->softcap = mixes[mix].softcap;
    p->dropout.p = mixes[mix].p;
    p->alibi = mixes[mix].alibi;
    for (int b = 0; b < 2; b++) {
        c->ids[b] = 3 + b;
        c->q_lens[b] = (int32_t)p->q_len - 33 * b;
        c->kv_lens[b] = (int32_t)p->kv_len - 41 * b;
        c->cu_q[b + 1] = c->cu_q[b] + c->q_lens[b];
        c->cu_kv[b + 1] = c->cu_kv[b] + c->kv_lens[b];
    }
    if (p->layout == ORDO_PACKED) {
        p->total_q = c->cu_q[2];
        p->total_kv = c->cu_kv[2];
    }
    c->dlse = mixes[mix].dlse ? (float *)1 : NULL;
    c->sinks = mix % 2 == 1;
    case_open(c, 1000 + (uint64_t)mix);
}

/* Small tiles make many chains and turns of little work. */
static ordo_plan_options small_tiles(void)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.forward_tile = (ordo_tile) { 32, 48 };
    options.backward_tile = (ordo_tile) { 16, 32 };
    return options;
}

TEST(thread_counts)
{
    for (int mix = 0; mix < MIXES; mix++) {
        const ordo_plan_options small = small_tiles();
        attention_case c;
        open_mix(&c, mix);
        ordo_plan *plan = case_plan(&c, mix % 2 ? &small : NULL);
        case_results one = case_first(&c, plan, 1);
        for (int threads = 2; threads <= (mix == 1 ? 64 : 16); threads += threads < 16 ? 1 : 48) {
            case_again(&c, plan, threads, &one, "threads");
        }
        case_again(&c, plan, 0, &one, "all the threads there are");
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

/* ---- repeats ---- */

static atomic_bool loaded;

static void *load(void *argument)
{
    volatile float x = 1;
    while (atomic_load(&loaded))
        for (int i = 0; i < 1000; i++)
            x = x * 1.0001f + (float)(argument != NULL);
    return NULL;
}

/* Random delays before every turn shake the order of arrival, other work the scheduler. */
TEST(repeats_under_load_and_delays)
{
    pthread_t thread;
    atomic_store(&loaded, true);
    CHECK(pthread_create(&thread, NULL, load, NULL) == 0);
    for (int mix = 0; mix < MIXES; mix++) {
        const ordo_plan_options small = small_tiles();
        attention_case c;
        open_mix(&c, mix);
        ordo_plan *plan = case_plan(&c, mix % 3 ? &small : NULL);
        case_results one = case_first(&c, plan, 1);
        for (int repeat = 0; repeat < 34; repeat++) {
            ordo_delay_turns(repeat % 2 ? 30 : 2);
            case_again(&c, plan, 2 + repeat % 7, &one, "delays");
        }
        ordo_delay_turns(0);
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
    atomic_store(&loaded, false);
    pthread_join(thread, NULL);
}

/* ---- plans ---- */

TEST(choices_outside_the_numeric_key)
{
    for (int mix = 0; mix < MIXES; mix++) {
        attention_case c;
        open_mix(&c, mix);
        ordo_plan_options options = small_tiles();
        ordo_plan *plan = case_plan(&c, &options);
        ordo_plan_info info = ORDO_PLAN_INFO_INIT, other = ORDO_PLAN_INFO_INIT;
        CHECK(ordo_plan_query(plan, &info) == ORDO_OK);
        case_results one = case_first(&c, plan, 3);
        ordo_plan_destroy(plan);
        const int64_t heads = c.problem.batch * c.problem.kv_heads;
        for (int choice = 0; choice < 12; choice++) {
            options.issue = choice % 3 ? ORDO_ISSUE_KEY : ORDO_ISSUE_HEAD;
            options.section = choice % 3 ? 1 + (choice * 5) % heads : 0;
            options.assign = choice % 2 ? ORDO_ASSIGN_PINNED : ORDO_ASSIGN_FIRST_FREE;
            options.workers = 1 + choice * 13;
            plan = case_plan(&c, &options);
            CHECK(ordo_plan_query(plan, &other) == ORDO_OK);
            CHECK_TEXT(other.numeric_key, info.numeric_key);
            case_again(&c, plan, 1 + choice % 5, &one, "issue, section, assignment, workers");
            ordo_plan_destroy(plan);
        }
        case_drop(&one);
        case_close(&c);
    }
}

/* A plan read back from its line gives the bits of the plan that printed it. */
TEST(a_plan_from_its_line)
{
    for (int mix = 0; mix < MIXES; mix++) {
        attention_case c;
        char line[4096];
        open_mix(&c, mix);
        ordo_plan *plan = case_plan(&c, NULL), *again = NULL;
        case_results one = case_first(&c, plan, 2);
        CHECK(ordo_plan_print(plan, line, sizeof line, NULL) == ORDO_OK);
        CHECK(ordo_plan_parse(&again, line) == ORDO_OK);
        case_again(&c, again, 3, &one, "a plan read back");
        case_drop(&one);
        ordo_plan_destroy(plan);
        ordo_plan_destroy(again);
        case_close(&c);
    }
}

/* Each order that the backend takes has bits of its own, whatever the threads. */
TEST(orders)
{
    for (int mix = 0; mix < MIXES; mix++) {
        attention_case c;
        open_mix(&c, mix);
        case_results ascending = { 0 };
        int taken = 0, changed = 0;
        for (int order = 1; order <= ORDO_ORDER_COUNT; order++) {
            ordo_plan_options options = small_tiles();
            options.backend = ORDO_BACKEND_CPU;
            options.order = (ordo_order)order;
            ordo_plan *plan = NULL;
            const ordo_status status = ordo_plan_create(&plan, &c.problem, NULL, &options);
            if (status != ORDO_OK) {
                CHECK_REFUSED(status, ORDO_ERR_UNSUPPORTED, "resident together");
                continue;
            }
            taken++;
            case_results one = case_first(&c, plan, 1);
            for (int threads = 2; threads <= 8; threads += 3) {
                case_again(&c, plan, threads, &one, "threads");
            }
            if (order == ORDO_ORDER_ASCENDING) {
                ascending = one;
            } else {
                changed += ascending.data[2] &&
                           memcmp(one.data[2], ascending.data[2], one.count[2] * one.width[2]) != 0;
                case_drop(&one);
            }
            ordo_plan_destroy(plan);
        }
        CHECK(taken >= 5);
        if (c.problem.dtype == ORDO_F32)
            CHECK(changed >= 2); /* or the order of sums would not be what these tests hold */
        case_drop(&ascending);
        case_close(&c);
    }
}

/* ---- targets ---- */

TEST(targets)
{
    static const char *const names[] = { "neon", "avx2", "avx512" };
    uint64_t seed = case_seed(40);
    int compared = 0;
    for (int trial = 0; trial < 60; trial++) {
        attention_case c;
        case_random(&c, &seed, trial % 8 ? 50 : 150);
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        if (trial % 3 == 0)
            options.backward_tile = options.forward_tile =
                (ordo_tile) { check_between(&seed, 1, 70), check_between(&seed, 1, 140) };
        ordo_plan *plan = case_plan(&c, &options);
        ordo_cpu_kernels_force(ordo_cpu_kernels_named("generic"));
        case_results one = case_first(&c, plan, 2);
        for (int x = 0; x < 3; x++)
            if (ordo_cpu_kernels_named(names[x])) {
                ordo_cpu_kernels_force(ordo_cpu_kernels_named(names[x]));
                case_again(&c, plan, 2, &one, names[x]);
                compared++;
            }
        ordo_cpu_kernels_force(NULL);
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
    if (compared == 0)
        SKIP("no target but generic");
}

/* ---- floating-point environment ---- */

/* Inputs with subnormals, so that flushing them would show, and an infinity, which the alternative
 * half precision of ARM does not have. */
TEST(the_callers_rounding_and_flushing)
{
    const uint64_t usual = control();
    for (int mix = 0; mix < MIXES; mix++) {
        attention_case c;
        open_mix(&c, mix);
        for (size_t x = 0; x < c.v_count; x += 3)
            case_put(&c, c.call.v.data, x,
                     case_get(&c, c.call.v.data, x) *
                         (c.problem.dtype == ORDO_F16 ? 0x1p-20 : 0x1p-128));
        case_put(&c, c.call.v.data, 1, INFINITY);
        ordo_plan *plan = case_plan(&c, NULL);
        case_results one = case_first(&c, plan, 2);
        for (size_t x = 0; x < MODES; x++) {
            set_control(modes[x]);
            const uint64_t before = control(); /* what of it this machine has */
            CHECK(case_run(&c, plan, 1 + (int)x % 3) == ORDO_OK);
            const uint64_t after = control();
            set_control(usual);
            CHECK(before == after);
            case_same(&c, &one, "rounding and flushing");
        }
        /* the flags that a caller watches are not raised either */
        feclearexcept(FE_ALL_EXCEPT);
        feraiseexcept(FE_DIVBYZERO);
        CHECK(case_run(&c, plan, 2) == ORDO_OK);
        CHECK(fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO);
        feclearexcept(FE_ALL_EXCEPT);
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN()
