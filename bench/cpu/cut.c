/* What a cut costs: the backward pass over all rows in parts whose sums are carried, over one call.
 *
 *   cut [--device cpu|cuda] [--rows N] [--part N] [--heads N] [--rounds N]
 *
 * Both are measured alternately in one run; printed are medians with quartiles. The caches are as
 * the runs leave them. On a CPU one thread is measured by its own clock, so that other work on the
 * machine does not count. The parts must have the bits of the one call; the program fails if they
 * do not. */
#define _GNU_SOURCE
#include "measure.h"
#include "ordo/ordo.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PARTS_MAX = 64, ROUNDS_MAX = 101, WIDTH = 2 }; /* bf16 */

typedef struct asked {
    bool cuda;
    long rows, part, heads, rounds;
} asked;

/* Tensors of one sequence, where the backend has them. */
enum { Q, K, V, DOUT, O, DQ, DK, DV, DK_PARTS, DV_PARTS, DQ_PARTS, TENSORS };

typedef struct bench {
    asked a;
    int64_t dim;
    ordo_machine *machine;
    void *tensor[TENSORS];
    float *lse, *lse_parts, *dk_sums, *dv_sums;
    void *workspace;
    size_t bytes, workspace_bytes; /* bytes of a tensor */
    ordo_problem problem;
    ordo_plan *plan, *part_plans[PARTS_MAX];
    int parts;
    bool down; /* rows are visited from the last one on */
} bench;

static void must(ordo_status status)
{
    if (status == ORDO_OK)
        return;
    printf("cut: %s\n", ordo_last_error());
    exit(1);
}

/* ---- memory ---- */

static void *take(const bench *b, size_t bytes)
{
    void *memory = NULL;
    const size_t room = (bytes + 256) / 256 * 256;
    if (b->a.cuda)
        must(ordo_device_alloc(&memory, room));
    else if (!(memory = aligned_alloc(256, room)))
        abort();
    return memory;
}

static void copy(const bench *b, void *to, const void *from, size_t bytes)
{
    if (b->a.cuda)
        must(ordo_device_copy(to, from, bytes, NULL));
    else
        memcpy(to, from, bytes);
}

static void release(const bench *b, void *memory)
{
    if (b->a.cuda)
        must(ordo_device_free(memory));
    else
        free(memory);
}

static void wait(const bench *b)
{
    if (b->a.cuda)
        must(ordo_device_synchronise(NULL));
}

/* Small numbers of both signs, in bf16. */
static void fill(const bench *b, void *to, uint64_t seed)
{
    uint16_t *host = malloc(b->bytes);
    if (!host)
        abort();
    for (size_t x = 0; x < b->bytes / WIDTH; x++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        host[x] = (uint16_t)(seed >> 63 << 15 | (0x3e80 + (seed >> 40 & 0x1ff)));
    }
    copy(b, to, host, b->bytes);
    free(host);
}

/* ---- passes ---- */

static ordo_tensor from_row(const bench *b, void *data, int64_t row)
{
    const int64_t by_row = b->a.heads * b->dim;
    return (ordo_tensor) { (char *)data + row * by_row * WIDTH,
                           { b->a.rows * by_row, by_row, b->dim, 1 } };
}

static ordo_call call_of(const bench *b, int64_t row, float *lse, bool part)
{
    ordo_call c = ORDO_CALL_INIT;
    c.q = from_row(b, b->tensor[Q], row);
    c.k = from_row(b, b->tensor[K], 0);
    c.v = from_row(b, b->tensor[V], 0);
    c.o = from_row(b, b->tensor[O], row);
    c.dout = from_row(b, b->tensor[DOUT], row);
    c.dq = from_row(b, b->tensor[part ? DQ_PARTS : DQ], row);
    c.dk = from_row(b, b->tensor[part ? DK_PARTS : DK], 0);
    c.dv = from_row(b, b->tensor[part ? DV_PARTS : DV], 0);
    c.lse = lse;
    c.seed = 7;
    c.threads = 1;
    c.workspace = b->workspace;
    c.workspace_bytes = b->workspace_bytes;
    return c;
}

