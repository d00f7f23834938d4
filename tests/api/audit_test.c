/* audit_test.c: an audit finds a wrong bit in any output, says where, and finds nothing else. */
#include "attention_case.h"
#include "ordo/audit.h"

static ordo_plan *plan_on(const attention_case *c, ordo_backend backend)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *h200 = NULL;
    ordo_plan *plan = NULL;
    options.backend = backend;
    CHECK(ordo_machine_create(&h200, "h200") == ORDO_OK);
    if (ordo_plan_create(&plan, &c->problem, h200, &options) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_machine_destroy(h200);
    return plan;
}

/* Two sequences, groups of heads, a causal mask, several tiles. */
static void open_case(attention_case *c, ordo_layout layout, int64_t dim)
{
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT,
                            .q_lens = { 150, 97 },
                            .kv_lens = { 150, 200 },
                            .cu_q = { 0, 150, 247 },
                            .cu_kv = { 0, 150, 350 } };
    ordo_problem *p = &c->problem;
    p->dtype = ORDO_BF16;
    p->layout = layout;
    p->batch = 2;
    p->heads = 4;
    p->kv_heads = 2;
    p->q_len = 150;
    p->kv_len = layout == ORDO_DENSE ? 150 : 200;
    p->head_dim = p->v_head_dim = dim;
    p->mask = ORDO_MASK_CAUSAL;
    p->total_q = layout == ORDO_PACKED ? 257 : 0; /* 10 rows and 3 keys belong to none */
    p->total_kv = layout == ORDO_PACKED ? 353 : 0;
    c->sinks = true;
    case_open(c, 11);
}

