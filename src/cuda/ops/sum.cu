/* ops/sum.cu: the tree sum of arrays (ordo/sum.h), one thread per four elements of each input.
 *
 * A thread adds groups of up to 8 inputs in registers and the sums of the groups by a binary
 * counter, whose digit l holds the sum of 2^l groups. Every addition is one __fadd_rn, in the tree
 * of the CPU backend: the bits do not depend on the grid or on the alignment. */
#include "cuda/ops/ops.h"

#include "base/half.h"
#include "cuda/support/launch.h"
#include "cuda/tile/ptx.h"

enum { THREADS = 256, ANY = 0, FEW = 3, GROUP = 8, LEVELS = 5, BLOCKS_PER_PROCESSOR = 8 };
static_assert(ORDO_SUM_MOST == GROUP << LEVELS, "the counter holds all groups");

typedef struct sum_args {
    int64_t elements;
    float *out;
    int32_t count;
    const void *inputs[ORDO_SUM_MOST];
} sum_args;

/* `N` consecutive values of one sum. */
template <int N> struct values {
    float x[N];
};

template <int N> ORDO_DEVICE values<N> add(const values<N> &a, const values<N> &b)
{
    values<N> r;
#pragma unroll
    for (int i = 0; i < N; i++)
        r.x[i] = __fadd_rn(a.x[i], b.x[i]);
    return r;
}

/* A NaN keeps its payload: store() writes the canonical one for every sum that is none. */
template <ordo_dtype TYPE> ORDO_DEVICE float half_value(uint32_t half)
{
    float value = ordo_f32_of_bits(half << 16);
    if (TYPE == ORDO_F16)
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)half));
    return value;
}

/* Elements at ... at + N - 1 of an input; N > 1: four, aligned. */
template <ordo_dtype TYPE, int N> ORDO_DEVICE values<N> load(const void *input, int64_t at)
{
    values<N> r;
    if constexpr (N == 1) {
        r.x[0] = TYPE == ORDO_F32 ? ((const float *)input)[at]
                                  : half_value<TYPE>(((const uint16_t *)input)[at]);
    } else if constexpr (TYPE == ORDO_F32) {
        const float4 four = *(const float4 *)((const float *)input + at);
        r.x[0] = four.x, r.x[1] = four.y, r.x[2] = four.z, r.x[3] = four.w;
    } else {
        const uint2 four = *(const uint2 *)((const uint16_t *)input + at);
        const uint32_t words[2] = { four.x, four.y };
#pragma unroll
        for (int i = 0; i < N; i++)
            r.x[i] = half_value<TYPE>(words[i / 2] >> (i % 2 * 16) & 0xffff);
    }
    return r;
}

template <int N> ORDO_DEVICE void store(float *out, int64_t at, values<N> r)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        r.x[i] = r.x[i] == r.x[i] ? r.x[i] : ordo_f32_of_bits(ORDO_F32_NAN);
    if constexpr (N == 1)
        out[at] = r.x[0];
    else
        *(float4 *)(out + at) = make_float4(r.x[0], r.x[1], r.x[2], r.x[3]);
}

