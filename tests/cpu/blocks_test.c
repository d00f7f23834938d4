/* blocks_test.c: block masks on the CPU: within derived bounds of the oracle, and with the
 * same bits whatever the threads, the batch and the instruction set. */
#include "attention_bounds.h"
#include "block_case.h"
#include "cpu/kernels.h"
#include "cpu/pass.h"

/* Every feature of a problem, with masks of every kind, shared or not. */
TEST(random_masks)
{
    uint64_t seed = case_seed(31);
    bound_worst worst[3] = { { { 0 } } };
    int own_sequence = 0, own_head = 0, shared_keys = 0, dropped = 0, sinks = 0;
    for (int trial = 0; trial < 20; trial++) {
        attention_case c;
        case_random(&c, &seed, trial % 4 ? 160 : 330);
        block_random(&c, &seed);
        own_sequence += c.problem.blocks.per_sequence;
        own_head += c.problem.blocks.per_head;
        shared_keys += c.problem.heads > c.problem.kv_heads && c.problem.blocks.per_head;
        dropped += c.problem.dropout.p > 0;
        sinks += c.sinks;
        const ordo_plan_options options = block_options(trial);
        ordo_plan *plan = case_plan(&c, &options);
        uint64_t pairs = 0;
        if (ordo_block_mask_check(plan, c.blocks, &pairs) != ORDO_OK)
            CHECK_FAIL("%s", ordo_last_error());
        bound_check(&c, plan, 1 + trial % 3, &worst[c.problem.dtype]);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
    CHECK(own_sequence > 2 && own_head > 2 && shared_keys > 2 && dropped > 2 && sinks > 2);
    CHECK(worst[0].at[0] > 0.01 && worst[0].at[2] > 0.01 && worst[0].at[3] > 0.01);
}

/* A window narrower than the intervals of rows, which begin in the middle of blocks. */
TEST(windows_inside_intervals)
{
    bound_worst worst = { { 0 } };
    for (int trial = 0; trial < 2; trial++) {
        attention_case c;
        ordo_block_mask *blocks = NULL;
        block_open(&c, ORDO_DENSE, ORDO_MASK_CAUSAL, 0);
        c.problem.window = (ordo_window) { true, trial ? 20 : 70, 0 };
        case_must(ordo_block_mask_from_chunks(&blocks, c.problem.q_len, c.problem.kv_len, 100, 0));
        case_set_blocks(&c, blocks);
        const ordo_plan_options options = block_options(trial);
        ordo_plan *plan = case_plan(&c, &options);
        bound_check(&c, plan, 2, &worst);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

/* ---- the promise ---- */

/* Threads, delays before turns, instruction sets, row tiles taken together. */
TEST(what_changes_no_bit)
{
    uint64_t seed = case_seed(34);
    for (int trial = 0; trial < 5; trial++) {
        attention_case c;
        block_open(&c, (ordo_layout)(trial % 3), (ordo_mask)(trial % 2), trial);
        block_random(&c, &seed);
        const ordo_plan_options options = block_options(trial);
        ordo_plan *plan = case_plan(&c, &options);
        case_results one = case_first(&c, plan, 1);
        for (int threads = 2; threads <= 9; threads += 7) {
            ordo_delay_turns(20);
            case_again(&c, plan, threads, &one, "threads and delays");
            ordo_delay_turns(0);
        }
        ordo_cpu_kernels_force(ordo_cpu_kernels_named("generic"));
        case_again(&c, plan, 2, &one, "generic kernels");
        ordo_cpu_kernels_force(NULL);
        ordo_cpu_phase_force(1);
        case_again(&c, plan, 2, &one, "row tiles together");
        ordo_cpu_phase_force(0);
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

/* A sequence alone, with its own mask, has the bits that it has in the batch. */
TEST(batch)
{
    uint64_t seed = case_seed(35);
    for (int trial = 0; trial < 4; trial++) {
        attention_case all, alone;
        block_open(&all, ORDO_DENSE, ORDO_MASK_CAUSAL, trial);
        ordo_block_mask *masks[2], *both = NULL;
        for (int b = 0; b < 2; b++)
            masks[b] =
                block_random_one(&seed, all.problem.q_len, all.problem.kv_len, 2 * trial + b);
        case_must(ordo_block_mask_join(&both, (const ordo_block_mask *const *)masks, 2, 1));
        case_set_blocks(&all, both);
        const ordo_plan_options options = block_options(trial);
        case_compute(&all, &options, 2);
        block_open(&alone, ORDO_DENSE, ORDO_MASK_CAUSAL, trial);
        case_close(&alone);
        ordo_problem p = alone.problem;
        p.batch = 1;
        p.shard.batch0 = 4;
        alone =
            (attention_case) { .problem = p, .ids = { 4 }, .dlse = all.dlse ? (float *)1 : NULL };
        case_open(&alone, 700 + (uint64_t)trial);
        case_set_blocks(&alone, masks[1]);
        case_compute(&alone, &options, 3);
        case_same_sequence(&alone, 0, &all, 1);
        ordo_block_mask_destroy(masks[0]);
        case_close(&alone);
        case_close(&all);
    }
}

/* Infinities that the mask hides reach nobody; those that it shows reach whom the oracle says. */
TEST(hidden_infinities)
{
    for (int trial = 0; trial < 4; trial++) {
        attention_case c;
        block_open(&c, ORDO_DENSE, ORDO_MASK_CAUSAL, 0);
        ordo_block_mask *blocks = NULL;
        case_must(ordo_block_mask_from_chunks(&blocks, 400, 400, 100, 0));
        case_set_blocks(&c, blocks);
        const ordo_plan_options options = block_options(trial);
        ordo_plan *plan = case_plan(&c, &options);
        case_results one = case_first(&c, plan, 2);
        float *const data[] = { c.call.q.data, c.call.k.data, c.call.v.data, c.call.dout.data };
        const int64_t heads = trial == 1 || trial == 2 ? c.problem.kv_heads : c.problem.heads;
        data[trial][(150 * heads) * 24] = trial % 2 ? NAN : INFINITY; /* in the second chunk */
        CHECK(case_run(&c, plan, 3) == ORDO_OK);
        const case_results two = case_outputs(&c);
        for (int64_t row = 0; row < 400; row++)
            for (int64_t d = 0; d < c.problem.heads * 24 && (row < 100 || row >= 200); d++) {
                const size_t at = (size_t)(row * c.problem.heads * 24 + d);
                CHECK(case_bits(&one, 0, at) == case_bits(&two, 0, at));
                CHECK(case_bits(&one, 2, at) == case_bits(&two, 2, at));
                if (d < c.problem.kv_heads * 24) {
                    const size_t key = (size_t)(row * c.problem.kv_heads * 24 + d);
                    CHECK(case_bits(&one, 3, key) == case_bits(&two, 3, key));
                    CHECK(case_bits(&one, 4, key) == case_bits(&two, 4, key));
                }
            }
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN()
