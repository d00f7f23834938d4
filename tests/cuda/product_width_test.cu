/* An element of a product of the matrix cores depends on its row of A, its column of B and what it
 * is added to alone: not on the width of the instruction, on its place in it, or on whether A comes
 * from registers. So a kernel for few rows may choose how many columns it multiplies at once.
 * Every element of steps of 8 to 256 columns is compared with the emulator's.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include <vector>

#include "ordo/problem.h"

#include "base/half.h"
#include "base/philox.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/swizzle.h"
extern "C" {
#include "emulator/dot.h"
}
#include "on_device.h"
#include "wgmma_narrow.h"

enum { ROWS = 64, COLUMNS = 256, STEPS = 4, DEPTH = 16 * STEPS };

/* ---- a chain of steps: sums = before + A B^T, by blocks of N columns; line `row` of the
 * instruction is row `row` + `turn` of A ---- */

struct operands {
    const uint16_t *a, *b; /* ROWS and COLUMNS lines of DEPTH */
    const float *before;   /* ROWS x COLUMNS; NULL: the first step writes */
    float *sums;
};

__device__ static void copy_line(uint32_t tile, int rows, int row, const uint16_t *from)
{
    for (int x = 0; x < DEPTH; x += 2)
        store_shared(tile + ordo_tile_offset(rows, row, x), *(const int32_t *)(from + x));
}

template <int N, bool F16, bool FROM_REGISTERS> __global__ void chain(operands o, int turn)
{
    const uint32_t at_a = ORDO_SMEM_BASE, at_b = at_a + ROWS * ORDO_LINE_BYTES;
    const int t = threadIdx.x, first = blockIdx.x * N;
    if (t < ROWS)
        copy_line(at_a, ROWS, t, o.a + (t + turn) % ROWS * DEPTH);
    for (int column = t; column < N; column += blockDim.x)
        copy_line(at_b, N, column, o.b + (first + column) * DEPTH);
    fence_shared_to_async();
    __syncthreads();
    const auto place = [&](int i) {
        return (ordo_accumulator_row(t, i) + turn) % ROWS * COLUMNS + first +
               ordo_accumulator_column(t, i);
    };
    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = o.before ? o.before[place(i)] : __int_as_float(0x7fffffff);
    uint32_t a[STEPS][4];
#pragma unroll
    for (int x = 0; x < STEPS * 4; x++) {
        const int row = ordo_accumulator_row(t, x % 2 * 2),
                  k = x / 4 * 16 + x % 4 / 2 * 8 + t % 4 * 2;
        a[x / 4][x % 4] = load_shared(at_a + ordo_tile_offset(ROWS, row, k));
    }
    const uint32_t low_a = ordo_descriptor_low(at_a, 0), low_b = ordo_descriptor_low(at_b, 0);
    wgmma_pin(d);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        const int adds = o.before != NULL || k > 0;
        const uint64_t by = wgmma_by_columns(low_b, N, k);
        if constexpr (FROM_REGISTERS)
            step<F16>(d, a[k], by, adds);
        else
            step<F16>(d, wgmma_by_columns(low_a, ROWS, k), by, adds);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(d);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        o.sums[place(i)] = d[i];
}

/* ---- kinds of elements; the random word decides all ---- */

enum kind { PLAIN, SPREAD, CANCELLING, TINY, HIDDEN, ZEROS, KINDS };
static const char *const kind_name[KINDS] = { "plain",     "spread exponents", "cancelling",
                                              "subnormal", "hidden columns",   "signed zeros" };

static uint32_t word(uint32_t x, uint32_t y, uint32_t seed)
{
    const ordo_philox_words counter = { { x, y, seed, 0 } };
    return ordo_philox(counter, 11, 13, 7).w[0];
}

/* A finite number of 16 bits whose exponent is one of `count` from `lowest` on. */
static uint16_t number(bool f16, uint32_t r, int lowest, int count)
{
    const int fraction = f16 ? 10 : 7;
    const uint32_t exponent = (uint32_t)lowest + r % (uint32_t)count;
    return (uint16_t)((r >> 31 << 15) | exponent << fraction | (r >> 16 & ((1u << fraction) - 1)));
}

