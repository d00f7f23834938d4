/* audit.c: compare the outputs of a pass with what the emulator computes. */
#include "ordo/audit.h"

#include "api/call.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "emulator/run.h"

/* A plan and a call that can be audited: `own` is the plan as the emulator runs it. */
typedef struct audit {
    ordo_plan own;
    ordo_call call;
    ordo_block_mask mask;
    ordo_pass pass;
    bool empty; /* no unit */
} audit;

static ordo_status open_audit(audit *a, const ordo_plan *plan, const ordo_call *call,
                              ordo_audit_pass pass)
{
    if (!plan)
        return ordo_fail(ORDO_ERR_ARGUMENT, "plan NULL: expected a plan");
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
    if (a->pass == ORDO_BACKWARD && a->call.carry)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "carry %u: an audit expects 0, because the sums that the call began with "
                         "are gone",
                         a->call.carry);
    a->empty = ordo_problem_empty(&a->own.problem);
    return ORDO_OK;
}

static ordo_status missing(const char *name)
{
    return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected a pointer", name);
}

static ordo_status no_unit(int64_t index, int64_t count)
{
    return index == 0 && count == 0 ? ORDO_OK
                                    : ordo_fail(ORDO_ERR_ARGUMENT,
                                                "index %lld, count %lld: an empty problem has no "
                                                "units",
                                                (long long)index, (long long)count);
}

ordo_status ordo_audit_unit_count(const ordo_plan *plan, const ordo_call *call,
                                  ordo_audit_pass pass, int64_t *count)
{
    ORDO_DEFAULT_ENVIRONMENT;
    audit a;
    if (!count)
        return missing("count");
    ORDO_TRY(open_audit(&a, plan, call, pass));
    *count = 0;
    return a.empty ? ORDO_OK : ordo_emulator_unit_count(&a.own, &a.call, a.pass, count);
}

ordo_status ordo_audit_unit_describe(const ordo_plan *plan, const ordo_call *call,
                                     ordo_audit_pass pass, int64_t index, ordo_audit_unit *unit)
{
    ORDO_DEFAULT_ENVIRONMENT;
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_audit_unit, "unit", ORDO_AUDIT_UNIT_INIT, NULL);
    audit a;
    ordo_audit_unit found = ORDO_AUDIT_UNIT_INIT;
    if (!unit)
        return missing("unit");
    ORDO_TRY(open_audit(&a, plan, call, pass));
    if (a.empty)
        return no_unit(index, 1);
    ORDO_TRY(ordo_emulator_unit_describe(&a.own, &a.call, a.pass, index, &found));
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
    if (!difference)
        return missing("difference");
    ORDO_TRY(open_audit(&a, plan, call, pass));
    ORDO_TRY(a.empty ? no_unit(index, count)
                     : ordo_emulator_check(&a.own, &a.call, a.pass, index, count, &found));
    return ordo_versioned_answer(difference, &found, &kind);
}
