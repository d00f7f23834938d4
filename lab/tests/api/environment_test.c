/* environment_test.c: every public function that computes with floating point, or reads or prints
 * such numbers, gives the same answers in whatever floating-point environment it is called, and
 * leaves that environment as it was, also when it refuses.
 *
 * collect() asks them all and keeps a hash of what each group answers. It must not compute with
 * floating point itself, since it runs under the caller's rounding and with traps. */
#include "check.h"
#include "fp_control.h"
#include "ordo/device.h"
#include "ordo/lab.h"
#include "ordo/ordo.h"

enum { MOST_GROUPS = 24 };

typedef struct answers {
    struct {
        const char *name;
        uint64_t hash, count;
    } group[MOST_GROUPS];
    int groups;
    int changed; /* calls after which the environment was another one */
    int refused; /* calls that failed */
} answers;

static void begin(answers *a, const char *name)
{
    a->group[a->groups].name = name;
    a->group[a->groups].hash = UINT64_C(0xcbf29ce484222325);
    a->group[a->groups++].count = 0;
}

static void note_bytes(answers *a, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t *hash = &a->group[a->groups - 1].hash;
    for (size_t x = 0; x < bytes; x++)
        *hash = (*hash ^ at[x]) * UINT64_C(0x100000001b3);
    a->group[a->groups - 1].count += bytes;
}
static void note_text(answers *a, const char *text)
{
    note_bytes(a, text, strlen(text));
}
#define NOTE(x) note_bytes(a, &(x), sizeof(x))

static void note_status(answers *a, ordo_status status, uint64_t before)
{
    a->changed += control() != before;
    NOTE(status);
    if (status != ORDO_OK) {
        a->refused++;
        note_text(a, ordo_last_error());
    }
}
#define ASK(call)                                                                                  \
    do {                                                                                           \
        const uint64_t before_ = control();                                                        \
        note_status(a, call, before_);                                                             \
    } while (0)

/* ---- machines and the model ---- */

static void ask_machines(answers *a)
{
    begin(a, "machine");
    const char *name;
    for (size_t i = 0; (name = ordo_machine_builtin(i)) != NULL; i++) {
        ordo_machine *machine = NULL;
        if (strcmp(name, "host") == 0) /* whose clock may change meanwhile */
            continue;
        ASK(ordo_machine_create(&machine, name));
        for (size_t k = 0; k < ordo_machine_key_count(); k++) {
            double value;
            if (ordo_machine_get(machine, ordo_machine_key_at(k)->name, &value) == ORDO_OK)
                NOTE(value);
        }
        ordo_machine_destroy(machine);
    }
    static const char text[] =
        "name = x\ntitle = x\nfamily = cpu\nclock_ghz = 1e300 GHz | x | 2024-01\n";
    ordo_machine *none = NULL;
    ASK(ordo_machine_parse(&none, text, sizeof text - 1, "text"));
    ASK(ordo_machine_create(&none, "nobody"));
}

static void note_time(answers *a, const ordo_kernel_time *t)
{
    NOTE(t->seconds);
    NOTE(t->limiter);
    NOTE(t->by);
}

static void ask_block(answers *a, const ordo_model *model)
{
    ordo_block block = ORDO_BLOCK_INIT;
    ordo_block_report r = { 0 };
    block.seq = 3000;
    block.embed = 1280;
    ASK(ordo_model_block(model, &block, &r));
    const double numbers[] = { r.elements,
                               r.gemm_seconds,
                               r.gemm_then_rng,
                               r.gemm_beside_rng,
                               r.memory_seconds,
                               r.communication_seconds,
                               r.none,
                               r.exposed,
                               r.hidden_in_fused,
                               r.overlapped_over_sequential,
                               r.overlapped_over_fused,
                               r.fused_over_sequential,
                               r.margin };
    NOTE(numbers);
    NOTE(r.mode);
    NOTE(r.keep_bits_bytes);
    NOTE(r.training);
    note_time(a, &r.attention_made);
    note_time(a, &r.attention_backward);
    block.utilization = -1;
    ASK(ordo_model_block(model, &block, &r));
}

