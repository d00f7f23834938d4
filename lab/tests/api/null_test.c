/* null_test.c: NULL where a public function expects something is refused with a message, whichever
 * argument it is; where a header allows it, it is no argument or nothing to do. */
#include "check.h"
#include "ordo/lab.h"
#include "ordo/ordo.h"

static ordo_problem problem = {
    .size = sizeof problem, .batch = 1, .heads = 1, .q_len = 4, .head_dim = 4, .dropout.p = 0.5
};
static ordo_plan *plan;
static ordo_machine *machine;
static ordo_model *model;
static ordo_timeline *timeline;

/* Things to point at; what is written there is of no interest. */
static double number;
static bool truth;
static int32_t memory[16];
static ordo_io_problem io_problem = { .size = sizeof io_problem,
                                      .pass = ORDO_IO_FORWARD,
                                      .q_len = 16,
                                      .head_dim = 4,
                                      .cache_words = 256 };
static ordo_dropout_call dropout = ORDO_DROPOUT_CALL_INIT;

static void refused(const char *call, ordo_status status)
{
    if (status != ORDO_ERR_ARGUMENT)
        CHECK_FAIL("%s: status %s, expected argument (%s)", call, ordo_status_name(status),
                   ordo_last_error());
    if (!strstr(ordo_last_error(), "NULL"))
        CHECK_FAIL("%s: \"%s\"", call, ordo_last_error());
}

#define REFUSED(call) refused(#call, call)

TEST(passes)
{
    ordo_call call = ORDO_CALL_INIT;
    ordo_combine merge = ORDO_COMBINE_INIT;
    REFUSED(ordo_attention_forward(NULL, &call));
    REFUSED(ordo_attention_forward(plan, NULL));
    REFUSED(ordo_attention_forward(plan, &call)); /* tensors */
    REFUSED(ordo_attention_backward(NULL, &call));
    REFUSED(ordo_attention_backward(plan, NULL));
    REFUSED(ordo_attention_backward(plan, &call));
    REFUSED(ordo_attention_combine(NULL, &merge));
    REFUSED(ordo_attention_combine(plan, NULL));
    merge.parts = 1;
    REFUSED(ordo_attention_combine(plan, &merge));
    (void)ordo_backend_available(ORDO_BACKEND_CUDA, NULL);
}

TEST(digests)
{
    ordo_digest_call call = ORDO_DIGEST_CALL_INIT;
    REFUSED(ordo_digest_run(NULL));
    call.backend = ORDO_BACKEND_CPU;
    call.count = 1;
    REFUSED(ordo_digest_run(&call)); /* spans */
    CHECK_INT(ordo_digest_workspace(NULL, 1), 0);
}

TEST(sums)
{
    const void *const inputs[] = { memory };
    ordo_sum sum = ORDO_SUM_INIT;
    REFUSED(ordo_sum_tree(NULL));
    REFUSED(ordo_sum_tree_device(NULL, NULL));
    sum.count = sum.elements = 1;
    sum.out = (float *)(memory + 1);
    REFUSED(ordo_sum_tree(&sum));
    sum.inputs = inputs;
    sum.out = NULL;
    REFUSED(ordo_sum_tree(&sum));
}

TEST(matrix_products)
{
    const ordo_gemm_problem one = {
        .size = sizeof one, .m = 1, .n = 1, .k = 1, .dtype = ORDO_BF16
    };
    ordo_gemm_plan *made = NULL;
    ordo_gemm_info info = ORDO_GEMM_INFO_INIT;
    ordo_gemm_call call = ORDO_GEMM_CALL_INIT;
    REFUSED(ordo_gemm_plan_create(NULL, &one, ORDO_BACKEND_CPU));
    REFUSED(ordo_gemm_plan_create(&made, NULL, ORDO_BACKEND_CPU));
    CHECK_INT(ordo_gemm_plan_create(&made, &one, ORDO_BACKEND_CPU), ORDO_OK);
    REFUSED(ordo_gemm_plan_query(NULL, &info));
    REFUSED(ordo_gemm_plan_query(made, NULL));
    REFUSED(ordo_gemm_run(NULL, &call));
    REFUSED(ordo_gemm_run(made, NULL));
    REFUSED(ordo_gemm_run(made, &call)); /* matrices */
    REFUSED(ordo_gemm_query(ORDO_BACKEND_CPU, NULL));
    ordo_gemm_plan_destroy(made);
    ordo_gemm_plan_destroy(NULL);
}