static ordo_audit_difference check(const ordo_plan *plan, const attention_case *c,
                                   ordo_audit_pass pass)
{
    ordo_audit_difference d = ORDO_AUDIT_DIFFERENCE_INIT;
    int64_t count = -1;
    if (ordo_audit_unit_count(plan, &c->call, pass, &count) != ORDO_OK ||
        ordo_audit_check(plan, &c->call, pass, 0, count, &d) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    return d;
}

/* Results of the emulator, in which neither backend finds a difference; the plan of cuda. */
static ordo_plan *run_emulated(attention_case *c)
{
    ordo_plan *emulator = plan_on(c, ORDO_BACKEND_EMULATOR), *cuda = plan_on(c, ORDO_BACKEND_CUDA);
    if (case_run(c, emulator, 2) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    CHECK(!check(emulator, c, ORDO_AUDIT_FORWARD).differs);
    CHECK(!check(cuda, c, ORDO_AUDIT_FORWARD).differs);
    CHECK(!check(cuda, c, ORDO_AUDIT_BACKWARD).differs);
    ordo_plan_destroy(emulator);
    return cuda;
}

/* Every unit is described, and together they have every row of every head once. */
static void check_units(const ordo_plan *plan, const attention_case *c)
{
    const ordo_problem *p = &c->problem;
    int64_t rows[ORDO_AUDIT_BLANK + 1] = { 0 }, q = 0, kv = 0, count = 0;
    const int64_t sinks = c->sinks ? p->batch * p->heads : 0;
    for (int pass = 0; pass < 2; pass++) {
        CHECK(ordo_audit_unit_count(plan, &c->call, (ordo_audit_pass)pass, &count) == ORDO_OK);
        for (int64_t x = 0; x < count; x++) {
            ordo_audit_unit unit = ORDO_AUDIT_UNIT_INIT;
            CHECK(ordo_audit_unit_describe(plan, &c->call, (ordo_audit_pass)pass, x, &unit) ==
                  ORDO_OK);
            CHECK(unit.rows > 0 && (unit.scores > 0) == (unit.kind != ORDO_AUDIT_DSINK &&
                                                         unit.kind != ORDO_AUDIT_BLANK));
            rows[unit.kind] += unit.kind == ORDO_AUDIT_DSINK ? 1 : unit.rows;
        }
    }
    for (int64_t b = 0; b < p->batch; b++) {
        q += case_length(c, false, b);
        kv += case_length(c, true, b);
    }
    CHECK_INT(rows[ORDO_AUDIT_O], q * p->heads);
    CHECK_INT(rows[ORDO_AUDIT_DQ], q * p->heads);
    CHECK_INT(rows[ORDO_AUDIT_DK_DV], kv * p->kv_heads);
    CHECK_INT(rows[ORDO_AUDIT_DSINK], sinks);
    CHECK_INT(rows[ORDO_AUDIT_DBIAS],
              p->bias.on ? ordo_bias_sequences(p) * ordo_bias_heads(p) * p->q_len : 0);
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t all_q = packed ? p->total_q : p->batch * p->q_len,
                  all_kv = packed ? p->total_kv : p->batch * p->kv_len;
    CHECK_INT(rows[ORDO_AUDIT_BLANK], 2 * (all_q - q) + all_kv - kv);
}

/* One bit of element `column` of a row of an output. */
static void check_flip(const ordo_plan *plan, attention_case *c, int output, int64_t b, int64_t row,
                       int64_t head, int64_t column)
{
    const bool keys = output >= 3, lse = output == 1;
    const int64_t dim = c->problem.head_dim;
    const ordo_audit_pass pass = output < 2 ? ORDO_AUDIT_FORWARD : ORDO_AUDIT_BACKWARD;
    const size_t at =
        lse ? case_lse_at(c, b, row, head) : case_at(c, keys, dim, b, row, head) + (size_t)column;
    const case_results r = case_outputs(c);
    r.data[output][at * r.width[output]] ^= 1;
    const ordo_audit_difference d = check(plan, c, pass);
    CHECK(d.differs);
    CHECK_TEXT(d.tensor, case_output_names[output]);
    CHECK_INT(d.sequence, b);
    CHECK_INT(d.row, row);
    CHECK_INT(d.head, head);
    CHECK_INT(d.column, lse ? 0 : column);
    CHECK_INT(d.count, 1);
    CHECK_INT(d.found ^ d.expected, 1);
    CHECK(d.found_value != d.expected_value);
    r.data[output][at * r.width[output]] ^= 1;
}

static void check_case(ordo_layout layout, int64_t dim)
{
    attention_case c;
    open_case(&c, layout, dim);
    ordo_plan *cuda = run_emulated(&c);
    check_units(cuda, &c);
    for (int output = 0; output < CASE_OUTPUTS; output++)
        check_flip(cuda, &c, output, 1, 70 + output, output >= 3 ? 1 : 3, dim - 1 - output);
    ordo_plan_destroy(cuda);
    case_close(&c);
}

TEST(a_wrong_bit_is_found_where_it_is)
{
    check_case(ORDO_DENSE, 64);
    check_case(ORDO_PACKED, 128);
    check_case(ORDO_PADDED, 136);
}

/* One bit of any element that a pass writes, rows of no sequence and dsink included. */
static void check_every_element(ordo_layout layout)
{
    attention_case c;
    open_case(&c, layout, 64);
    ordo_plan *cuda = run_emulated(&c);
    check_units(cuda, &c);
    const case_results r = case_outputs(&c);
    const size_t counts[] = { c.o_count, c.lse_count, c.q_count, c.k_count, c.v_count };
    for (int output = 0; output < CASE_OUTPUTS; output++)
        for (size_t at = 0; at < counts[output]; at += counts[output] / 23) {
            r.data[output][at * r.width[output] + 1] ^= 4;
            const ordo_audit_difference d =
                check(cuda, &c, output < 2 ? ORDO_AUDIT_FORWARD : ORDO_AUDIT_BACKWARD);
            CHECK(d.differs && d.count == 1 && (d.found ^ d.expected) == 0x400);
            CHECK_TEXT(d.tensor, case_output_names[output]);
            r.data[output][at * r.width[output] + 1] ^= 4;
        }
    for (int64_t at = 0; at < c.problem.batch * c.problem.heads; at++) {
        const float kept = c.dsink_parts[at];
        c.dsink_parts[at] = nextafterf(kept, 2);
        const ordo_audit_difference d = check(cuda, &c, ORDO_AUDIT_BACKWARD);
        CHECK(d.differs && d.count == 1);
        CHECK_TEXT(d.tensor, "dsink");
        CHECK_INT(d.sequence * c.problem.heads + d.head, at);
        c.dsink_parts[at] = kept;
    }
    ordo_plan_destroy(cuda);
    case_close(&c);
}

TEST(a_wrong_bit_of_dbias_is_found_where_it_is)
{
    attention_case c;
    open_case(&c, ORDO_PADDED, 64);
    c.problem.bias = (ordo_bias) { .on = true, .per_head = true };
    case_fill_bias(&c, 4);
    ordo_plan *plan = plan_on(&c, ORDO_BACKEND_EMULATOR);
    if (case_run(&c, plan, 2) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    check_units(plan, &c);
    CHECK(!check(plan, &c, ORDO_AUDIT_BACKWARD).differs);
    for (size_t at = 0; at < c.bias_count; at += c.bias_count / 13) {
        const float was = c.call.dbias[at];
        c.call.dbias[at] = nextafterf(was, 2);
        const ordo_audit_difference d = check(plan, &c, ORDO_AUDIT_BACKWARD);
        CHECK(d.differs && d.count == 1);
        CHECK_TEXT(d.tensor, "dbias");
        CHECK_INT((d.head * c.problem.q_len + d.row) * c.problem.kv_len + d.column, (int64_t)at);
        c.call.dbias[at] = was;
    }
    ordo_plan_destroy(plan);
    case_close(&c);
}

TEST(every_element_is_in_a_unit)
{
    check_every_element(ORDO_DENSE);
    check_every_element(ORDO_PADDED);
    check_every_element(ORDO_PACKED);
}

/* Rows without a key at all: o is 0 and lse -inf. */
TEST(an_empty_problem_has_a_unit)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT };
    c.problem.dtype = ORDO_BF16;
    c.problem.batch = 2;
    c.problem.heads = c.problem.kv_heads = 1;
    c.problem.q_len = 5;
    c.problem.head_dim = c.problem.v_head_dim = 64;
    c.problem.kv_len = 5;
    case_open(&c, 3);
    c.problem.kv_len = ORDO_NO_KEYS;
    ordo_plan *cuda = run_emulated(&c);
    c.call.lse[7] = 0;
    const ordo_audit_difference d = check(cuda, &c, ORDO_AUDIT_FORWARD);
    CHECK(d.differs && d.sequence == 1 && d.row == 2 && d.expected == 0xff800000u);
    ((uint16_t *)c.call.dq.data)[9 * 64 + 63] = 0x8000;
    CHECK(check(cuda, &c, ORDO_AUDIT_BACKWARD).differs);
    ordo_plan_destroy(cuda);
    case_close(&c);
}

/* A NaN in an output is a difference. Beside one in an input there are rows that the emulator does
 * not know: if nothing else differs, the answer is neither equal nor different. */
TEST(what_is_not_finite)
{
    attention_case c;
    ordo_audit_difference d = ORDO_AUDIT_DIFFERENCE_INIT;
    int64_t count = 0;
    open_case(&c, ORDO_DENSE, 64);
    ordo_plan *cuda = run_emulated(&c);
    uint16_t *const o = c.call.o.data, *const v = c.call.v.data, kept = o[5];
    o[5] = 0x7fff;
    d = check(cuda, &c, ORDO_AUDIT_FORWARD);
    CHECK(d.differs && d.column == 5 && d.found == 0x7fff && d.expected == kept);
    o[5] = kept;
    v[c.v_count - 1] = 0x7f80; /* infinity, in the last key's value */
    CHECK(ordo_audit_unit_count(cuda, &c.call, ORDO_AUDIT_FORWARD, &count) == ORDO_OK);
    CHECK_INT(ordo_audit_check(cuda, &c.call, ORDO_AUDIT_FORWARD, 0, count, &d),
              ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(ordo_last_error(), "NaN or infinity in an input");
    o[5] ^= 1;
    d = check(cuda, &c, ORDO_AUDIT_FORWARD);
    CHECK(d.differs && d.row == 0 && d.column == 5 && d.count == 1);
    ordo_plan_destroy(cuda);
    case_close(&c);
}

/* No unit is compared where none is named, whichever the index is. */
TEST(no_units_have_no_difference)
{
    attention_case c;
    int64_t count = 0;
    open_case(&c, ORDO_PADDED, 64);
    ordo_plan *cuda = run_emulated(&c);
    CHECK(ordo_audit_unit_count(cuda, &c.call, ORDO_AUDIT_FORWARD, &count) == ORDO_OK);
    for (int64_t b = 1; b <= c.problem.batch; b++) /* some of these rows belong to no sequence */
        c.call.lse[b * c.problem.heads * c.problem.q_len - 1] = 1;
    CHECK(check(cuda, &c, ORDO_AUDIT_FORWARD).differs);
    for (int64_t index = 0; index <= count; index++) {
        ordo_audit_difference d = ORDO_AUDIT_DIFFERENCE_INIT;
        CHECK(ordo_audit_check(cuda, &c.call, ORDO_AUDIT_FORWARD, index, 0, &d) == ORDO_OK);
        CHECK(!d.differs && d.count == 0);
    }
    ordo_plan_destroy(cuda);
    case_close(&c);
}

TEST(what_cannot_be_audited_is_named)
{
    attention_case c;
    ordo_audit_difference d = ORDO_AUDIT_DIFFERENCE_INIT;
    int64_t count = 0;
    open_case(&c, ORDO_DENSE, 64);
    ordo_plan *plan = plan_on(&c, ORDO_BACKEND_CUDA), *cpu = case_plan(&c, NULL);
    CHECK(ordo_audit_unit_count(plan, &c.call, ORDO_AUDIT_BACKWARD, &count) == ORDO_OK);
    CHECK_INT(ordo_audit_check(plan, &c.call, ORDO_AUDIT_BACKWARD, count, 1, &d),
              ORDO_ERR_ARGUMENT);
    CHECK_HAS(ordo_last_error(), "index");
    CHECK_INT(ordo_audit_check(plan, &c.call, (ordo_audit_pass)2, 0, 1, &d), ORDO_ERR_ARGUMENT);
    CHECK_REFUSED(ordo_audit_check(cpu, &c.call, ORDO_AUDIT_FORWARD, 0, 1, &d),
                  ORDO_ERR_UNSUPPORTED, "backend cpu");
    CHECK_INT(ordo_audit_check(NULL, &c.call, ORDO_AUDIT_FORWARD, 0, 1, &d), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_audit_check(plan, &c.call, ORDO_AUDIT_FORWARD, 0, 1, NULL), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_audit_check(plan, NULL, ORDO_AUDIT_FORWARD, 0, 1, &d), ORDO_ERR_ARGUMENT);
    ordo_plan_destroy(plan);
    ordo_plan_destroy(cpu);
    case_close(&c);
}

CHECK_MAIN()