static void ask_model(answers *a, const ordo_machine *machine, const ordo_plan *plan)
{
    begin(a, "model");
    for (int c = 0; c < ORDO_CALIBRATIONS; c++) {
        ordo_model *model = NULL;
        ordo_kernel_time time = { 0 };
        ordo_gemm gemm = ORDO_GEMM_INIT;
        ordo_attention_shape shape = ORDO_ATTENTION_SHAPE_INIT;
        const ordo_rng rng = { 0 };
        ordo_plan_price price = { 0 };
        gemm.m = gemm.n = gemm.k = 3001;
        shape.batch = shape.heads = 3;
        shape.q_len = 1001;
        shape.backward = true;
        ASK(ordo_model_create(&model, machine, (ordo_calibration)c));
        ASK(ordo_model_scale(model, "clock", 1.1));
        ASK(ordo_model_scale(model, "clock", 1e9));
        ASK(ordo_model_set(model, "nothing", 0.1));
        for (size_t x = 0; x < ordo_model_constant_count(); x++) {
            ordo_model_constant constant;
            ASK(ordo_model_constant_at(model, x, &constant));
            NOTE(constant.value);
        }
        ASK(ordo_model_gemm(model, &gemm, &time));
        note_time(a, &time);
        ASK(ordo_model_attention(model, &shape, &time));
        note_time(a, &time);
        ASK(ordo_model_rng(model, &rng, 1e9 + 1, &time));
        note_time(a, &time);
        ASK(ordo_model_rng(model, &rng, 0.1, &time));
        ASK(ordo_model_memory(model, 1e9, 1e7, &time));
        note_time(a, &time);
        ask_block(a, model);
        ASK(ordo_model_plan(model, plan, &price));
        NOTE(price.utilization);
        NOTE(price.mode_seconds);
        note_time(a, &price.backward);
        ordo_model_destroy(model);
    }
}

/* ---- problems, plans, dropout ---- */

static ordo_problem problem_of(int64_t head_dim, double p, ordo_keying keying)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.dtype = ORDO_BF16;
    problem.batch = 2;
    problem.heads = 4;
    problem.q_len = 300;
    problem.head_dim = head_dim;
    problem.dropout.p = p;
    problem.dropout.keying = keying;
    return problem;
}

/* Probabilities that lie at an edge, or round to one. */
static const double chances[] = { 0.6,         0.8,     0.1,    0.09960937500000001,
                                  0.001953125, 0x1p-25, 1e-310, 0.3 };
enum { CHANCES = sizeof chances / sizeof chances[0] };

static ordo_plan *ask_plan(answers *a, const ordo_problem *problem, const ordo_machine *machine)
{
    ordo_plan *plan = NULL, *again = NULL;
    ASK(ordo_plan_create(&plan, problem, machine, NULL));
    if (!plan)
        return NULL;
    char line[2048] = "";
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_problem held = ORDO_PROBLEM_INIT;
    uint64_t pairs = 0;
    ASK(ordo_plan_print(plan, line, 1, NULL));
    ASK(ordo_plan_print(plan, line, sizeof line, NULL));
    note_text(a, line);
    ASK(ordo_plan_query(plan, &info));
    NOTE(info.dropout_threshold);
    NOTE(info.dropout_p_used);
    note_text(a, info.numeric_key);
    ASK(ordo_plan_problem(plan, &held));
    NOTE(held.scale);
    ASK(ordo_plan_check(plan, &pairs));
    ASK(ordo_plan_parse(&again, line));
    line[strlen(line) / 2] = '\0';
    ordo_plan_destroy(again);
    ASK(ordo_plan_parse(&again, line));
    return plan;
}

