/* sum_test.c: the tree sum of arrays against its definition, on every target, for every kind of
 * rest; whatever the threads, the caller's rounding and the way a tree is divided into blocks. */
#include "base/half.h"
#include "check.h"
#include "cpu/kernels.h"
#include "fp_control.h"
#include "ordo/sum.h"

enum { MOST_ELEMENTS = 70001, SMALL = 2100 };

static const char *const targets[] = { "generic", "neon", "avx2", "avx512" };
#define FOR_TARGETS(k)                                                                             \
    for (int x_ = 0; x_ < 4; x_++)                                                                 \
        for (const ordo_kernels *k = ordo_cpu_kernels_named(targets[x_]); k; k = NULL)

/* Inputs of any type, each with memory of its own. */
typedef struct arrays {
    ordo_dtype dtype;
    int count;
    size_t elements;
    void *at[ORDO_SUM_MOST];
} arrays;

static float value(const arrays *a, int input, size_t x)
{
    const void *data = a->at[input];
    switch (a->dtype) {
    case ORDO_F32: return ((const float *)data)[x];
    case ORDO_BF16: return ordo_f32_from_bf16(((const uint16_t *)data)[x]);
    case ORDO_F16: return ordo_f32_from_f16(((const uint16_t *)data)[x]);
    }
    return 0;
}

/* Values whose sums round, with all kinds of special ones among them. */
static uint32_t draw(uint64_t *state, ordo_dtype dtype)
{
    const uint32_t x = (uint32_t)check_random(state);
    switch (x % 64) {
    case 0: return 0x80000000u;                           /* -0; two of them give -0 */
    case 1: return x >> 12 & 0x7fffff;                    /* subnormal */
    case 2: return 0x7f800000u | (x << 31 & 0x80000000u); /* infinities of both signs */
    case 3: return x % 4096 < 64 ? 0xffc12345u : 0;       /* a NaN that is not the canonical one */
    default: break;
    }
    const float scale = dtype == ORDO_F16 ? 0x1p-29f : 0x1p-31f * (float)(1 << x % 20);
    return ordo_f32_bits((float)(int32_t)check_random(state) * scale);
}

static void fill(arrays *a, ordo_dtype dtype, int count, size_t elements, uint64_t seed)
{
    uint64_t state = seed;
    a->dtype = dtype;
    a->count = count;
    a->elements = elements;
    for (int input = 0; input < count; input++) {
        a->at[input] = malloc(elements * 4 + 1);
        for (size_t x = 0; x < elements; x++) {
            const float drawn = ordo_f32_of_bits(draw(&state, dtype));
            if (dtype == ORDO_F32)
                ((float *)a->at[input])[x] = drawn;
            else
                ((uint16_t *)a->at[input])[x] =
                    dtype == ORDO_F16 ? ordo_f16_from_f32(drawn) : ordo_bf16_from_f32(drawn);
        }
    }
}

static void clear(arrays *a)
{
    for (int input = 0; input < a->count; input++)
        free(a->at[input]);
}

/* Node (level, index) as ordo/sum.h defines it. */
static float node(const arrays *a, int level, int index, size_t x)
{
    if (level == 0)
        return value(a, index, x);
    const float left = node(a, level - 1, 2 * index, x);
    const bool right = (2 * index + 1) << (level - 1) < a->count;
    return right ? left + node(a, level - 1, 2 * index + 1, x) : left;
}

static void expect(const arrays *a, float *want)
{
    int level = 0;
    while (1 << level < a->count)
        level++;
    for (size_t x = 0; x < a->elements; x++) {
        const float sum = node(a, level, 0, x);
        want[x] = sum == sum ? sum : ordo_f32_of_bits(ORDO_F32_NAN);
    }
}

static ordo_sum sum_of(const arrays *a, float *out, int threads)
{
    ordo_sum s = ORDO_SUM_INIT;
    s.dtype = a->dtype;
    s.threads = threads;
    s.count = a->count;
    s.elements = (int64_t)a->elements;
    s.inputs = (const void *const *)a->at;
    s.out = out;
    return s;
}

static float want[MOST_ELEMENTS], got[MOST_ELEMENTS + 1];

