/* What host and device share must agree: bands, orders, tickets, keep bits, half types. Each is
 * computed by a kernel and by the host from the same header, and compared value by value.
 * Without a device: compiled, and skipped. */
#include "base/half.h"
#include "base/keep.h"
#include "on_device.h"
#include "plan/issue.h"

enum { RUNS = 400, TICKETS = 64, STEPS = 24, VALUES = TICKETS * (4 + 2 * STEPS) };

/* Everything a block of a backward kernel would ask about its tickets. */
__host__ __device__ static void answer(const ordo_run *run, int64_t first, int32_t *out)
{
    for (int x = 0; x < TICKETS; x++) {
        const int64_t here = ordo_run_tickets(run, 0), all = here + ordo_run_tickets(run, 1);
        const int64_t ticket = (first + x) % all;
        const ordo_unit unit =
            ticket < here ? ordo_run_issue(run, 0, ticket) : ordo_run_issue(run, 1, ticket - here);
        const ordo_walk walk = ordo_run_walk(run, unit.head);
        int32_t *to = out + x * (4 + 2 * STEPS);
        to[0] = unit.head;
        to[1] = unit.key[0];
        to[2] = unit.key[1];
        to[3] = ordo_run_worker(run, &unit, ticket);
        for (int t = 0; t < STEPS; t++) {
            const bool there = t < ordo_walk_steps(&walk, unit.key[0]);
            const int32_t i = there ? ordo_walk_visit(&walk, unit.key[0], t) : -1;
            to[4 + 2 * t] = i;
            to[5 + 2 * t] = there ? ordo_walk_turn(&walk, i, unit.key[0]) : -1;
        }
    }
}

/* A keep word and a round trip through each half type. */
__host__ __device__ static void answer_bits(uint32_t x, uint32_t *out)
{
    const ordo_keep keep = { 0x0123456789abcdefu + x, x % 97, 7, 8, 230, ORDO_KEYING_ORDO };
    out[0] = ordo_keep_word(&keep, x % 5, x % 1000, x % 13, x % 4);
    out[1] = ordo_bf16_from_f32(ordo_f32_of_bits(x * 2654435761u));
    out[2] = ordo_f16_from_f32(ordo_f32_of_bits(x * 2654435761u));
    out[3] = ordo_f32_bits(ordo_f32_from_f16((uint16_t)x));
}

__global__ void answer_kernel(const ordo_run *runs, int32_t *out)
{
    if (threadIdx.x == 0)
        answer(&runs[blockIdx.x], blockIdx.x * 7, out + (size_t)blockIdx.x * VALUES);
}

__global__ void bits_kernel(uint32_t *out)
{
    const uint32_t x = blockIdx.x * blockDim.x + threadIdx.x;
    answer_bits(x, out + 4 * (size_t)x);
}

static uint64_t state = 5;
static int between(int low, int high)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (int)((state >> 33) % (uint64_t)(high - low + 1));
}

static ordo_run random_run()
{
    ordo_run run = {};
    run.band.bq = between(1, 6);
    run.band.bk = between(1, 12);
    run.band.q_len = between(1, 20 * run.band.bq);
    run.band.kv_len = between(0, 1) ? run.band.q_len : between(1, 20 * run.band.bk);
    run.band.low = -ORDO_BAND_OPEN;
    run.band.high = between(0, 1) ? ORDO_BAND_OPEN : run.band.kv_len - run.band.q_len;
    if (between(0, 3) == 0)
        run.band.low = -between(0, 40);
    run.sequences = between(1, 3);
    run.kv_heads = between(1, 6);
    run.head0 = between(0, 5);
    run.group_heads = 1;
    run.order = (ordo_order)between(1, ORDO_ORDER_COUNT);
    run.group = between(1, 5);
    run.issue = (ordo_issue)between(ORDO_ISSUE_HEAD, ORDO_ISSUE_KEY);
    run.section = between(1, run.sequences * run.kv_heads);
    run.assign = (ordo_assign)between(ORDO_ASSIGN_PINNED, ORDO_ASSIGN_FIRST_FREE);
    run.workers = between(1, 40);
    return run;
}

static void compare_runs()
{
    static ordo_run runs[RUNS];
    for (int x = 0; x < RUNS; x++)
        runs[x] = random_run();
    static int32_t got[VALUES * RUNS], expected[VALUES];
    ordo_run *there = to_device(runs, RUNS);
    int32_t *out = device_array<int32_t>(VALUES * RUNS, 0xa5);
    answer_kernel<<<RUNS, 32>>>(there, out);
    from_device(got, out, VALUES * RUNS);
    long wrong = 0;
    for (int x = 0; x < RUNS; x++) {
        answer(&runs[x], x * 7, expected);
        for (int v = 0; v < VALUES; v++)
            wrong += got[(size_t)x * VALUES + v] != expected[v];
    }
    report("orders", wrong, RUNS * VALUES);
    MUST(cudaFree(there));
    MUST(cudaFree(out));
}

static void compare_bits()
{
    enum { COUNT = 1 << 18 };
    static uint32_t got[4 * COUNT];
    uint32_t *out = device_array<uint32_t>(4 * COUNT, 0xa5);
    bits_kernel<<<COUNT / 256, 256>>>(out);
    from_device(got, out, 4 * COUNT);
    long wrong = 0;
    for (uint32_t x = 0; x < COUNT; x++) {
        uint32_t expected[4];
        answer_bits(x, expected);
        for (int v = 0; v < 4; v++)
            wrong += got[4 * (size_t)x + v] != expected[v];
    }
    report("bits", wrong, 4 * COUNT);
    MUST(cudaFree(out));
}

int main()
{
    if (device_is_missing())
        return 77;
    compare_runs();
    compare_bits();
    return report_all();
}