static void ask_plans(answers *a, const ordo_machine *machine)
{
    begin(a, ordo_machine_name(machine));
    for (int64_t dim = 1; dim <= 256; dim += dim < 32 ? 1 : 8) {
        const ordo_problem problem = problem_of(dim, 0, ORDO_KEYING_ORDO);
        ordo_plan_destroy(ask_plan(a, &problem, machine));
    }
    for (int x = 0; x < CHANCES; x++)
        for (int keying = 0; keying < 2; keying++) {
            const ordo_problem problem = problem_of(64, chances[x], (ordo_keying)keying);
            ASK(ordo_problem_check(&problem));
            ordo_plan_destroy(ask_plan(a, &problem, machine));
        }
    ordo_problem wrong = problem_of(64, 1.1, ORDO_KEYING_ORDO);
    ASK(ordo_problem_check(&wrong));
    wrong.dropout.p = 0;
    wrong.softcap = -1e-310;
    ASK(ordo_problem_check(&wrong));
}

static void ask_dropout(answers *a)
{
    begin(a, "dropout");
    for (int x = 0; x < CHANCES; x++)
        for (int keying = 0; keying < 2; keying++) {
            const ordo_problem problem = problem_of(64, chances[x], (ordo_keying)keying);
            ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
            ordo_dropout_info info = { 0 };
            static uint32_t words[64 * 20];
            unsigned char rows[300];
            ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;
            bool keep = false;
            part.rows = 1;
            ASK(ordo_dropout_query(&problem, &call, &info));
            NOTE(info.threshold);
            NOTE(info.p_used);
            NOTE(info.scale);
            ASK(ordo_dropout_fill(&problem, &call, 0, 20, words, sizeof words));
            NOTE(words);
            memset(rows, 0, sizeof rows);
            ASK(ordo_dropout_export(&problem, &call, NULL, &part, rows, sizeof rows, NULL));
            NOTE(rows);
            ASK(ordo_dropout_keep(&problem, &call, 1, 2, 30, 40, &keep));
            NOTE(keep);
            ASK(ordo_dropout_keep(&problem, &call, 1, 2, 30, 4000, &keep));
            ASK(ordo_dropout_fill_device(&problem, &call, NULL, 0, NULL));
        }
}

/* ---- passes ---- */

enum { ROWS = 40, DIM = 16, ELEMENTS = ROWS * DIM };

/* Raw bits of floats near 1, from integers alone. */
static void draw(float *x, uint64_t seed)
{
    for (int e = 0; e < ELEMENTS; e++) {
        const uint32_t bits = 0x3f000000u | (uint32_t)(check_random(&seed) >> 41);
        memcpy(&x[e], &bits, sizeof bits);
    }
}

static void ask_pass(answers *a, ordo_backend backend)
{
    static float x[8][ELEMENTS], lse[ROWS], merged[ROWS];
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    problem.batch = problem.heads = 1;
    problem.q_len = ROWS;
    problem.head_dim = DIM;
    problem.softcap = 3.3;
    problem.dropout.p = 0.6;
    problem.dropout.keying = ORDO_KEYING_FA2;
    options.backend = backend;
    ASK(ordo_plan_create(&plan, &problem, NULL, &options));
    for (int t = 0; t < 4; t++)
        draw(x[t], (uint64_t)t);
    ordo_call call = ORDO_CALL_INIT;
    ordo_tensor *const tensors[] = { &call.q, &call.k,  &call.v,  &call.dout,
                                     &call.o, &call.dq, &call.dk, &call.dv };
    for (int t = 0; t < 8; t++)
        tensors[t]->data = x[t];
    call.lse = lse;
    call.workspace_bytes = ordo_plan_workspace(plan);
    call.workspace = aligned_alloc(256, (call.workspace_bytes + 256) / 256 * 256);
    ASK(ordo_attention_forward(plan, &call));
    ASK(ordo_attention_backward(plan, &call));
    NOTE(x);
    NOTE(lse);
    const ordo_tensor parts[] = { call.o, call.v };
    const float *lses[] = { lse, x[0] };
    ordo_combine combine = ORDO_COMBINE_INIT;
    combine.parts = 2;
    combine.o_parts = parts;
    combine.lse_parts = lses;
    combine.o.data = x[7];
    combine.lse = merged;
    ASK(ordo_attention_combine(plan, &combine));
    NOTE(x[7]);
    NOTE(merged);
    combine.parts = 0;
    ASK(ordo_attention_combine(plan, &combine));
    call.threads = -1;
    ASK(ordo_attention_forward(plan, &call));
    ASK(ordo_attention_backward(NULL, &call));
    free(call.workspace);
    ordo_plan_destroy(plan);
}