static void run_whole(const bench *b)
{
    const ordo_call c = call_of(b, 0, b->lse, false);
    must(ordo_attention_backward(b->plan, &c));
    wait(b);
}

static void run_parts(const bench *b)
{
    for (int n = 0; n < b->parts; n++) {
        const int part = b->down ? b->parts - 1 - n : n;
        const int64_t row = part * b->a.part;
        ordo_call c = call_of(b, row, b->lse_parts + row * b->a.heads, true);
        c.carry = (n > 0 ? ORDO_CARRY_IN : 0u) | (n + 1 < b->parts ? ORDO_CARRY_OUT : 0u);
        c.dk_sums = c.carry ? b->dk_sums : NULL;
        c.dv_sums = c.carry ? b->dv_sums : NULL;
        must(ordo_attention_backward(b->part_plans[part], &c));
    }
    wait(b);
}

/* ---- one problem ---- */

static void make_plans(bench *b)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    options.backend = b->a.cuda ? ORDO_BACKEND_CUDA : ORDO_BACKEND_CPU;
    must(ordo_plan_create(&b->plan, &b->problem, b->machine, &options));
    must(ordo_plan_query(b->plan, &info));
    b->down = info.order == ORDO_ORDER_DESCENDING;
    b->workspace_bytes = ordo_plan_workspace(b->plan);
    b->parts = 0;
    for (int64_t row = 0; row < b->a.rows && b->parts < PARTS_MAX; row += b->a.part) {
        ordo_problem p = b->problem;
        p.q_len = b->a.rows - row < b->a.part ? b->a.rows - row : b->a.part;
        p.shard.row0 = row;
        p.shard.q_total = p.shard.kv_total = b->a.rows;
        must(ordo_plan_create(&b->part_plans[b->parts++], &p, b->machine, &options));
    }
}

static void open_tensors(bench *b)
{
    const size_t elements = (size_t)(b->a.rows * b->a.heads * b->dim);
    const size_t rows = (size_t)(b->a.rows * b->a.heads) * sizeof(float);
    b->bytes = elements * WIDTH;
    for (int x = 0; x < TENSORS; x++) {
        b->tensor[x] = take(b, b->bytes);
        fill(b, b->tensor[x], (uint64_t)x + 1);
    }
    b->lse = take(b, rows);
    b->lse_parts = take(b, rows);
    b->dk_sums = take(b, elements * sizeof(float));
    b->dv_sums = take(b, elements * sizeof(float));
    b->workspace = take(b, b->workspace_bytes);
    const ordo_call c = call_of(b, 0, b->lse, false);
    must(ordo_attention_forward(b->plan, &c));
    wait(b);
    for (int part = 0; part < b->parts; part++) { /* (head, row) of each part */
        const int64_t row = part * b->a.part;
        const int64_t count = b->a.rows - row < b->a.part ? b->a.rows - row : b->a.part;
        for (int64_t h = 0; h < b->a.heads; h++)
            copy(b, b->lse_parts + row * b->a.heads + h * count, b->lse + h * b->a.rows + row,
                 (size_t)count * sizeof(float));
    }
}

static bool same_bits(const bench *b)
{
    static const int pairs[][2] = { { DQ, DQ_PARTS }, { DK, DK_PARTS }, { DV, DV_PARTS } };
    bool same = true;
    void *one = malloc(b->bytes), *other = malloc(b->bytes);
    if (!one || !other)
        abort();
    for (int x = 0; x < 3; x++) {
        copy(b, one, b->tensor[pairs[x][0]], b->bytes);
        copy(b, other, b->tensor[pairs[x][1]], b->bytes);
        wait(b);
        same = same && memcmp(one, other, b->bytes) == 0;
    }
    free(one);
    free(other);
    return same;
}

static void close_all(bench *b)
{
    for (int x = 0; x < TENSORS; x++)
        release(b, b->tensor[x]);
    release(b, b->lse);
    release(b, b->lse_parts);
    release(b, b->dk_sums);
    release(b, b->dv_sums);
    release(b, b->workspace);
    ordo_plan_destroy(b->plan);
    for (int x = 0; x < b->parts; x++)
        ordo_plan_destroy(b->part_plans[x]);
}

