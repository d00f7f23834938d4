/* problem_plan.c: a problem from the line of a plan, --plan. */
#include "kit/problem_args.h"

#include "kit/message.h"

#include <inttypes.h>
#include <string.h>

/* What a plan's line does not state. */
static bool stays(const char *name)
{
    static const char *const names[] = {
        "--cu-seqlens", "--cu-seqlens-kv", "--q-lens", "--kv-lens", "--block-mask",
        "--seen",       "--seed",          "--offset", "--threads", "--json",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Tensors are those of whole sequences and heads, and have elements. */
static int check_whole(const ordo_problem *p)
{
    const ordo_shard *s = &p->shard;
    if (p->batch < 1 || p->q_len < 1 || p->kv_len < 1)
        return cli_usage("--plan: batch %" PRId64 ", q_len %" PRId64 ", kv_len %" PRId64
                         ": expected 1 or more",
                         p->batch, p->q_len, p->kv_len);
    if (s->batch0 || s->head0 || s->row0 || s->col0 || s->heads_total != p->heads ||
        s->q_total != p->q_len || s->kv_total != p->kv_len)
        return cli_usage("--plan: a part of a problem (batch0 to kv_total); expected a whole one");
    return CLI_OK;
}

/* What other options are compared with, as if it were typed. */
static int take_words(cli_problem *p)
{
    const ordo_problem *from = &p->planned;
    const bool fits = cli_list_of(&p->batch, from->batch) && cli_list_of(&p->heads, from->heads) &&
                      cli_list_of(&p->seq, from->q_len) && cli_list_of(&p->dim, from->head_dim);
    p->kv_heads = from->kv_heads;
    p->kv_seq = from->kv_len;
    p->v_dim = from->v_head_dim;
    p->dtype = (int)from->dtype;
    p->dropout = from->dropout.p;
    return fits ? CLI_OK : cli_out_of_memory();
}

int cli_problem_read_plan(cli_problem *p)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    if (p->line == NULL || p->plan)
        return CLI_OK;
    for (size_t i = 0; i < CLI_PROBLEM_OPTIONS; i++)
        if (p->options[i].used && !stays(p->options[i].name))
            return cli_usage("%s: the line of --plan states it", p->options[i].name);
    CLI_TRY(cli_library(ordo_plan_parse(&p->plan, p->line)));
    CLI_TRY(cli_library(ordo_plan_query(p->plan, &info)));
    p->planned = (ordo_problem)ORDO_PROBLEM_INIT;
    CLI_TRY(cli_library(ordo_plan_problem(p->plan, &p->planned)));
    p->backend = info.backend;
    CLI_TRY(check_whole(&p->planned));
    return take_words(p);
}