/* ---- simulator and I/O model ---- */

static void ask_timeline(answers *a)
{
    begin(a, "timeline");
    for (int64_t keys = 3; keys < 12; keys++) {
        ordo_schedule s = ORDO_SCHEDULE_INIT;
        ordo_timeline *timeline = NULL;
        ordo_timeline_info info = { 0 };
        ordo_order order = ORDO_ORDER_DEFAULT;
        s.mask = ORDO_MASK_CAUSAL;
        s.key_tiles = keys;
        s.heads = 3;
        s.workers = 7;
        s.order = ORDO_ORDER_SPT;
        s.compute = 5;
        s.reduce = 2;
        ASK(ordo_timeline_create(&timeline, &s));
        ASK(ordo_timeline_query(timeline, &info));
        NOTE(info.utilization);
        NOTE(info.makespan);
        ordo_timeline_destroy(timeline);
        ASK(ordo_schedule_auto(&s, &order));
        NOTE(order);
        s.workers = -1;
        ASK(ordo_timeline_create(&timeline, &s));
    }
}

static void ask_io(answers *a, ordo_io_pass pass)
{
    begin(a, ordo_io_pass_name(pass));
    ordo_io_problem problem = ORDO_IO_PROBLEM_INIT;
    ordo_io_bound bound = { 0 };
    ordo_io_choice choice = { 0 };
    ordo_io_words words = { 0 };
    ordo_io_report report = { 0 };
    ordo_io_cache cache = ORDO_IO_CACHE_INIT;
    static ordo_io_words curve[64];
    problem.pass = pass;
    problem.q_len = 37;
    problem.head_dim = 11;
    problem.dropout_p = pass == ORDO_IO_GRADIENT ? 0 : 0.6;
    problem.workspace_words = 1 << 20;
    cache.replacement = ORDO_IO_LRU;
    cache.budget = 0.7;
    for (problem.cache_words = 100; problem.cache_words < 2000; problem.cache_words *= 3) {
        for (int x = 0; x < ORDO_IO_BOUND_COUNT; x++) {
            ASK(ordo_io_bound_at(&problem, x, &bound));
            NOTE(bound.words);
        }
        ASK(ordo_io_bound_best(&problem, &bound));
        NOTE(bound.words);
        ASK(ordo_io_choose(&problem, ORDO_IO_BEST, NULL, &choice));
        NOTE(choice.tiles);
        ASK(ordo_io_predict(&problem, ORDO_IO_BEST, NULL, &words));
        NOTE(words);
        ASK(ordo_io_run(&problem, ORDO_IO_BEST, NULL, &report));
        NOTE(report.loads);
        NOTE(report.error);
        ASK(ordo_io_cache_run(&problem, ORDO_IO_BEST, NULL, &cache, &report, NULL));
        NOTE(report.loads);
        NOTE(report.error);
        ASK(ordo_io_curve(&problem, ORDO_IO_BEST, NULL, 1, false, curve, 64, &report));
        NOTE(curve);
    }
    ASK(ordo_io_bound_at(&problem, -1, &bound));
    problem.dropout_p = 1.5;
    ASK(ordo_io_run(&problem, ORDO_IO_BEST, NULL, &report));
    ASK(ordo_io_cache_run(&problem, ORDO_IO_BEST, NULL, &cache, &report, NULL));
}