TEST(problems_and_plans)
{
    ordo_plan *made = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_problem out = ORDO_PROBLEM_INIT;
    ordo_order order;
    REFUSED(ordo_problem_check(NULL));
    REFUSED(ordo_plan_create(NULL, &problem, NULL, NULL));
    REFUSED(ordo_plan_create(&made, NULL, NULL, NULL));
    REFUSED(ordo_plan_query(NULL, &info));
    REFUSED(ordo_plan_query(plan, NULL));
    REFUSED(ordo_plan_problem(NULL, &out));
    REFUSED(ordo_plan_problem(plan, NULL));
    REFUSED(ordo_plan_print(NULL, (char *)memory, sizeof memory, NULL));
    CHECK_INT(ordo_plan_print(plan, NULL, 0, NULL), ORDO_ERR_SHAPE);
    REFUSED(ordo_plan_parse(NULL, "x"));
    REFUSED(ordo_plan_parse(&made, NULL));
    REFUSED(ordo_plan_check(NULL, NULL));
    CHECK_INT(ordo_plan_check(plan, NULL), ORDO_OK);
    REFUSED(ordo_order_from_name(NULL, &order));
    REFUSED(ordo_order_from_name("spt", NULL));
    CHECK_INT(ordo_plan_workspace(NULL), 0);
    ordo_plan_destroy(NULL);
}

TEST(devices)
{
    REFUSED(ordo_device_count(NULL, NULL));
    REFUSED(ordo_device_query(0, NULL));
    REFUSED(ordo_device_machine(0, NULL));
    REFUSED(ordo_device_alloc(NULL, 1));
    REFUSED(ordo_device_copy(NULL, memory, 1, NULL));
    REFUSED(ordo_device_copy(memory, NULL, 1, NULL));
    REFUSED(ordo_device_fill(NULL, 0, 1, NULL));
    REFUSED(ordo_device_equal(NULL, memory, 1, NULL, &truth));
    REFUSED(ordo_device_equal(memory, NULL, 1, NULL, &truth));
    REFUSED(ordo_device_equal(memory, memory, 1, NULL, NULL));
    REFUSED(ordo_device_stream_create(NULL));
    REFUSED(ordo_device_event_create(NULL));
    REFUSED(ordo_device_event_record(NULL, NULL));
    REFUSED(ordo_device_event_elapsed(NULL, memory, &number));
    REFUSED(ordo_device_event_elapsed(memory, NULL, &number));
    REFUSED(ordo_device_event_elapsed(memory, memory, NULL));
    CHECK_INT(ordo_device_free(NULL), ORDO_OK);
    CHECK_INT(ordo_device_stream_destroy(NULL), ORDO_OK);
    CHECK_INT(ordo_device_event_destroy(NULL), ORDO_OK);
}

TEST(bits)
{
    ordo_dropout_info info;
    uint32_t words[4] = { 0 };
    REFUSED(ordo_dropout_query(NULL, &dropout, &info));
    REFUSED(ordo_dropout_query(&problem, NULL, &info));
    REFUSED(ordo_dropout_query(&problem, &dropout, NULL));
    REFUSED(ordo_dropout_keep(NULL, &dropout, 0, 0, 0, 0, &truth));
    REFUSED(ordo_dropout_keep(&problem, NULL, 0, 0, 0, 0, &truth));
    REFUSED(ordo_dropout_keep(&problem, &dropout, 0, 0, 0, 0, NULL));
    REFUSED(ordo_dropout_fill(NULL, &dropout, 0, 1, words, sizeof words));
    REFUSED(ordo_dropout_fill(&problem, NULL, 0, 1, words, sizeof words));
    REFUSED(ordo_dropout_fill(&problem, &dropout, 0, 1, NULL, 1024));
    REFUSED(ordo_dropout_fill_device(NULL, &dropout, words, sizeof words, NULL));
    REFUSED(ordo_dropout_fill_device(&problem, NULL, words, sizeof words, NULL));
    REFUSED(ordo_dropout_fill_device(&problem, &dropout, NULL, 1024, NULL));
    REFUSED(ordo_dropout_export(NULL, &dropout, NULL, NULL, memory, sizeof memory, NULL));
    REFUSED(ordo_dropout_export(&problem, NULL, NULL, NULL, memory, sizeof memory, NULL));
    REFUSED(ordo_dropout_export(&problem, &dropout, NULL, NULL, NULL, 0, NULL));
    CHECK_INT(ordo_dropout_export(&problem, &dropout, NULL, NULL, memory, sizeof memory, NULL),
              ORDO_OK);
    REFUSED(ordo_philox4x32(NULL, words, 7, words));
    REFUSED(ordo_philox4x32(words, NULL, 7, words));
    REFUSED(ordo_philox4x32(words, words, 7, NULL));
}

