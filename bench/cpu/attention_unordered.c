/* What happens without an order: the same problem five times, adding as threads arrive.
 *
 * The problem is that of
 *   ordo run --heads 4 --seq 1k --mask causal --dropout 0.1 --seed 42
 * and its ordered digests are the ones that command prints. Threads are delayed at random before
 * they add, as other work on the machine would do. */
#define _GNU_SOURCE
#include "attention_unordered.h"
#include "kit/digest.c"
#include "kit/random.c"
#include "kit/tensors.c"

#include <inttypes.h>
#include <stdio.h>

enum { THREADS = 4, RUNS = 5 };

typedef ordo_status backward(const ordo_plan *plan, const ordo_call *call);

/* Largest distance of an element of dq from the first result, which is kept. */
static double distance(const cli_tensors *t, float *first, bool keep)
{
    const size_t bytes = cli_tensors_output_bytes(t, CLI_DQ);
    const float *dq = t->out[CLI_DQ];
    double most = 0;
    if (keep)
        memcpy(first, dq, bytes);
    for (size_t i = 0; i < bytes / sizeof *dq; i++)
        most = fmax(most, fabs((double)dq[i] - first[i]));
    return most;
}

/* Digests of several runs; how many different ones of dq. */
static int repeat(const char *name, backward *pass, const ordo_plan *plan, cli_tensors *t,
                  ordo_call *call, float *first)
{
    uint64_t seen[RUNS];
    int different = 0;
    for (int run = 0; run < RUNS; run++) {
        if (pass(plan, call) != ORDO_OK) {
            fprintf(stderr, "%s: %s\n", name, ordo_last_error());
            exit(1);
        }
        const uint64_t digest = cli_tensors_digest(t, CLI_DQ, -1);
        bool is_new = true;
        for (int i = 0; i < different; i++)
            is_new = is_new && seen[i] != digest;
        if (is_new)
            seen[different++] = digest;
        printf("%-10s run %d, %d threads   dq %016" PRIx64 "   dk %016" PRIx64
               "   largest change %.2g\n",
               name, run + 1, THREADS, digest, cli_tensors_digest(t, CLI_DK, -1),
               distance(t, first, run == 0));
    }
    return different;
}

int main(void)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    cli_tensors tensors;
    problem.batch = 1;
    problem.heads = 4;
    problem.q_len = 1024;
    problem.head_dim = 64;
    problem.mask = ORDO_MASK_CAUSAL;
    problem.dropout.p = 0.1;
    options.backend = ORDO_BACKEND_CPU;
    if (ordo_plan_create(&plan, &problem, NULL, &options) != ORDO_OK ||
        !cli_tensors_make(&tensors, plan, NULL, NULL, NULL, 42, false)) {
        fprintf(stderr, "no plan: %s\n", ordo_last_error());
        return 1;
    }
    float *first = malloc(cli_tensors_output_bytes(&tensors, CLI_DQ));
    ordo_call call = cli_tensors_call(&tensors);
    call.seed = 42;
    call.threads = THREADS;
    call.workspace_bytes = ordo_plan_workspace(plan); /* a multiple of 256 */
    call.workspace = aligned_alloc(256, call.workspace_bytes);
    if (!first || !call.workspace || ordo_attention_forward(plan, &call) != ORDO_OK) {
        fprintf(stderr, "forward: %s\n", ordo_last_error());
        free(call.workspace);
        free(first);
        return 1;
    }
    ordo_delay_turns(300);
    const int ordered = repeat("plan order", ordo_attention_backward, plan, &tensors, &call, first);
    ordo_delay_turns(0);
    arrival_delay = 300;
    const int unordered = repeat("arrival", backward_unordered, plan, &tensors, &call, first);
    printf("in plan order %d result%s, in order of arrival %d different ones, of %d runs\n",
           ordered, ordered == 1 ? "" : "s", unordered, RUNS);
    cli_tensors_free(&tensors);
    ordo_plan_destroy(plan);
    free(call.workspace);
    free(first);
    return ordered == 1 ? 0 : 1;
}
