/* names.c: constants of problems and plans as the command and the plan's line spell them. */
#include <string.h>

#include "base/status.h"
#include "ordo/dropout.h"
#include "ordo/plan.h"

#define NAME(table, index)                                                                         \
    ((size_t)(index) < sizeof table / sizeof *table ? table[index] : "unknown")

const char *ordo_dtype_name(ordo_dtype dtype)
{
    static const char *const names[] = { "f32", "bf16", "f16", "e4m3" };
    return NAME(names, dtype);
}

const char *ordo_layout_name(ordo_layout layout)
{
    static const char *const names[] = { "dense", "packed", "padded" };
    return NAME(names, layout);
}

const char *ordo_keying_name(ordo_keying keying)
{
    static const char *const names[] = { "ordo", "fa2" };
    return NAME(names, keying);
}

const char *ordo_dropout_mode_name(ordo_dropout_mode mode)
{
    static const char *const names[] = { "sequential", "fused", "overlapped", "pipelined" };
    return NAME(names, mode);
}

const char *ordo_backend_name(ordo_backend backend)
{
    static const char *const names[] = { "default", "ref", "cpu", "cuda", "emulator" };
    return NAME(names, backend);
}

const char *ordo_order_name(ordo_order order)
{
    static const char *const names[] = { "default",   "ascending", "descending", "shift",
                                         "symmetric", "spt",       "twin",       "spt+tail" };
    return NAME(names, order);
}

const char *ordo_issue_name(ordo_issue issue)
{
    static const char *const names[] = { "default", "head", "key" };
    return NAME(names, issue);
}

const char *ordo_assign_name(ordo_assign assign)
{
    static const char *const names[] = { "default", "pinned", "first-free" };
    return NAME(names, assign);
}

const char *ordo_promise_name(ordo_promise level)
{
    switch (level) {
    case ORDO_PROMISE_REPEAT: return "repeat";
    case ORDO_PROMISE_PORTABLE: return "portable";
    case ORDO_PROMISE_BATCH: return "batch";
    case ORDO_PROMISE_SPLIT: return "split";
    case ORDO_PROMISE_KEEP_BITS: return "keep-bits";
    case ORDO_PROMISE_CUT: return "cut";
    }
    return "unknown";
}

const char *ordo_form_name(ordo_form form)
{
    static const char *const names[] = { "flash", "apart", "phase", "chain" };
    return NAME(names, form);
}

ordo_status ordo_order_from_name(const char *name, ordo_order *order)
{
    ORDO_TRY(ordo_check_pointer("name", name));
    ORDO_TRY(ordo_check_pointer("order", order));
    for (int i = 1; i <= ORDO_ORDER_COUNT; i++)
        if (strcmp(name, ordo_order_name((ordo_order)i)) == 0) {
            *order = (ordo_order)i;
            return ORDO_OK;
        }
    return ordo_fail(ORDO_ERR_ARGUMENT,
                     "order \"%.40s\": expected ascending, descending, shift, symmetric, spt, twin "
                     "or spt+tail",
                     name);
}