TEST(words_moved)
{
    ordo_io_bound bound;
    ordo_io_choice choice;
    ordo_io_words words;
    ordo_io_report report;
    ordo_io_cache cache = { .size = sizeof cache, .replacement = ORDO_IO_LRU };
    ordo_io_level level;
    ordo_io_advice advice;
    ordo_io_bytes bytes;
    ordo_io_hbm hbm;
    ordo_io_algorithm algorithm;
    REFUSED(ordo_io_bound_at(NULL, 0, &bound));
    REFUSED(ordo_io_bound_at(&io_problem, 0, NULL));
    REFUSED(ordo_io_bound_best(NULL, &bound));
    REFUSED(ordo_io_bound_best(&io_problem, NULL));
    REFUSED(ordo_io_choose(NULL, ORDO_IO_BEST, NULL, &choice));
    REFUSED(ordo_io_choose(&io_problem, ORDO_IO_BEST, NULL, NULL));
    REFUSED(ordo_io_predict(NULL, ORDO_IO_BEST, NULL, &words));
    REFUSED(ordo_io_predict(&io_problem, ORDO_IO_BEST, NULL, NULL));
    REFUSED(ordo_io_run(NULL, ORDO_IO_BEST, NULL, &report));
    REFUSED(ordo_io_run(&io_problem, ORDO_IO_BEST, NULL, NULL));
    REFUSED(ordo_io_cache_run(NULL, ORDO_IO_BEST, NULL, &cache, &report, NULL));
    REFUSED(ordo_io_cache_run(&io_problem, ORDO_IO_BEST, NULL, NULL, &report, NULL));
    REFUSED(ordo_io_cache_run(&io_problem, ORDO_IO_BEST, NULL, &cache, NULL, NULL));
    REFUSED(ordo_io_curve(NULL, ORDO_IO_BEST, NULL, 0, false, &words, 1, &report));
    REFUSED(ordo_io_curve(&io_problem, ORDO_IO_BEST, NULL, 0, false, NULL, 1, &report));
    REFUSED(ordo_io_curve(&io_problem, ORDO_IO_BEST, NULL, 0, false, &words, 1, NULL));
    REFUSED(ordo_io_level_at(NULL, ORDO_F32, 0, &level, &truth));
    REFUSED(ordo_io_level_at(machine, ORDO_F32, 0, NULL, &truth));
    REFUSED(ordo_io_level_at(machine, ORDO_F32, 0, &level, NULL));
    REFUSED(ordo_io_advise(NULL, &problem, ORDO_IO_FORWARD, 0, &advice, &truth));
    REFUSED(ordo_io_advise(machine, NULL, ORDO_IO_FORWARD, 0, &advice, &truth));
    REFUSED(ordo_io_advise(machine, &problem, ORDO_IO_FORWARD, 0, NULL, &truth));
    REFUSED(ordo_io_advise(machine, &problem, ORDO_IO_FORWARD, 0, &advice, NULL));
    REFUSED(ordo_io_hopper(NULL, 64, &bytes));
    REFUSED(ordo_io_hopper(machine, 64, NULL));
    REFUSED(ordo_io_hopper_pair(NULL, 64, 64, &bytes));
    REFUSED(ordo_io_hopper_pair(machine, 64, 64, NULL));
    REFUSED(ordo_io_replay(NULL, &problem, ORDO_IO_BACKWARD, ORDO_IO_FLASH, 0, &hbm));
    REFUSED(ordo_io_replay(machine, NULL, ORDO_IO_BACKWARD, ORDO_IO_FLASH, 0, &hbm));
    REFUSED(ordo_io_replay(machine, &problem, ORDO_IO_BACKWARD, ORDO_IO_FLASH, 0, NULL));
    REFUSED(ordo_io_replay_plan(machine, NULL, 0, &hbm));
    REFUSED(ordo_io_algorithm_from_name(NULL, &algorithm));
    REFUSED(ordo_io_algorithm_from_name("best", NULL));
    CHECK(isnan(ordo_io_sparse_form(NULL)));
    CHECK_TEXT(ordo_last_error(), "sparse NULL: expected a pointer");
}

