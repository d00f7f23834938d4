/* The emulator's kernels one by one, for every target that this machine has: one thread, data in
 * its caches, the fastest of a few rounds. Products are of 64 x 128 x 128, as at head size 128; a
 * score of a forward pass takes 2 D of them, one of a backward pass 5 D. Then whole passes. */
#define _GNU_SOURCE
#include <stdio.h>

#include "base/half.h"
#include "emulator/kernels.h"
#include "emulator/special.h"
#include "kit/digest.c"
#include "kit/random.c"
#include "kit/tensors.c"
#include "measure.h"

enum { ROWS = 64, COLUMNS = 128, DEPTH = 128, ROUNDS = 9 };
#define SECONDS 0.02

typedef struct work {
    const ordo_emulator_kernels *kernels;
    ordo_emulator_tile a, b;
    float d[ROWS * COLUMNS], row[ROWS * COLUMNS];
    uint16_t half[ROWS * COLUMNS];
} work;

static _Alignas(64) char memory[2][DEPTH * COLUMNS * 6];

static void product(work *w)
{
    w->kernels->product(w->d, COLUMNS, ROWS, &w->a, 0, 0, &w->b, 0, 0, COLUMNS, DEPTH, true);
}
static void ex2(work *w)
{
    w->kernels->ex2_row(w->row, ROWS * COLUMNS);
}
static void round_all(work *w)
{
    w->kernels->round_row(w->half, w->row, ROWS * COLUMNS, w->a.dtype);
}
static void set(work *w)
{
    for (int i = 0; i < ROWS; i++)
        ordo_emulator_tile_set(&w->a, i, w->half + (size_t)i * COLUMNS, COLUMNS);
}

/* Operations per second, in G. */
static double rate(void (*operation)(work *), work *w, double count)
{
    double times[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        int calls = 0;
        const double begin = measure_seconds(CLOCK_THREAD_CPUTIME_ID);
        double now;
        do {
            operation(w);
            calls++;
        } while ((now = measure_seconds(CLOCK_THREAD_CPUTIME_ID)) - begin < SECONDS);
        times[r] = (now - begin) / calls;
    }
    return count / measure_spread(times, ROUNDS).low * 1e-9;
}

/* Numbers of usual size from a linear congruential generator. */
static void draw_operands(work *w, ordo_dtype dtype)
{
    uint32_t state = 1;
    ordo_emulator_tile_make(&w->a, ROWS, DEPTH, dtype, memory[0]);
    ordo_emulator_tile_make(&w->b, DEPTH, COLUMNS, dtype, memory[1]);
    for (int line = 0; line < ROWS + DEPTH; line++) {
        uint16_t half[DEPTH];
        for (int x = 0; x < DEPTH; x++) {
            state = state * 1664525u + 1013904223u;
            const float y = (float)(int32_t)state * 0x1p-30f;
            half[x] = ordo_emulator_round(y, dtype);
            w->row[line % ROWS * COLUMNS + x] = y;
        }
        if (line < ROWS)
            ordo_emulator_tile_set(&w->a, line, half, DEPTH);
        else
            ordo_emulator_tile_set(&w->b, line - ROWS, half, COLUMNS);
    }
}

/* Scores per second of whole passes at full mask, in M, by the backend itself on one thread. */
static void passes(int64_t dim)
{
    enum { SEQUENCE = 1024 };
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    cli_tensors tensors = { 0 };
    problem.batch = problem.heads = 1;
    problem.q_len = SEQUENCE;
    problem.head_dim = dim;
    problem.dtype = ORDO_BF16;
    options.backend = ORDO_BACKEND_EMULATOR;
    if (ordo_machine_create(&machine, "h200") == ORDO_OK &&
        ordo_plan_create(&plan, &problem, machine, &options) == ORDO_OK &&
        cli_tensors_make(&tensors, plan, NULL, NULL, NULL, 1, false)) {
        ordo_call call = cli_tensors_call(&tensors);
        double seconds[2][3];
        call.threads = 1;
        call.workspace_bytes = ordo_plan_workspace(plan);
        call.workspace = aligned_alloc(256, (call.workspace_bytes + 256) / 256 * 256);
        for (int r = 0; call.workspace && r < 3; r++)
            for (int p = 0; p < 2; p++) {
                const double begin = measure_seconds(CLOCK_MONOTONIC);
                if ((p ? ordo_attention_backward : ordo_attention_forward)(plan, &call) != ORDO_OK)
                    printf("%s\n", ordo_last_error());
                seconds[p][r] = measure_seconds(CLOCK_MONOTONIC) - begin;
            }
        if (call.workspace)
            printf("D = %-4d M scores/s: forward %.1f, backward %.1f\n", (int)dim,
                   1e-6 * SEQUENCE * SEQUENCE / measure_spread(seconds[0], 3).low,
                   1e-6 * SEQUENCE * SEQUENCE / measure_spread(seconds[1], 3).low);
        free(call.workspace);
    } else {
        printf("%s\n", ordo_last_error());
    }
    cli_tensors_free(&tensors);
    ordo_plan_destroy(plan);
    ordo_machine_destroy(machine);
}

int main(void)
{
    static const char *const names[] = { "avx512", "avx2", "neon", "generic" };
    static work w;
    const double outputs = ROWS * COLUMNS;
    printf("G/s, one thread   products      ex2    round  to tile\n");
    for (int x = 0; x < 8; x++) {
        const ordo_dtype dtype = x & 1 ? ORDO_F16 : ORDO_BF16;
        w.kernels = ordo_emulator_kernels_named(names[x / 2]);
        if (!w.kernels)
            continue;
        ordo_emulator_kernels_force(w.kernels);
        draw_operands(&w, dtype);
        const double products = rate(product, &w, outputs * DEPTH);
        const double ex2s = rate(ex2, &w, outputs), rounded = rate(round_all, &w, outputs);
        printf("%-8s %-6s %10.2f %8.3f %8.3f %8.3f\n", names[x / 2], x & 1 ? "f16" : "bf16",
               products, ex2s, rounded, rate(set, &w, outputs));
    }
    ordo_emulator_kernels_force(NULL);
    passes(64);
    passes(128);
    return 0;
}
