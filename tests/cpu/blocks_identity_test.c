/* blocks_identity_test.c: block masks that hide what another mask hides have its bits: what the
 * grid (cuda/grid_test.c, level blocks) does not draw. */
#include "block_case.h"

/* Run the case as it is, then with the mask `by` and this block mask: the bits are the same. */
static void same_with(attention_case *c, ordo_mask by, ordo_window window, ordo_block_mask *blocks,
                      int trial, const char *what)
{
    ordo_plan_options options = block_options(trial);
    case_compute(c, &options, 2);
    case_results one = case_keep(c);
    c->problem.mask = by;
    c->problem.window = window;
    case_set_blocks(c, blocks);
    case_compute(c, &options, 3);
    case_same(c, &one, what);
    case_drop(&one);
}

/* In every layout: one mask for sequences of different lengths, whose own mask stays. */
TEST(chunks_as_long_as_the_sequence)
{
    for (int trial = 0; trial < 6; trial++) {
        attention_case c;
        block_open(&c, (ordo_layout)(trial % 3), ORDO_MASK_CAUSAL, trial % 2 ? 1 : 2);
        ordo_block_mask *blocks = NULL;
        case_must(ordo_block_mask_from_chunks(&blocks, c.problem.q_len, c.problem.kv_len,
                                              trial < 3 ? c.problem.kv_len : INT64_MAX, 0));
        same_with(&c, ORDO_MASK_CAUSAL, c.problem.window, blocks, trial, "one chunk");
        case_close(&c);
    }
}

/* Sequences of a packed batch that begin at blocks are documents of one sequence. */
TEST(documents_are_a_packed_batch)
{
    static const int32_t ends[] = { 0, 128, 512, 640, 777 };
    for (int trial = 0; trial < 6; trial++) {
        attention_case c;
        block_open(&c, ORDO_DENSE, trial % 2 ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL, 0);
        case_close(&c);
        ordo_problem p = c.problem;
        p.layout = ORDO_PACKED;
        p.batch = 4;
        p.q_len = p.kv_len = 384;
        p.total_q = p.total_kv = 777;
        p.kv_heads = trial < 3 ? 2 : 4;
        p.window = trial == 4 ? (ordo_window) { true, 70, 20 } : p.window;
        c = (attention_case) { .problem = p, .dlse = (float *)1 };
        memcpy(c.cu_q, ends, sizeof ends);
        memcpy(c.cu_kv, ends, sizeof ends);
        case_open(&c, 77);
        const ordo_plan_options options = block_options(trial);
        case_compute(&c, &options, 2);
        case_results one = case_keep(&c);
        int64_t ids[777];
        for (int d = 0; d < 4; d++)
            for (int32_t r = ends[d]; r < ends[d + 1]; r++)
                ids[r] = 5 * d;
        ordo_block_mask *blocks = NULL;
        case_must(ordo_block_mask_from_documents(&blocks, 777, ids));
        c.problem.batch = 1;
        c.problem.q_len = c.problem.kv_len = 777;
        c.cu_q[1] = c.cu_kv[1] = 777;
        case_set_blocks(&c, blocks);
        case_compute(&c, &options, 3);
        case_same(&c, &one, "documents");
        case_drop(&one);
        case_close(&c);
    }
}

/* Entries that add nothing: blocks in which no element is visible, and partial ones that are whole.
 */
TEST(needless_entries)
{
    uint64_t seed = case_seed(33);
    for (int trial = 0; trial < 6; trial++) {
        attention_case c;
        block_open(&c, (ordo_layout)(trial % 3), ORDO_MASK_CAUSAL, trial);
        ordo_block_mask *little =
            block_random_one(&seed, c.problem.q_len, c.problem.kv_len, trial % 5);
        const int64_t nq = ordo_blocks_of(c.problem.q_len), nk = ordo_blocks_of(c.problem.kv_len);
        int32_t start[8], key[64], count = 0;
        const ordo_block_view view = ordo_block_view_of(little, 0, 0);
        for (int64_t i = 0; i < nq;
             i++) { /* every block is listed; where none was, nothing is seen */
            start[i] = count;
            for (int64_t j = 0; j < nk; j++)
                key[count++] = (int32_t)j;
        }
        start[nq] = count;
        case_set_blocks(&c, little);
        const ordo_plan_options options = block_options(trial);
        case_compute(&c, &options, 2);
        case_results one = case_keep(&c);
        ordo_block_mask much = *little;
        much.entries = count;
        much.start = start;
        much.key = key;
        CHECK(view.first != NULL && count > little->entries);
        c.call.block_mask = &much;
        c.problem.blocks.entries = count;
        ordo_plan *plan = case_plan(&c, &options);
        CHECK_INT(ordo_block_mask_check(plan, &much, NULL), ORDO_OK);
        case_again(&c, plan, 3, &one, "needless entries");
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN()