static void ask_levels(answers *a, const ordo_machine *machine)
{
    begin(a, "levels");
    const ordo_problem problem = problem_of(72, 0, ORDO_KEYING_ORDO);
    const ordo_io_sparse sparse = { .z_in = 1001, .z_qk = 33333, .z_x = 77, .z_ax = 901, .m = 1e4 };
    bool end = false;
    for (int x = 0; !end; x++) {
        ordo_io_level level = { 0 };
        ordo_io_advice advice = { 0 };
        ASK(ordo_io_level_at(machine, ORDO_BF16, x, &level, &end));
        NOTE(level.bytes_per_s);
        NOTE(level.small_dim);
        ASK(ordo_io_advise(machine, &problem, ORDO_IO_BACKWARD, x, &advice, &end));
        NOTE(advice.cache_words);
        NOTE(advice.bound.words);
        NOTE(advice.bytes);
        NOTE(advice.ns);
    }
    for (int64_t dim = 8; dim < 512; dim += 24) {
        ordo_io_bytes bytes = { 0 };
        ASK(ordo_io_hopper(machine, dim, &bytes));
        NOTE(bytes);
    }
    const uint64_t before = control();
    const double form = ordo_io_sparse_form(&sparse);
    note_status(a, ORDO_OK, before);
    NOTE(form);
    ordo_device device;
    ordo_machine *none = NULL;
    double seconds;
    ASK(ordo_device_query(-1, &device));
    ASK(ordo_device_machine(-1, &none));
    ASK(ordo_device_event_elapsed(NULL, NULL, &seconds));
}

/* ---- all of them ---- */

static ordo_machine *h200, *zen4;
static ordo_plan *priced;

static void collect(answers *a, uint64_t word)
{
    *a = (answers) { .groups = 0 };
    const uint64_t usual = control();
    set_control(word);
    ask_machines(a);
    ask_model(a, h200, priced);
    ask_plans(a, h200);
    ask_plans(a, zen4);
    ask_dropout(a);
    begin(a, "ref");
    ask_pass(a, ORDO_BACKEND_REF);
    begin(a, "cpu");
    ask_pass(a, ORDO_BACKEND_CPU);
    ask_timeline(a);
    for (int pass = ORDO_IO_FORWARD; pass <= ORDO_IO_GRADIENT; pass++)
        ask_io(a, (ordo_io_pass)pass);
    ask_levels(a, h200);
    set_control(usual);
    feclearexcept(FE_ALL_EXCEPT);
}

static void same(const answers *one, const answers *other, uint64_t word)
{
    CHECK_INT(other->changed, 0);
    CHECK_INT(other->refused, one->refused);
    for (int g = 0; g < one->groups; g++) {
        CHECK_INT(other->group[g].count, one->group[g].count);
        if (other->group[g].hash != one->group[g].hash)
            CHECK_FAIL("%s answers otherwise under control word %#" PRIx64, one->group[g].name,
                       word);
    }
}

static void open_all(void)
{
    if (priced)
        return;
    const ordo_problem problem = problem_of(64, 0.1, ORDO_KEYING_ORDO);
    CHECK(ordo_machine_create(&h200, "h200") == ORDO_OK);
    CHECK(ordo_machine_create(&zen4, "zen4") == ORDO_OK);
    CHECK(ordo_plan_create(&priced, &problem, h200, NULL) == ORDO_OK);
}

TEST(rounding_and_flushing)
{
    answers usual, again;
    open_all();
    collect(&usual, control());
    CHECK_INT(usual.changed, 0);
    for (int x = 0; x < MODES; x++) {
        collect(&again, modes[x]);
        same(&usual, &again, modes[x]);
    }
}

/* With every exception unmasked, a computation that is not shielded ends the program. */
TEST(traps)
{
    answers usual, again;
    open_all();
    collect(&usual, control());
    collect(&again, all_traps);
    same(&usual, &again, all_traps);
}

CHECK_MAIN()
