/* carry.cu: the backward pass of one long sequence in parts of its rows, which carry the f32 sums
 * of dk and dv from one to the next, beside one call: the time of all parts divided by that of the
 * call, and how many bits differ (none).
 *
 * carry [--quick] [S]: rows and keys, 16384 unless told; 2048 channels. One call and all cuts take
 * turns in one process; the cache is flushed before each; medians. Keep bits are given, and of
 * dropout 0.1 also made inside. --quick: 1, 2 and 8 parts without dropout, and what one of 8 parts
 * takes if it carries nothing, if it leaves sums, takes them in, or both. */
#include "../../tests/cuda/handmade_parts.h"
#include "timing.cuh"

enum { ROUNDS = 7 };

static __global__ void random_words(uint32_t *x, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 0x9e3779b9u;
        h = (h ^ h >> 16) * 0x7feb352du;
        h = (h ^ h >> 15) * 0x846ca68bu;
        x[i] = h | h << 7 | h >> 9; /* about seven of eight are kept */
    }
}

/* Microseconds of one part with nothing carried, sums out, in, and both. Prints them. */
static void one_part(const row_part &part)
{
    const ordo_plan *plan = part.plan;
    std::vector<turn> turns;
    for (const unsigned carry :
         { 0u, carry_of(false, true), carry_of(true, false), carry_of(true, true) }) {
        ordo_call call = part.call;
        call.carry = carry;
        if (!carry)
            call.dk_sums = call.dv_sums = NULL;
        turns.push_back({ [plan, call] { run_call(plan, ORDO_BACKWARD, call); } });
    }
    for (const double ms : time_in_turns(turns, ROUNDS))
        printf(" %.0f |", ms * 1e3);
}

static void row(const cut_shape &z, const char *mask, const char *dropout, bool given,
                const std::vector<int> &counts, bool quick)
{
    cut_case c(z);
    if (given) { /* any words: real ones would take the host minutes */
        const size_t words =
            (size_t)(z.heads * ordo_keep_blocks(z.q_len, z.kv_len)) * ORDO_KEEP_WORDS;
        uint32_t *bits = c.take<uint32_t>(words);
        random_words<<<1024, 256>>>(bits, words);
        c.call.keep_bits = bits;
    }
    c.forward();
    c.poison();
    c.backward();
    const gradients want = gradients_of(c);
    std::vector<std::vector<row_part>> cuts;
    std::vector<turn> turns = { { [&c] { c.backward(); } } };
    size_t wrong = 0;
    for (const int count : counts) {
        c.cut(count);
        c.poison();
        c.backward_parts();
        wrong += differing(gradients_of(c), want);
        cuts.push_back(c.parts);
        c.parts.clear(); /* the plans now belong to cuts */
    }
    for (const std::vector<row_part> &parts : cuts)
        turns.push_back({ [&parts] {
            for (const row_part &x : parts)
                run_call(x.plan, ORDO_BACKWARD, x.call);
        } });
    const std::vector<double> ms = time_in_turns(turns, ROUNDS);
    printf("| %3d | %-6s | %-11s | %8.3f |", z.dim, mask, dropout, ms[0]);
    for (size_t x = 1; x < ms.size(); x++)
        printf(" %.3f |", ms[x] / ms[0]);
    if (quick) /* in the middle: under a causal mask half of the keys are seen */
        one_part(cuts.back()[cuts.back().size() / 2]);
    printf(" %zu |\n", wrong);
    fflush(stdout);
    for (const std::vector<row_part> &parts : cuts)
        for (const row_part &x : parts)
            ordo_plan_destroy(x.plan);
}

int main(int count, char **words)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    const bool quick = count > 1 && strcmp(words[1], "--quick") == 0;
    const int length = count > 1 + quick ? atoi(words[1 + quick]) : 16384;
    const std::vector<int> counts =
        quick ? std::vector<int> { 1, 2, 8 } : std::vector<int> { 1, 2, 4, 8, 16 };
    printf("Backward pass of %d rows in parts: time of all parts / one call%s\n\n", length,
           quick ? "; one of 8 parts, us" : "");
    fputs("|   D | mask   | dropout     | call, ms |", stdout);
    for (const int parts : counts)
        printf(" %-5d |", parts);
    fputs(quick ? " none | out | in | in, out |" : "", stdout);
    puts(" bits that differ |");
    puts(quick ? "|---|---|---|---|---|---|---|---|---|---|---|---|"
               : "|---|---|---|---|---|---|---|---|---|---|");
    for (const int dim : { 64, 128, 256 })
        for (const ordo_mask mask : { ORDO_MASK_CAUSAL, ORDO_MASK_FULL })
            for (int way = 0; way < (quick ? 1 : 3); way++) {
                cut_shape z = { "", dim, 2048 / dim, 2048 / dim, length, length, mask };
                z.dropout = way > 0 ? 0.1 : 0;
                row(z, mask == ORDO_MASK_FULL ? "full" : "causal",
                    way == 0   ? "none"
                    : way == 1 ? "bits given"
                               : "made inside",
                    way == 1, counts, quick);
            }
    return 0;
}
