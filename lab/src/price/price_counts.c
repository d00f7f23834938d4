/* price_counts.c: descriptions of kernels: the cost of one element, in instructions per lane.
 *
 * Generators were counted in the loop of a kernel in which a thread makes keep bits in words of 32,
 * with threshold, packing, store and loop control. `uniform` counts instructions of the uniform
 * datapath, which use the same dispatch slot on Hopper. It was counted in the kernels that ran
 * there; elsewhere the source says what replaces it. */
#include "price/price.h"

#define COUNTED "counted"
#define FITTED  "fitted"

static const char SASS[] = "sm_90 assembly of nvcc 13.0.88, loop body over its elements";
static const char SASS_U[] =
    "sm_90 assembly of nvcc 13.0.88, loop body over its elements; uniform as in the kernel of 7 "
    "rounds";

static const char OWN[] =
    "sm_90 assembly of src/cuda/ops/dropout.cu, nvcc 13.0.88, p = 0.1, seed and "
    "offset by value: loop body over its elements";
static const char ANY[] = "taken as sliced-any's: libordo has no kernel compiled for it";
static const char SASS_0[] = "sm_90 assembly of nvcc 13.0.88, loop body over its elements; uniform "
                             "not counted, taken as none";

typedef struct generator {
    int rounds, bits;
    ordo_generator kind;
    ordo_kernel_counts counts;
} generator;

#define RNG(rounds_, bits_, kind_, word_, issue_, alu_, wide_, imad_, uniform_, source_)           \
    {                                                                                              \
        rounds_, bits_, kind_,                                                                     \
        {                                                                                          \
            .name = "rng " #rounds_ "x" #bits_ " " word_, .issue = issue_, .alu = alu_,            \
            .imad_wide = wide_, .imad = imad_, .uniform = uniform_, .kind = COUNTED,               \
            .source = source_                                                                      \
        }                                                                                          \
    }

static const generator generators[] = {
    RNG(7, 32, ORDO_GENERATOR_COMPARE, "compare", 9.47, 6.22, 3.09, 0.09, 0.42, SASS),
    RNG(5, 32, ORDO_GENERATOR_COMPARE, "compare", 7.47, 5.22, 2.09, 0.09, 0.43, SASS),
    RNG(3, 32, ORDO_GENERATOR_COMPARE, "compare", 5.47, 4.22, 1.09, 0.09, 0.39, SASS),
    RNG(10, 32, ORDO_GENERATOR_COMPARE, "compare", 12.53, 7.72, 4.59, 0.09, 0.42, SASS_U),
    RNG(7, 16, ORDO_GENERATOR_COMPARE, "compare", 6.06, 4.19, 1.56, 0.09, 0.42, SASS_U),
    RNG(7, 8, ORDO_GENERATOR_COMPARE, "compare", 4.78, 3.78, 0.75, 0.09, 1.42, SASS),
    RNG(7, 8, ORDO_GENERATOR_SWAR, "swar", 2.73, 1.60, 0.77, 0.02, 0.35, SASS),
    RNG(5, 8, ORDO_GENERATOR_SWAR, "swar", 2.23, 1.35, 0.52, 0.02, 0.35, SASS_U),
    RNG(3, 8, ORDO_GENERATOR_SWAR, "swar", 1.73, 1.10, 0.27, 0.27, 0.35, SASS_U),
    RNG(7, 8, ORDO_GENERATOR_SLICED, "sliced", 1.633, 0.922, 0.625, 0.062, 0, OWN),
    RNG(10, 8, ORDO_GENERATOR_SLICED, "sliced", 2.391, 1.289, 1.016, 0.062, 0, OWN),
    RNG(5, 8, ORDO_GENERATOR_SLICED, "sliced", 1.48, 0.80, 0.39, 0.11, 0.153, ANY),
    RNG(3, 8, ORDO_GENERATOR_SLICED, "sliced", 0.83, 0.53, 0.16, 0.11, 0.10, ANY),
    RNG(7, 4, ORDO_GENERATOR_SLICED, "sliced", 0.836, 0.469, 0.297, 0.047, 0, OWN),
    RNG(10, 4, ORDO_GENERATOR_SLICED, "sliced", 1.219, 0.648, 0.492, 0.055, 0, OWN),
    RNG(7, 16, ORDO_GENERATOR_SLICED, "sliced", 4.00, 2.19, 1.50, 0.22, 0, ANY),
    RNG(7, 8, ORDO_GENERATOR_SLICED_ANY, "sliced-any", 1.98, 1.05, 0.64, 0.11, 0.153, SASS),
    RNG(10, 8, ORDO_GENERATOR_SLICED_ANY, "sliced-any", 2.73, 1.42, 1.02, 0.11, 0.133, SASS),
    RNG(5, 8, ORDO_GENERATOR_SLICED_ANY, "sliced-any", 1.48, 0.80, 0.39, 0.11, 0.153, SASS_U),
    RNG(3, 8, ORDO_GENERATOR_SLICED_ANY, "sliced-any", 0.83, 0.53, 0.16, 0.11, 0.10, SASS_U),
    RNG(7, 4, ORDO_GENERATOR_SLICED_ANY, "sliced-any", 0.97, 0.53, 0.33, 0.05, 0.10, SASS),
    RNG(10, 4, ORDO_GENERATOR_SLICED_ANY, "sliced-any", 1.34, 0.72, 0.52, 0.05, 0.10, SASS_U),
    RNG(7, 16, ORDO_GENERATOR_SLICED_ANY, "sliced-any", 4.00, 2.19, 1.50, 0.22, 0, SASS_0),
};
enum { GENERATORS = sizeof generators / sizeof generators[0] };

