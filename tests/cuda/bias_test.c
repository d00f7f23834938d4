/* bias_test.c: a bias on a device: every result, with the gradient of the bias, has the bits of the
 * emulator, whatever else a problem has.
 *
 *   bias_test [--count N] [--seed S] [--only N]
 *
 * Exit status 77 without a device. */
#include "attention_case.h"

#include "ordo/device.h"
#include "ordo/machine.h"

enum { COUNT = 60, MOST = 300, PIECES = 32, THREADS = 4 };

/* Arrays of a call on the device. */
typedef struct device_arrays {
    void *piece[PIECES];
    int count;
} device_arrays;

static void *take(device_arrays *all, const void *from, size_t bytes)
{
    void *to = NULL;
    case_must(ordo_device_alloc(&to, bytes + 16));
    if (from)
        case_must(ordo_device_copy(to, from, bytes, NULL));
    else
        case_must(ordo_device_fill(to, CASE_POISON, bytes, NULL));
    all->piece[all->count++] = to;
    return to;
}

static const void *take_if(device_arrays *all, const void *from, size_t bytes)
{
    return from ? take(all, from, bytes) : NULL;
}

/* The call of a case with all arrays on the device. */
static ordo_call lift(const attention_case *c, device_arrays *all)
{
    const ordo_problem *p = &c->problem;
    const size_t width = case_width(c), batch = (size_t)p->batch;
    ordo_call call = c->call;
    call.q.data = take(all, c->call.q.data, c->q_count * width);
    call.k.data = take(all, c->call.k.data, c->k_count * width);
    call.v.data = take(all, c->call.v.data, c->v_count * width);
    call.dout.data = take(all, c->call.dout.data, c->o_count * width);
    call.o.data = take(all, NULL, c->o_count * width);
    call.dq.data = take(all, NULL, c->q_count * width);
    call.dk.data = take(all, NULL, c->k_count * width);
    call.dv.data = take(all, NULL, c->v_count * width);
    call.lse = take(all, NULL, c->lse_count * 4);
    call.dlse = take_if(all, c->call.dlse, c->lse_count * 4);
    call.bias.data = take(all, c->call.bias.data, c->bias_count * (p->bias.dtype ? 2 : 4));
    call.dbias = take(all, NULL, c->bias_count * 4);
    call.q_lens = take_if(all, c->call.q_lens, batch * sizeof *call.q_lens);
    call.kv_lens = take_if(all, c->call.kv_lens, batch * sizeof *call.kv_lens);
    call.sequence_ids = take_if(all, c->call.sequence_ids, batch * sizeof *call.sequence_ids);
    call.slopes = take_if(all, c->call.slopes, sizeof c->slopes);
    call.sink = take_if(all, c->call.sink, sizeof c->sink);
    if (call.sink) {
        call.dsink = take(all, NULL, sizeof c->dsink);
        call.dsink_parts = take(all, NULL, sizeof c->dsink_parts);
    }
    if (c->bits) {
        const size_t heads = (size_t)(p->batch * p->heads);
        call.keep_bits =
            take(all, c->bits,
                 heads * (size_t)ordo_keep_blocks(p->q_len, p->kv_len) * 4 * ORDO_KEEP_WORDS);
    }
    return call;
}

static void fetch(attention_case *c, const ordo_call *from)
{
    const size_t width = case_width(c), sinks = 4 * (size_t)c->problem.heads;
    const struct {
        void *to;
        const void *from;
        size_t bytes;
    } outputs[] = { { c->call.o.data, from->o.data, c->o_count * width },
                    { c->call.lse, from->lse, c->lse_count * 4 },
                    { c->call.dq.data, from->dq.data, c->q_count * width },
                    { c->call.dk.data, from->dk.data, c->k_count * width },
                    { c->call.dv.data, from->dv.data, c->v_count * width },
                    { c->call.dbias, from->dbias, c->bias_count * 4 },
                    { c->dsink, from->dsink, from->dsink ? sinks : 0 },
                    { c->dsink_parts, from->dsink_parts,
                      from->dsink ? sinks * (size_t)c->problem.batch : 0 } };
    for (size_t x = 0; x < sizeof outputs / sizeof outputs[0]; x++)
        if (outputs[x].bytes > 0)
            case_must(ordo_device_copy(outputs[x].to, outputs[x].from, outputs[x].bytes, NULL));
}

