/* golden_test.c: the bits of the CPU backend, on whatever machine this runs.
 *
 * tests/data/digests/cpu.txt holds the FNV-1a digests of o, lse, dq, dk, dv and dsink of some fixed
 * problems. Every target, compiler, machine and thread count must give them. After a change that
 * means to change bits,
 *
 *   build/tests/cpu/golden_test --write
 *
 * writes the file anew, and the commit says "Bits: changed, because ...". */
#include "attention_case.h"
#include "cpu/kernels.h"

typedef struct golden {
    const char *name;
    ordo_dtype dtype;
    ordo_layout layout;
    ordo_mask mask;
    int heads, kv_heads, q_len, kv_len, dim, v_dim;
    int left, right; /* a window, if either is not 0 */
    double softcap, p;
    bool alibi, dlse;
    ordo_order order; /* 0 = the default */
    ordo_tile tile;   /* both passes; 0 = the default */
    ordo_keying keying;
    bool special; /* infinities and NaNs among the inputs */
    bool sinks;
} golden;

#define F32    ORDO_F32
#define BF16   ORDO_BF16
#define F16    ORDO_F16
#define DENSE  ORDO_DENSE
#define PACKED ORDO_PACKED
#define PADDED ORDO_PADDED
#define FULL   ORDO_MASK_FULL
#define CAUSAL ORDO_MASK_CAUSAL
#define CORNER ORDO_MASK_CAUSAL_TOP_LEFT

static const golden problems[] = {
    { "full-f32", F32, DENSE, FULL, 2, 2, 150, 150, 64, 64 },
    { "causal-f32", F32, DENSE, CAUSAL, 5, 5, 200, 200, 32, 32 },
    { "causal-bf16-gqa", BF16, DENSE, CAUSAL, 6, 2, 170, 170, 128, 128 },
    { "causal-f16-mqa-dropout", F16, DENSE, CAUSAL, 4, 1, 140, 140, 48, 48, .p = 0.1 },
    { "packed-bf16-dropout", BF16, PACKED, CAUSAL, 2, 2, 190, 190, 64, 64, .p = 0.17,
      .dlse = true },
    { "padded-f16-window", F16, PADDED, FULL, 2, 1, 160, 160, 80, 80, 30, 20 },
    { "corner-f32-cross", F32, DENSE, CORNER, 2, 2, 90, 260, 40, 24, .dlse = true },
    { "softcap-bf16-alibi", BF16, PADDED, CAUSAL, 2, 2, 130, 150, 33, 33, .softcap = 5,
      .alibi = true },
    { "softcap-f32-dropout-fa2", F32, PACKED, FULL, 2, 2, 120, 120, 16, 16, .softcap = 3, .p = 0.1,
      .keying = ORDO_KEYING_FA2 },
    { "alibi-f16-window", F16, DENSE, CAUSAL, 3, 3, 200, 200, 7, 7, 50, 0, .alibi = true },
    { "wide-f32", F32, DENSE, CAUSAL, 1, 1, 70, 140, 576, 511 },
    { "narrow-bf16", BF16, DENSE, FULL, 2, 2, 65, 129, 1, 1 },
    { "ascending-f32-tiles", F32, DENSE, CAUSAL, 2, 2, 100, 100, 20, 20,
      .order = ORDO_ORDER_ASCENDING, .tile = { 17, 19 } },
    { "twin-f32-tiles", F32, DENSE, CAUSAL, 3, 3, 100, 100, 20, 20, .order = ORDO_ORDER_TWIN,
      .tile = { 16, 48 } },
    /* Four key tiles: a row tile's dq has an order. */
    { "full-f32-long", F32, DENSE, FULL, 2, 2, 400, 400, 16, 16 },
    { "causal-f32-long", F32, DENSE, CAUSAL, 4, 2, 400, 400, 16, 16 },
    { "special-f32", F32, DENSE, CAUSAL, 2, 1, 100, 100, 24, 24, .special = true },
    { "special-f16", F16, PADDED, FULL, 2, 1, 100, 100, 24, 24, 10, 10, .special = true },
    { "sinks-f32", F32, DENSE, CAUSAL, 4, 2, 300, 300, 24, 24, .dlse = true, .sinks = true },
    { "sinks-bf16-packed-window", BF16, PACKED, CAUSAL, 2, 1, 180, 180, 64, 64, 40, .p = 0.1,
      .sinks = true },
};
enum { PROBLEMS = sizeof problems / sizeof problems[0], LINE = 200 };