/* One score at head size 128. Shared memory is counted as ordo's kernels for sm_90 use it, in bytes
 * per score and column of the head. A product of 64 rows reads A and B there, or B alone if A is in
 * registers.
 *
 *   forward, 128 x 128      S = Q K'     Q 2/128, K 2/64       copies in: K, V 4/128
 *                           O += P V     V 2/64
 *   backward, 64 x 128      S' = K Q'    K 2/64, Q 2/64        copies in: Q, dO 4/128
 *                           dP' = V dO'  V 2/64, dO 2/64
 *                           dV += P' dO  dO 2/64               dQ staged, f32, in and out: 8/128
 *                           dK += dS' Q  Q 2/64
 *                           dQ = dS K    dS 2/64, K 2/64
 *
 * The backward pass also writes 2 bytes of dS and reads 9/16 bytes of row statistics per score,
 * whatever the head size. What comes once per tile of rows or of keys is left out: Q and O forward,
 * K, V, dK and dV backward. */
static const ordo_kernel_counts attention[] = {
    {
        .name = "attention",
        .issue = 12.07,
        .alu = 3.5,
        .fma = 5.0,
        .imad = 0.5,
        .mufu = 1.0,
        .rf_reads = 27.34,
        .shared_dim = 2.0 / 128 + 2 * 2.0 / 64 + 4.0 / 128,
        .kind = FITTED,
        .source =
            "issue and register reads so that the speedups of arXiv 2410.07531 come out, both "
            "binding as it says; one exp2, shared memory counted in the kernel; the others "
            "assumed, never binding",
    },
    {
        .name = "attention-backward",
        .issue = 24.14,
        .alu = 7.0,
        .fma = 10.0,
        .imad = 1.0,
        .mufu = 1.0,
        .rf_reads = 54.68,
        .shared = 2 + 9.0 / 16,
        .shared_dim = 8 * 2.0 / 64 + 4.0 / 128 + 8.0 / 128,
        .kind = FITTED,
        .source = "one exp2, shared memory counted in the kernel; the others assumed, twice "
                  "forward's, never binding",
    },
};
enum { ATTENTION = sizeof attention / sizeof attention[0] };

const ordo_kernel_counts *ordo_attention_counts(bool backward)
{
    return &attention[backward];
}

/* Instructions per element of ordo's own generator on a CPU with NEON, counted by valgrind in the
 * loops of bench/cpu/keep.c. */
static const struct {
    int rounds, bits;
    double instructions;
} on_cpu[] = { { 7, 8, 1.43 }, { 7, 4, 0.77 }, { 7, 16, 2.72 }, { 10, 8, 2.09 } };

double ordo_rng_cpu_cost(const ordo_kernel_counts *counts)
{
    const double known = on_cpu[0].instructions;
    double cost = counts->issue /
                  ordo_rng_counts(&(ordo_rng) { .generator = ORDO_GENERATOR_SLICED_ANY })->issue;
    for (int i = 0; i < GENERATORS; i++)
        for (size_t k = 0; k < sizeof on_cpu / sizeof on_cpu[0]; k++)
            if (counts == &generators[i].counts && generators[i].kind == ORDO_GENERATOR_SLICED &&
                generators[i].rounds == on_cpu[k].rounds && generators[i].bits == on_cpu[k].bits)
                cost = on_cpu[k].instructions / known;
    return cost;
}

const ordo_kernel_counts *ordo_rng_counts(const ordo_rng *rng)
{
    const int rounds = rng->rounds ? rng->rounds : 7, bits = rng->bits ? rng->bits : 8;
    for (int i = 0; i < GENERATORS; i++)
        if (generators[i].rounds == rounds && generators[i].bits == bits &&
            generators[i].kind == rng->generator)
            return &generators[i].counts;
    return NULL;
}

const ordo_kernel_counts *ordo_price_counts(size_t index)
{
    if (index < ATTENTION)
        return &attention[index];
    return index < ATTENTION + GENERATORS ? &generators[index - ATTENTION].counts : NULL;
}