static void compare(ordo_dtype dtype, int count, size_t elements, int threads)
{
    arrays a;
    fill(&a, dtype, count, elements, (uint64_t)count * 1000 + elements);
    expect(&a, want);
    memset(got, 0xa5, sizeof got);
    const ordo_sum s = sum_of(&a, got, threads);
    CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
    CHECK_BITS(got, want, elements);
    CHECK_INT(ordo_f32_bits(got[elements]), 0xa5a5a5a5u); /* no element past the last is written */
    clear(&a);
}

TEST(every_target_adds_by_the_tree)
{
    static const int counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24, 31, 100, 255, 256 };
    static const ordo_dtype types[] = { ORDO_F32, ORDO_BF16, ORDO_F16 };
    FOR_TARGETS(k)
    {
        ordo_cpu_kernels_force(k);
        for (int type = 0; type < 3; type++) {
            for (int c = 0; c < 16; c++)
                compare(types[type], counts[c], 45, 1);
            for (size_t n = 0; n < 40; n++)
                compare(types[type], 5, n, 1);
            compare(types[type], 6, SMALL, 1); /* several chunks */
        }
    }
    ordo_cpu_kernels_force(NULL);
}

TEST(threads_change_no_bit)
{
    for (int threads = 0; threads < 6; threads++) {
        compare(ORDO_F32, 3, MOST_ELEMENTS, threads);
        compare(ORDO_BF16, 8, MOST_ELEMENTS, threads);
    }
}

TEST(rounding_of_the_caller_changes_no_bit)
{
    arrays a;
    fill(&a, ORDO_F32, 7, SMALL, 3);
    expect(&a, want);
    const ordo_sum s = sum_of(&a, got, 2);
    const uint64_t before = control();
    for (int mode = 0; mode < MODES; mode++) {
        set_control(modes[mode]);
        const ordo_status status = ordo_sum_tree(&s);
        set_control(before);
        CHECK_INT(status, ORDO_OK);
        CHECK_BITS(got, want, SMALL);
    }
    clear(&a);
}

/* a += b, and every other input as the place of the result. */
TEST(the_result_may_be_an_input)
{
    static const int counts[] = { 1, 2, 3, 8, 11, 40 };
    for (int c = 0; c < 6; c++)
        for (int place = 0; place < counts[c]; place += 1 + counts[c] / 5) {
            arrays a;
            fill(&a, ORDO_F32, counts[c], SMALL, (uint64_t)place);
            expect(&a, want);
            const ordo_sum s = sum_of(&a, a.at[place], 2);
            CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
            CHECK_BITS((const float *)s.out, want, SMALL);
            clear(&a);
        }
}

/* Sums of aligned blocks of 4 inputs are inputs of the rest of the tree; also one after another, as
 * digits of a counter. */
TEST(a_tree_may_be_added_in_blocks)
{
    arrays a;
    fill(&a, ORDO_BF16, 14, SMALL, 9);
    expect(&a, want);
    arrays blocks = { .dtype = ORDO_F32, .count = 4, .elements = SMALL };
    for (int b = 0; b < 4; b++) {
        blocks.at[b] = malloc(SMALL * 4);
        ordo_sum s = sum_of(&a, blocks.at[b], 1);
        s.inputs += 4 * b;
        s.count = b < 3 ? 4 : 2;
        CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
    }
    const ordo_sum top = sum_of(&blocks, got, 1);
    CHECK_INT(ordo_sum_tree(&top), ORDO_OK);
    CHECK_BITS(got, want, SMALL);
    for (int pair = 2; pair >= 0; pair -= 2) { /* 2 += 3, then 0 += 1, then 0 += 2 */
        ordo_sum s = sum_of(&blocks, blocks.at[pair], 1);
        s.inputs += pair;
        s.count = 2;
        CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
    }
    const void *halves[] = { blocks.at[0], blocks.at[2] };
    ordo_sum s = sum_of(&blocks, blocks.at[0], 1);
    s.inputs = halves;
    s.count = 2;
    CHECK_INT(ordo_sum_tree(&s), ORDO_OK);
    CHECK_BITS((const float *)blocks.at[0], want, SMALL);
    clear(&blocks);
    clear(&a);
}

CHECK_MAIN()
