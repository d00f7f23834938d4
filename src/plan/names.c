/* names.c: constants of a plan as the command and the plan's line spell them. */
#include <string.h>

#include "base/status.h"
#include "ordo/plan.h"

static const char *const orders[] = { "default",   "ascending", "descending", "shift",
                                      "symmetric", "spt",       "twin",       "spt+tail" };
static const char *const issues[] = { "default", "head", "key" };
static const char *const assigns[] = { "default", "pinned", "first-free" };
static const char *const backends[] = { "default", "ref", "cpu", "cuda" };

#define NAME(table, index)                                                                         \
    ((size_t)(index) < sizeof table / sizeof *table ? table[index] : "unknown")

const char *ordo_order_name(ordo_order order)
{
    return NAME(orders, order);
}

const char *ordo_issue_name(ordo_issue issue)
{
    return NAME(issues, issue);
}

const char *ordo_assign_name(ordo_assign assign)
{
    return NAME(assigns, assign);
}

const char *ordo_backend_name(ordo_backend backend)
{
    return NAME(backends, backend);
}

const char *ordo_promise_name(ordo_promise level)
{
    switch (level) {
    case ORDO_PROMISE_REPEAT: return "repeat";
    case ORDO_PROMISE_PORTABLE: return "portable";
    case ORDO_PROMISE_BATCH: return "batch";
    case ORDO_PROMISE_SPLIT: return "split";
    case ORDO_PROMISE_MASK: return "mask";
    }
    return "unknown";
}

ordo_status ordo_order_from_name(const char *name, ordo_order *order)
{
    if (!name || !order)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s: expected a pointer", name ? "order" : "name");
    for (int i = 1; i <= ORDO_ORDER_COUNT; i++)
        if (strcmp(name, orders[i]) == 0) {
            *order = (ordo_order)i;
            return ORDO_OK;
        }
    return ordo_fail(ORDO_ERR_ARGUMENT,
                     "order \"%.40s\": expected ascending, descending, shift, symmetric, spt, twin "
                     "or spt+tail",
                     name);
}