/* The sum of COUNT inputs. */
template <ordo_dtype TYPE, int N, int COUNT>
ORDO_DEVICE values<N> sum_group(const void *const *inputs, int64_t at)
{
    values<N> x[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        x[i] = load<TYPE, N>(inputs[i], at);
#pragma unroll
    for (int step = 1; step < COUNT; step *= 2)
#pragma unroll
        for (int i = 0; i + step < COUNT; i += 2 * step)
            x[i] = add(x[i], x[i + step]);
    return x[0];
}

/* The sum of `count` inputs, 1 to COUNT: one branch, and all loads are under way at once. */
template <ordo_dtype TYPE, int N, int COUNT>
ORDO_DEVICE values<N> sum_some(const void *const *inputs, int count, int64_t at)
{
    if constexpr (COUNT > 1)
        if (count < COUNT)
            return sum_some<TYPE, N, COUNT - 1>(inputs, count, at);
    return sum_group<TYPE, N, COUNT>(inputs, at);
}

/* The sum of all inputs by groups of GROUP. */
template <ordo_dtype TYPE, int N>
ORDO_DEVICE values<N> sum_groups(const void *const *inputs, int count, int64_t at)
{
    values<N> digits[LEVELS], sum;
    const int last = (count - 1) / GROUP;
    for (int group = 0; group < last; group++) {
        sum = sum_group<TYPE, N, GROUP>(inputs + group * GROUP, at);
        bool carry = true;
#pragma unroll
        for (int l = 0; l < LEVELS; l++)
            if (carry) {
                carry = group >> l & 1;
                if (carry)
                    sum = add(digits[l], sum);
                else
                    digits[l] = sum;
            }
    }
    sum = sum_some<TYPE, N, GROUP>(inputs + last * GROUP, count - last * GROUP, at);
#pragma unroll
    for (int l = 0; l < LEVELS; l++)
        if (last >> l & 1)
            sum = add(digits[l], sum);
    return sum;
}

/* WIDTH: the number of inputs; ANY: it is args.count. N: elements per load. */
template <ordo_dtype TYPE, int N, int WIDTH>
ORDO_DEVICE values<N> sum_at(const sum_args &args, int64_t at)
{
    if constexpr (WIDTH != ANY)
        return sum_group<TYPE, N, WIDTH>(args.inputs, at);
    else
        return sum_groups<TYPE, N>(args.inputs, args.count, at);
}

template <ordo_dtype TYPE, int N, int WIDTH> ORDO_DEVICE void sum_all(const sum_args &args)
{
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * THREADS, whole = args.elements / N;
    int64_t x = first;
    for (; x + step < whole; x += 2 * step) { /* two at once: more loads under way */
        const values<N> a = sum_at<TYPE, N, WIDTH>(args, x * N);
        const values<N> b = sum_at<TYPE, N, WIDTH>(args, (x + step) * N);
        store<N>(args.out, x * N, a);
        store<N>(args.out, (x + step) * N, b);
    }
    if (x < whole)
        store<N>(args.out, x * N, sum_at<TYPE, N, WIDTH>(args, x * N));
    const int64_t rest = whole * N + first; /* fewer than N elements, by the first threads */
    if (N > 1 && rest < args.elements)
        store<1>(args.out, rest, sum_at<TYPE, 1, WIDTH>(args, rest));
}

/* LEAST to MOST inputs, each number by a loop of its own. */
template <ordo_dtype TYPE, int N, int LEAST, int MOST>
ORDO_DEVICE void sum_few(const sum_args &args)
{
    if constexpr (LEAST < MOST)
        if (args.count < MOST)
            return sum_few<TYPE, N, LEAST, MOST - 1>(args);
    sum_all<TYPE, N, MOST>(args);
}

/* MOST is ANY: more than GROUP inputs, too. */
template <ordo_dtype TYPE, int N, int LEAST, int MOST>
static __global__ void __launch_bounds__(THREADS) sum_kernel(const __grid_constant__ sum_args args)
{
    if constexpr (MOST != ANY)
        sum_few<TYPE, N, LEAST, MOST>(args);
    else if (LEAST > GROUP || args.count > GROUP)
        sum_all<TYPE, N, ANY>(args);
    else
        sum_few<TYPE, N, LEAST, GROUP>(args);
}

/* ---- launch ---- */

/* Few inputs take fewer registers, which leaves room for more blocks. */
template <ordo_dtype TYPE> static const void *kernel_for(const ordo_sum *s, bool aligned)
{
    if (!aligned)
        return (const void *)sum_kernel<TYPE, 1, 1, ANY>;
    return s->count <= FEW     ? (const void *)sum_kernel<TYPE, 4, 1, FEW>
           : s->count <= GROUP ? (const void *)sum_kernel<TYPE, 4, FEW + 1, GROUP>
                               : (const void *)sum_kernel<TYPE, 4, GROUP + 1, ANY>;
}

ordo_status ordo_cuda_sum(const ordo_sum *s, void *stream)
{
    sum_args args;
    uintptr_t addresses = (uintptr_t)s->out;
    args.elements = s->elements;
    args.out = s->out;
    args.count = (int32_t)s->count;
    for (int64_t x = 0; x < s->count; x++) {
        args.inputs[x] = s->inputs[x];
        addresses |= (uintptr_t)s->inputs[x];
    }
    const bool aligned = addresses % 16 == 0;
    int blocks = 0;
    const void *kernel = s->dtype == ORDO_F32    ? kernel_for<ORDO_F32>(s, aligned)
                         : s->dtype == ORDO_BF16 ? kernel_for<ORDO_BF16>(s, aligned)
                                                 : kernel_for<ORDO_F16>(s, aligned);
    const int64_t units = s->elements / (aligned ? 4 : 1) / THREADS / BLOCKS_PER_PROCESSOR + 1;
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, units, &blocks));
    const ordo_cuda_grid grid = { (unsigned)blocks * BLOCKS_PER_PROCESSOR, THREADS, 0,
                                  ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(kernel, &args, grid, stream);
}
