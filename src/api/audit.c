/* audit.c: compare the outputs of a pass with what the emulator computes. */
#include "ordo/audit.h"

#include "api/audit_blank.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "emulator/run.h"

/* A plan and a call that can be audited: `own` is the plan as the emulator runs it. The last unit
 * has the blank rows, if there are any. */
typedef struct audit {
    ordo_plan own;
    ordo_call call;
    ordo_block_mask mask;
    ordo_pass pass;
    bool empty;    /* no unit of the emulator */
    int64_t units; /* units of the emulator */
    int64_t blank_rows;
} audit;

static ordo_status check_expected(const audit *a)
{
    if (a->pass == ORDO_BACKWARD && a->call.carry)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "carry %u: an audit expects 0, because the sums that the call began with "
                         "are gone",
                         a->call.carry);
    if (a->empty && a->call.sink)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "sink given, kv_len %lld: an audit expects keys, as backend cuda does",
                         (long long)a->own.problem.kv_len);
    return ORDO_OK;
}

static ordo_status open_audit(audit *a, const ordo_plan *plan, const ordo_call *call,
                              ordo_audit_pass pass)
{
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_range("pass", (int)pass, ORDO_AUDIT_FORWARD, ORDO_AUDIT_BACKWARD));
    if (!ordo_plan_of_kernels(plan))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "backend %s: an audit expects a plan of backend cuda or emulator",
                         ordo_backend_name(plan->backend));
    a->own = *plan;
    a->own.backend = ORDO_BACKEND_EMULATOR;
    a->own.segments = 0; /* which change no bit */
    a->pass = pass == ORDO_AUDIT_FORWARD ? ORDO_FORWARD : ORDO_BACKWARD;
    ORDO_TRY(ordo_call_check(&a->own.problem, a->pass, true, 0, call, &a->call, &a->mask));
    a->empty = ordo_problem_empty(&a->own.problem);
    ORDO_TRY(check_expected(a));
    a->units = 0;
    a->blank_rows = ordo_audit_blank_rows(&a->own.problem, a->pass, &a->call);
    return a->empty ? ORDO_OK : ordo_emulator_unit_count(&a->own, &a->call, a->pass, &a->units);
}

static int64_t count_units(const audit *a)
{
    return a->units + (a->blank_rows > 0);
}

static ordo_status check_index(const audit *a, int64_t index, int64_t count)
{
    const int64_t units = count_units(a);
    if (index < 0 || count < 0 || index > units || count > units - index)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "index %lld, count %lld: expected units among the %lld of this pass",
                         (long long)index, (long long)count, (long long)units);
    return ORDO_OK;
}

ordo_status ordo_audit_unit_count(const ordo_plan *plan, const ordo_call *call,
                                  ordo_audit_pass pass, int64_t *count)
{
    ORDO_DEFAULT_ENVIRONMENT;
    audit a;
    ORDO_TRY(ordo_check_pointer("count", count));
    ORDO_TRY(open_audit(&a, plan, call, pass));
    *count = count_units(&a);
    return ORDO_OK;
}

ordo_status ordo_audit_unit_describe(const ordo_plan *plan, const ordo_call *call,
                                     ordo_audit_pass pass, int64_t index, ordo_audit_unit *unit)
{
    ORDO_DEFAULT_ENVIRONMENT;
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_audit_unit, "unit", ORDO_AUDIT_UNIT_INIT, NULL);
    audit a;
    ordo_audit_unit found = ORDO_AUDIT_UNIT_INIT;
    ORDO_TRY(ordo_check_pointer("unit", unit));
    ORDO_TRY(open_audit(&a, plan, call, pass));
    ORDO_TRY(check_index(&a, index, 1));
    if (index < a.units) {
        ORDO_TRY(ordo_emulator_unit_describe(&a.own, &a.call, a.pass, index, &found));
    } else {
        found.kind = ORDO_AUDIT_BLANK;
        found.rows = a.blank_rows;
    }
    return ordo_versioned_answer(unit, &found, &kind);
}

ordo_status ordo_audit_check(const ordo_plan *plan, const ordo_call *call, ordo_audit_pass pass,
                             int64_t index, int64_t count, ordo_audit_difference *difference)
{
    ORDO_DEFAULT_ENVIRONMENT;
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_audit_difference, "difference", ORDO_AUDIT_DIFFERENCE_INIT, NULL);
    audit a;
    ordo_audit_difference found = ORDO_AUDIT_DIFFERENCE_INIT;
    ORDO_TRY(ordo_check_pointer("difference", difference));
    ORDO_TRY(open_audit(&a, plan, call, pass));
    ORDO_TRY(check_index(&a, index, count));
    const bool blank = count > 0 && index + count > a.units;
    const int64_t computed = count - blank;
    ordo_status status = ORDO_OK;
    if (computed > 0)
        status = ordo_emulator_check(&a.own, &a.call, a.pass, index, computed, &found);
    if (status != ORDO_OK && status != ORDO_ERR_UNSUPPORTED)
        return status;
    if (blank && !found.differs)
        ordo_audit_blank_check(&a.own.problem, a.pass, &a.call, &found);
    return found.differs || status == ORDO_OK ? ordo_versioned_answer(difference, &found, &kind)
                                              : status;
}