TEST(machines)
{
    ordo_machine *made = NULL;
    REFUSED(ordo_machine_create(NULL, "h200"));
    REFUSED(ordo_machine_create(&made, NULL));
    REFUSED(ordo_machine_parse(NULL, "", 0, "x"));
    REFUSED(ordo_machine_parse(&made, NULL, 1, "x"));
    (void)ordo_machine_parse(&made, "", 0, NULL);
    CHECK(made == NULL);
    REFUSED(ordo_machine_get(NULL, "workers", &number));
    REFUSED(ordo_machine_get(machine, NULL, &number));
    REFUSED(ordo_machine_get(machine, "workers", NULL));
    CHECK_TEXT(ordo_machine_name(NULL), "");
    CHECK_TEXT(ordo_machine_title(NULL), "");
    CHECK_INT(ordo_machine_family_of(NULL), ORDO_MACHINE_CPU);
    CHECK(!ordo_machine_source(NULL, "workers") && !ordo_machine_source(machine, NULL));
    ordo_machine_destroy(NULL);
}

TEST(models)
{
    ordo_model *made = NULL;
    ordo_model_constant constant;
    ordo_kernel_time time;
    ordo_gemm gemm = ORDO_GEMM_INIT;
    ordo_attention_shape shape = ORDO_ATTENTION_SHAPE_INIT;
    const ordo_rng rng = { 0 };
    ordo_block block = ORDO_BLOCK_INIT;
    ordo_block_report report;
    ordo_plan_price price;
    const char *name;
    REFUSED(ordo_model_create(NULL, machine, ORDO_CALIBRATION_SILICON));
    REFUSED(ordo_model_create(&made, NULL, ORDO_CALIBRATION_SILICON));
    REFUSED(ordo_model_constant_at(NULL, 0, &constant));
    REFUSED(ordo_model_constant_at(model, 0, NULL));
    REFUSED(ordo_model_set(NULL, "tensor", 1));
    REFUSED(ordo_model_set(model, NULL, 1));
    REFUSED(ordo_model_scale(NULL, "tensor", 1));
    REFUSED(ordo_model_scale(model, NULL, 1));
    REFUSED(ordo_model_gemm(NULL, &gemm, &time));
    REFUSED(ordo_model_gemm(model, NULL, &time));
    REFUSED(ordo_model_gemm(model, &gemm, NULL));
    REFUSED(ordo_model_attention(NULL, &shape, &time));
    REFUSED(ordo_model_attention(model, NULL, &time));
    REFUSED(ordo_model_attention(model, &shape, NULL));
    REFUSED(ordo_model_attention_constant(NULL, &shape, &name));
    REFUSED(ordo_model_attention_constant(model, NULL, &name));
    REFUSED(ordo_model_attention_constant(model, &shape, NULL));
    REFUSED(ordo_model_rng(NULL, &rng, 1, &time));
    REFUSED(ordo_model_rng(model, NULL, 1, &time));
    REFUSED(ordo_model_rng(model, &rng, 1, NULL));
    REFUSED(ordo_model_memory(NULL, 1, 1, &time));
    REFUSED(ordo_model_memory(model, 1, 1, NULL));
    REFUSED(ordo_model_block(NULL, &block, &report));
    REFUSED(ordo_model_block(model, NULL, &report));
    REFUSED(ordo_model_block(model, &block, NULL));
    REFUSED(ordo_model_plan(NULL, plan, &price));
    REFUSED(ordo_model_plan(model, NULL, &price));
    REFUSED(ordo_model_plan(model, plan, NULL));
    ordo_model_destroy(NULL);
}