static void open_golden(attention_case *c, const golden *g)
{
    *c = (attention_case) { .problem = ORDO_PROBLEM_INIT };
    ordo_problem *p = &c->problem;
    p->dtype = g->dtype;
    p->layout = g->layout;
    p->mask = g->mask;
    p->batch = 2;
    p->heads = g->heads;
    p->kv_heads = g->kv_heads;
    p->q_len = g->q_len;
    p->kv_len = g->kv_len;
    p->head_dim = g->dim;
    p->v_head_dim = g->v_dim;
    p->window = (ordo_window) { g->left || g->right, g->left, g->right };
    p->softcap = g->softcap;
    p->dropout.p = g->p;
    p->dropout.keying = g->keying;
    p->alibi = g->alibi;
    for (int b = 0; b < 2; b++) {
        c->ids[b] = 40 + b;
        c->q_lens[b] = g->q_len - 19 * b;
        c->kv_lens[b] = g->kv_len - 21 * b;
        c->cu_q[b + 1] = c->cu_q[b] + c->q_lens[b];
        c->cu_kv[b + 1] = c->cu_kv[b] + c->kv_lens[b];
    }
    if (g->layout == ORDO_PACKED) {
        p->total_q = c->cu_q[2];
        p->total_kv = c->cu_kv[2];
    }
    c->dlse = g->dlse ? (float *)1 : NULL;
    c->sinks = g->sinks;
    case_open(c, 12345);
    if (g->special) { /* in one head's rows and columns, of the first sequence only */
        case_put(c, c->call.k.data, case_at(c, true, g->dim, 0, 60, 0) + 3, NAN);
        case_put(c, c->call.v.data, case_at(c, true, g->v_dim, 0, 70, 0) + 5, -INFINITY);
        case_put(c, c->call.q.data, case_at(c, false, g->dim, 0, 40, 1) + 1, INFINITY);
    }
}

static uint64_t digest(const void *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t x = 0; x < bytes; x++)
        hash = (hash ^ ((const unsigned char *)data)[x]) * 0x100000001b3;
    return hash;
}

/* Run a problem; its line of the file. */
static void line_of(const golden *g, int threads, char line[LINE])
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.order = g->order;
    options.forward_tile = options.backward_tile = g->tile;
    attention_case c;
    open_golden(&c, g);
    ordo_plan *plan = case_plan(&c, &options);
    if (case_run(&c, plan, threads) != ORDO_OK)
        CHECK_FAIL("%s: %s", g->name, ordo_last_error());
    int used = snprintf(line, LINE, "%s", g->name);
    const case_results r = case_outputs(&c);
    for (int x = 0; x < CASE_OUTPUTS; x++)
        used += snprintf(line + used, LINE - (size_t)used, " %016" PRIx64,
                         digest(r.data[x], r.count[x] * r.width[x]));
    if (g->sinks)
        (void)snprintf(line + used, LINE - (size_t)used, " %016" PRIx64,
                       digest(c.dsink_parts, sizeof(float) * (size_t)(2 * g->heads)));
    ordo_plan_destroy(plan);
    case_close(&c);
}

static const char *path(void)
{
    static char text[1024];
    const char *root = getenv("ORDO_SOURCE");
    snprintf(text, sizeof text, "%s/tests/data/digests/cpu.txt", root ? root : ".");
    return text;
}

static int write_file(void)
{
    FILE *file = fopen(path(), "w");
    if (!file) {
        perror(path());
        return 1;
    }
    fprintf(file,
            "# The bits of the CPU backend: digests of o, lse, dq, dk, dv and dsink, problem by "
            "problem.\n# Written by golden_test --write. A change here is a \"Bits: changed\" "
            "commit.\n");
    for (int x = 0; x < PROBLEMS; x++) {
        char line[LINE];
        line_of(&problems[x], 1, line);
        fprintf(file, "%s\n", line);
    }
    return fclose(file) != 0;
}

static char expected[PROBLEMS][LINE];

/* Lines of the file, in the order of the problems. */
TEST(the_file_names_every_problem)
{
    char line[LINE];
    int count = 0;
    FILE *file = fopen(path(), "r");
    if (!file) {
        CHECK_FAIL("no %s: golden_test --write makes it", path());
        return;
    }
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#')
            continue;
        const size_t name = strcspn(line, " ");
        if (count < PROBLEMS && strlen(problems[count].name) == name &&
            memcmp(line, problems[count].name, name) == 0)
            memcpy(expected[count], line, sizeof line);
        else
            CHECK_FAIL("\"%s\" is not problem %d", line, count);
        count++;
    }
    fclose(file);
    CHECK_INT(count, PROBLEMS);
}

static void compare(const char *target, int threads)
{
    for (int x = 0; x < PROBLEMS; x++) {
        char line[LINE];
        line_of(&problems[x], threads, line);
        if (strcmp(line, expected[x]) != 0)
            CHECK_FAIL("%s, %d threads:\n    got      %s\n    expected %s", target, threads, line,
                       expected[x]);
    }
}

/* ORDO_CPU picks a target; all of them that run here are tried otherwise. */
TEST(digests)
{
    static const char *const targets[] = { "generic", "neon", "avx2", "avx512" };
    if (getenv("ORDO_CPU")) {
        compare(getenv("ORDO_CPU"), 1);
        return;
    }
    for (int x = 0; x < 4; x++)
        if (ordo_cpu_kernels_named(targets[x])) {
            printf("  %s\n", targets[x]);
            ordo_cpu_kernels_force(ordo_cpu_kernels_named(targets[x]));
            compare(targets[x], 1);
            ordo_cpu_kernels_force(NULL);
        }
    compare("the default target", 3);
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--write") == 0)
        return write_file();
    return check_run();
}