/* Element (line, k) of A (operand 0) or B. */
static uint16_t element(bool f16, kind what, int operand, int line, int k)
{
    const uint32_t r = word((uint32_t)(operand * 1024 + line), (uint32_t)k, (uint32_t)what);
    const int one = f16 ? 15 : 127, all = f16 ? 30 : 254; /* exponents: of 1, and the largest */
    switch (what) {
    case SPREAD: return number(f16, r, f16 ? 1 : one - 40, f16 ? all : 80);
    case CANCELLING: { /* products come in pairs of opposite signs, some changed in their last bit
                        */
        const uint32_t pair = word((uint32_t)(operand * 1024 + line), (uint32_t)k / 2, 77);
        const uint16_t x = number(f16, pair, one - 3, 6);
        return (uint16_t)((operand == 0 && k % 2 ? x ^ 0x8000u : x) ^ (r % 11 == 0));
    }
    case TINY: return number(f16, r, 0, f16 ? 8 : operand ? one : 6);
    case HIDDEN: /* every second column of A is 0 where B is as large as can be */
        if (k % 2)
            return operand ? number(f16, r, all - 2, 3) : (uint16_t)(r >> 31 << 15);
        return number(f16, r, f16 ? 1 : 90, 10);
    case ZEROS: return r % 3 ? (uint16_t)(r >> 31 << 15) : operand ? 0 : number(f16, r, one - 2, 4);
    default: return number(f16, r, one - 6, 8);
    }
}

struct data {
    std::vector<uint16_t> a, b;
    std::vector<float> before, expected[2]; /* without and with `before` */
};

static data data_of(bool f16, kind what)
{
    data d = {};
    for (int line = 0; line < ROWS + COLUMNS; line++)
        for (int k = 0; k < DEPTH; k++)
            (line < ROWS ? d.a : d.b)
                .push_back(element(f16, what, line >= ROWS, line % (ROWS + COLUMNS), k));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const uint32_t r = word((uint32_t)i, 5, (uint32_t)what);
        d.before.push_back(r % 5 == 0 ? ordo_f32_of_bits(r >> 31 << 31)
                                      : ordo_f32_of_bits((r & 0x807fffffu) | (100 + r % 40) << 23));
    }
    for (int with = 0; with < 2; with++)
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            uint32_t c = with ? ordo_f32_bits(d.before[(size_t)i]) : 0;
            for (int k = 0; k < DEPTH; k += 16)
                c = ordo_emulator_dot(&ordo_emulator_hopper, f16 ? ORDO_F16 : ORDO_BF16,
                                      &d.a[(size_t)(i / COLUMNS * DEPTH + k)],
                                      &d.b[(size_t)(i % COLUMNS * DEPTH + k)], c);
            d.expected[with].push_back(ordo_f32_of_bits(c));
        }
    return d;
}

template <int N, bool F16, bool FROM_REGISTERS> static void compare(const data *all)
{
    enum { BYTES = (ROWS + N) * ORDO_LINE_BYTES };
    MUST(cudaFuncSetAttribute(chain<N, F16, FROM_REGISTERS>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    for (int what = 0; what < KINDS; what++) {
        const data &d = all[what];
        uint16_t *a = to_device(d.a.data(), d.a.size()), *b = to_device(d.b.data(), d.b.size());
        float *before = to_device(d.before.data(), d.before.size());
        long wrong = 0;
        for (int with = 0; with < 2; with++)
            for (int turn = 0; turn < ROWS; turn += 21) {
                std::vector<float> got(ROWS * COLUMNS);
                float *sums = device_array<float>(got.size(), 0xff);
                const operands o = { a, b, with ? before : NULL, sums };
                /* whole blocks of N columns; of 192 one */
                chain<N, F16, FROM_REGISTERS><<<COLUMNS / N, 128, BYTES>>>(o, turn);
                from_device(got.data(), sums, got.size());
                for (int i = 0; i < ROWS * COLUMNS; i++)
                    if (i % COLUMNS < COLUMNS / N * N)
                        wrong += ordo_f32_bits(got[(size_t)i]) !=
                                 ordo_f32_bits(d.expected[with][(size_t)i]);
                MUST(cudaFree(sums));
            }
        char name[100];
        snprintf(name, sizeof name, "%d columns, %s, A from %s, %s", N, F16 ? "f16" : "bf16",
                 FROM_REGISTERS ? "registers" : "shared memory", kind_name[what]);
        report(name, wrong, 8L * ROWS * (COLUMNS / N * N));
        MUST(cudaFree(a));
        MUST(cudaFree(b));
        MUST(cudaFree(before));
    }
}

template <bool F16> static void compare_all(void)
{
    data all[KINDS];
    for (int what = 0; what < KINDS; what++)
        all[what] = data_of(F16, (kind)what);
    compare<8, F16, false>(all);
    compare<16, F16, false>(all);
    compare<32, F16, false>(all);
    compare<64, F16, false>(all);
    compare<96, F16, false>(all);
    compare<128, F16, false>(all);
    compare<192, F16, false>(all);
    compare<256, F16, false>(all);
    compare<8, F16, true>(all);
    compare<16, F16, true>(all);
    compare<32, F16, true>(all);
    compare<64, F16, true>(all);
    compare<128, F16, true>(all);
    compare<192, F16, true>(all);
    compare<256, F16, true>(all);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    compare_all<false>();
    compare_all<true>();
    return report_all();
}