TEST(timelines)
{
    ordo_schedule schedule = ORDO_SCHEDULE_INIT;
    ordo_timeline *made = NULL;
    ordo_timeline_info info;
    ordo_timeline_step step;
    ordo_critical critical;
    ordo_order order;
    REFUSED(ordo_timeline_create(NULL, &schedule));
    REFUSED(ordo_timeline_create(&made, NULL));
    REFUSED(ordo_timeline_query(NULL, &info));
    REFUSED(ordo_timeline_query(timeline, NULL));
    REFUSED(ordo_timeline_step_at(NULL, 0, &step));
    REFUSED(ordo_timeline_step_at(timeline, 0, NULL));
    REFUSED(ordo_timeline_critical_at(NULL, 0, &critical));
    REFUSED(ordo_timeline_critical_at(timeline, 0, NULL));
    REFUSED(ordo_schedule_auto(NULL, &order));
    REFUSED(ordo_schedule_auto(&schedule, NULL));
    CHECK_INT(ordo_timeline_step_count(NULL), 0);
    CHECK_INT(ordo_timeline_critical_count(NULL), 0);
    ordo_timeline_destroy(NULL);
}

/* A handle that could not be made is NULL, whatever it was before: it may be destroyed. */
#define LEFT_NULL(type, call)                                                                      \
    do {                                                                                           \
        type *made = (type *)memory;                                                               \
        REFUSED(call);                                                                             \
        if (made)                                                                                  \
            CHECK_FAIL("%s: left the handle as it was", #call);                                    \
    } while (0)

TEST(failures_leave_null)
{
    LEFT_NULL(ordo_plan, ordo_plan_create(&made, NULL, NULL, NULL));
    LEFT_NULL(ordo_plan, ordo_plan_parse(&made, NULL));
    LEFT_NULL(ordo_machine, ordo_machine_create(&made, NULL));
    LEFT_NULL(ordo_machine, ordo_machine_parse(&made, NULL, 1, NULL));
    LEFT_NULL(ordo_comparison, ordo_comparison_create(&made, NULL, "b"));
    LEFT_NULL(ordo_comparison, ordo_comparison_create(&made, "a", NULL));
    LEFT_NULL(ordo_block_mask, ordo_block_mask_from_intervals(&made, 1, 1, NULL, memory));
    LEFT_NULL(ordo_block_mask, ordo_block_mask_from_function(&made, 1, 1, NULL, NULL));
    LEFT_NULL(ordo_block_mask, ordo_block_mask_from_documents(&made, 1, NULL));
    LEFT_NULL(ordo_block_mask, ordo_block_mask_join(&made, NULL, 1, 1));
    const ordo_block_mask *none = NULL;
    LEFT_NULL(ordo_block_mask, ordo_block_mask_join(&made, &none, 1, 1));
    LEFT_NULL(ordo_model, ordo_model_create(&made, NULL, ORDO_CALIBRATION_SILICON));
    LEFT_NULL(ordo_timeline, ordo_timeline_create(&made, NULL));
    LEFT_NULL(ordo_rank_timeline, ordo_rank_timeline_create(&made, NULL, ORDO_RANKS_RELAY));
    LEFT_NULL(ordo_block_runner, ordo_block_runner_create(&made, NULL));
}

int main(void)
{
    const ordo_schedule schedule = { .size = sizeof schedule,
                                     .order = ORDO_ORDER_SPT,
                                     .key_tiles = 4,
                                     .heads = 1,
                                     .workers = 2,
                                     .compute = 2,
                                     .reduce = 1,
                                     .record = true };
    if (ordo_machine_create(&machine, "h200") != ORDO_OK ||
        ordo_model_create(&model, machine, ORDO_CALIBRATION_SILICON) != ORDO_OK ||
        ordo_plan_create(&plan, &problem, NULL, NULL) != ORDO_OK ||
        ordo_timeline_create(&timeline, &schedule) != ORDO_OK) {
        printf("%s\n", ordo_last_error());
        return 1;
    }
    const int failed = check_run();
    ordo_timeline_destroy(timeline);
    ordo_plan_destroy(plan);
    ordo_model_destroy(model);
    ordo_machine_destroy(machine);
    return failed;
}
