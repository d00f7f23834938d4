/* plan_requests.h: plans for tests, from requests that are fine but for what a test changes. */
#ifndef TESTS_API_PLAN_REQUESTS_H
#define TESTS_API_PLAN_REQUESTS_H

#include "check.h"
#include "ordo/plan.h"
#include "planner/choose.h"
#include "planner/legal.h"

/* What a plan is made of. `machine` NULL: left to ordo. */
typedef struct request {
    const char *machine;
    ordo_problem problem;
    ordo_plan_options options;
} request;

/* A causal problem on an H200: its tiles are 64x128 in the backward pass. */
static inline request on_h200(void)
{
    return (request) { .machine = "h200",
                       .problem = { .size = sizeof(ordo_problem),
                                    .dtype = ORDO_BF16,
                                    .batch = 2,
                                    .heads = 8,
                                    .q_len = 1024,
                                    .head_dim = 128,
                                    .mask = ORDO_MASK_CAUSAL },
                       .options = ORDO_PLAN_OPTIONS_INIT };
}

static inline request on_host(void)
{
    request r = on_h200();
    r.machine = "host";
    r.options.workers = 8;
    return r;
}

static inline request on_ref(void)
{
    request r = on_h200();
    r.machine = NULL;
    r.options.backend = ORDO_BACKEND_REF;
    return r;
}

static inline request packed(request r)
{
    r.problem.layout = ORDO_PACKED;
    r.problem.total_q = r.problem.q_len + 1;
    return r;
}

static inline ordo_status create(const request *r, ordo_plan **plan)
{
    ordo_machine *machine = NULL;
    if (r->machine && ordo_machine_create(&machine, r->machine) != ORDO_OK)
        return ORDO_ERR_INTERNAL;
    const ordo_status status = ordo_plan_create(plan, &r->problem, machine, &r->options);
    ordo_machine_destroy(machine);
    return status;
}

static inline ordo_plan *make(const request *r)
{
    ordo_plan *plan = NULL;
    if (create(r, &plan) != ORDO_OK) {
        printf("  refused: %s\n", ordo_last_error());
        exit(1);
    }
    return plan;
}

static inline ordo_plan_info info_of(const request *r)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_plan *plan = make(r);
    CHECK(ordo_plan_query(plan, &info) == ORDO_OK);
    CHECK_INT(info.backward_workspace_bytes, ordo_plan_workspace(plan));
    ordo_plan_destroy(plan);
    return info;
}

/* A plan with an order and backward tiles that its backend may refuse. What src/plan says of orders
 * holds for all of them, and the simulator uses it. */
static inline ordo_plan *make_study(const request *r, ordo_order order, ordo_tile tile)
{
    ordo_plan *plan = make(r);
    plan->backward_tile = tile;
    plan->order_asked = order;
    plan->order = ordo_plan_replaced_order(plan);
    plan->group = !ordo_order_cyclic(plan->order) ? 0 : plan->order == ORDO_ORDER_SHIFT ? 32 : 16;
    ordo_plan_annotate(plan);
    return plan;
}

#endif