static double now(const bench *b)
{
    return measure_seconds(b->a.cuda ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID);
}

/* False if the bits differ. */
static bool measure(bench *b)
{
    double whole[ROUNDS_MAX], ratio[ROUNDS_MAX];
    make_plans(b);
    open_tensors(b);
    run_whole(b); /* caches and clocks */
    run_parts(b);
    for (long x = 0; x < b->a.rounds; x++) {
        const double start = now(b);
        run_whole(b);
        const double middle = now(b);
        run_parts(b);
        whole[x] = middle - start;
        ratio[x] = (now(b) - middle) / whole[x];
    }
    const bool same = same_bits(b);
    const spread one = measure_spread(whole, (int)b->a.rounds);
    const spread parts = measure_spread(ratio, (int)b->a.rounds);
    printf("%4d   %-6s  %4.1f   %5d   %9.3f    %.3f (%.3f to %.3f)   %s\n", (int)b->dim,
           ordo_mask_name(b->problem.mask), b->problem.dropout.p, b->parts, 1e3 * one.median,
           parts.median, parts.low, parts.high, same ? "equal" : "DIFFERENT");
    fflush(stdout);
    close_all(b);
    return same;
}

static long number(const char *name, const char *text, long least, long most)
{
    const long x = text ? strtol(text, NULL, 10) : 0;
    if (x < least || x > most) {
        fprintf(stderr, "cut: %s %s: expected %ld..%ld\n", name, text ? text : "", least, most);
        exit(2);
    }
    return x;
}

static asked read_arguments(int argc, char **argv)
{
    asked a = { .rows = 4096, .part = 2048, .heads = 1, .rounds = 5 };
    for (int x = 1; x < argc; x += 2) {
        const char *name = argv[x], *value = argv[x + 1];
        if (strcmp(name, "--device") == 0 && value)
            a.cuda = strcmp(value, "cuda") == 0;
        else if (strcmp(name, "--rows") == 0)
            a.rows = number(name, value, 1, 1 << 20);
        else if (strcmp(name, "--part") == 0)
            a.part = number(name, value, 1, 1 << 20);
        else if (strcmp(name, "--heads") == 0)
            a.heads = number(name, value, 1, 1024);
        else if (strcmp(name, "--rounds") == 0)
            a.rounds = number(name, value, 1, ROUNDS_MAX);
        else
            number(name, NULL, 1, 0);
    }
    if (a.rows > PARTS_MAX * a.part) {
        fprintf(stderr, "cut: --part %ld: expected at least %ld, for %d parts at most\n", a.part,
                (a.rows + PARTS_MAX - 1) / PARTS_MAX, PARTS_MAX);
        exit(2);
    }
    return a;
}

int main(int argc, char **argv)
{
    bench b = { .a = read_arguments(argc, argv) };
    bool same = true;
    const char *why = "";
    if (b.a.cuda && !ordo_backend_available(ORDO_BACKEND_CUDA, &why)) {
        printf("cut: skipped: %s\n", why);
        return 77;
    }
    if (b.a.cuda)
        must(ordo_device_machine(0, &b.machine));
    printf("backward, bf16, %s, %ld rows, %ld heads, parts of %ld rows with carried sums\n"
           "   D   mask     p   parts   one call ms   all parts / one call    bits\n",
           b.a.cuda ? "cuda" : "cpu", b.a.rows, b.a.heads, b.a.part);
    for (int64_t dim = 64; dim <= (b.a.cuda ? 256 : 128); dim *= 2)
        for (int kind = 0; kind < 4; kind++) {
            b.dim = dim;
            b.problem = (ordo_problem)ORDO_PROBLEM_INIT;
            b.problem.dtype = ORDO_BF16;
            b.problem.batch = 1;
            b.problem.heads = b.a.heads;
            b.problem.q_len = b.problem.kv_len = b.a.rows;
            b.problem.head_dim = dim;
            b.problem.mask = kind % 2 ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
            b.problem.dropout.p = kind / 2 ? 0.1 : 0;
            same = measure(&b) && same;
        }
    ordo_machine_destroy(b.machine);
    return !same;
}