static ordo_plan *plan_of(const attention_case *c, ordo_backend backend)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    options.backend = backend;
    case_must(ordo_machine_create(&machine, "h200"));
    const ordo_status status = ordo_plan_create(&plan, &c->problem, machine, &options);
    ordo_machine_destroy(machine);
    if (status != ORDO_OK) {
        CHECK_FAIL("%s", ordo_last_error());
        case_print(c);
    }
    return plan;
}

/* Run the case on the device; its outputs become those of the device. */
static void run_there(attention_case *c, const ordo_plan *plan, bool dbias_alone)
{
    device_arrays all = { .count = 0 };
    ordo_call call = lift(c, &all);
    call.workspace_bytes = ordo_plan_workspace(plan);
    call.workspace = take(&all, NULL, call.workspace_bytes);
    ordo_status status = ordo_attention_forward(plan, &call);
    if (status == ORDO_OK)
        status = ordo_attention_backward(plan, &call);
    if (status == ORDO_OK && dbias_alone) {
        const ordo_tensor none = { NULL, { 0 } };
        case_must(ordo_device_fill(call.dbias, CASE_POISON, c->bias_count * 4, NULL));
        ordo_call again = call;
        again.dq = again.dk = again.dv = none;
        again.dsink = again.dsink_parts = NULL;
        status = ordo_attention_backward(plan, &again);
    }
    if (status != ORDO_OK) {
        CHECK_FAIL("%s", ordo_last_error());
        case_print(c);
    }
    case_must(ordo_device_synchronise(NULL));
    fetch(c, &call);
    for (int x = 0; x < all.count; x++)
        (void)ordo_device_free(all.piece[x]);
}

/* A problem that the kernels have, with a bias. */
static void draw(attention_case *c, uint64_t seed)
{
    uint64_t state = seed;
    static const int64_t dims[] = { 64, 128, 32, 80 };
    attention_case drawn;
    case_random(&drawn, &state, MOST);
    *c = (attention_case) { .problem = drawn.problem, .sinks = drawn.sinks, .dlse = NULL };
    memcpy(c->q_lens, drawn.q_lens, sizeof c->q_lens);
    memcpy(c->kv_lens, drawn.kv_lens, sizeof c->kv_lens);
    memcpy(c->ids, drawn.ids, sizeof c->ids);
    ordo_problem *p = &c->problem;
    c->dlse = drawn.dlse ? (float *)1 : NULL;
    p->dtype = seed % 2 ? ORDO_BF16 : ORDO_F16;
    p->layout = seed % 3 ? ORDO_DENSE : ORDO_PADDED;
    p->total_q = p->total_kv = 0;
    p->head_dim = p->v_head_dim = dims[seed / 2 % 4];
    p->bias =
        (ordo_bias) { true, seed / 8 % 2, seed / 16 % 2, seed / 32 % 2 ? p->dtype : ORDO_F32 };
    p->dropout.keying = ORDO_KEYING_ORDO;
    p->softcap = 0; /* refused */
    c->sinks = c->sinks && p->kv_len > 0;
    case_close(&drawn);
    case_open(c, check_random(&state) >> 1);
    if (p->dropout.p > 0 && seed / 4 % 2)
        case_store_bits(c, &state);
}

static void check_one(uint64_t seed)
{
    attention_case c;
    const int failures = check_failures;
    draw(&c, seed);
    ordo_plan *here = plan_of(&c, ORDO_BACKEND_EMULATOR), *there = plan_of(&c, ORDO_BACKEND_CUDA);
    if (here && there) {
        case_must(case_run(&c, here, THREADS));
        case_results one = case_keep(&c);
        run_there(&c, there, seed % 5 == 0);
        (void)case_same(&c, &one, "the device");
        case_drop(&one);
    }
    if (check_failures > failures)
        printf("  --only %d\n", (int)seed);
    ordo_plan_destroy(here);
    ordo_plan_destroy(there);
    case_close(&c);
}

static uint64_t first_seed = 1, seeds = COUNT;

TEST(bits_are_the_emulators)
{
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++)
        check_one(seed);
}

int main(int argc, char **argv)
{
    ordo_machine *machine = NULL;
    if (ordo_device_machine(0, &machine) != ORDO_OK) {
        printf("skip: %s\n", ordo_last_error());
        return 77;
    }
    ordo_machine_destroy(machine);
    for (int x = 1; x + 1 < argc; x += 2) {
        const uint64_t number = strtoull(argv[x + 1], NULL, 10);
        if (strcmp(argv[x], "--count") == 0)
            seeds = number;
        else
            first_seed = number;
        if (strcmp(argv[x], "--only") == 0)
            seeds = 1;
    }
    return check_run();
}
