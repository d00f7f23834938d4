/* backward_free.cu: the backward forms without turns, timed beside the ordered one.
 *
 * B S = 16384 tokens, H D = 2048 channels, bf16. The forms take turns in one process; the cache is
 * flushed before each; medians. A form's time is all of its kernels; after it, for each mode of dQ,
 * the time of the chains alone. */
#include <algorithm>

#include "../tests/cuda/case.h"
#include "cuda/backward_fixed.h"
#include "cuda/backward_kernel.h"
#include "cuda/backward_split.h"

enum { FORMS = 3, MODES = 4, REPEATS = 11, FLUSH_BYTES = 256 << 20 };

static const char *const names[FORMS + MODES] = { "ordered", "split",     "fixed", "ordered",
                                                  "none",    "unordered", "fixed" };
static cudaEvent_t event[2];

static void form(device_case &c, const ordo_fixed_work &work, int which)
{
    char why[300] = "";
    MUST(cudaEventRecord(event[0]));
    must_ordo(which == 0   ? ordo_sm90_backward(&c.pass, why, sizeof why)
              : which == 1 ? ordo_sm90_backward_split(&c.pass, why, sizeof why)
                           : ordo_sm90_backward_fixed(&c.pass, &work, why, sizeof why),
              why);
    MUST(cudaEventRecord(event[1]));
}

template <int D, int MODE> static void chains(device_case &c, const ordo_fixed_work &work)
{
    using Z = backward_shape<D>;
    char why[300] = "";
    int blocks;
    ordo_backward_args args;
    must_ordo(ordo_backward_arguments(&c.pass, Z::ROWS, Z::KEYS, &args, &blocks, why, sizeof why),
              why);
    args.row_units = work.row_units; /* whatever the last fixed form left */
    must_ordo(ordo_backward_begin(&c.pass, true, why, sizeof why), why);
    MUST(cudaFuncSetAttribute(backward_kernel<D, MODE>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              Z::BYTES));
    void *parameters[] = { &args };
    MUST(cudaEventRecord(event[0]));
    MUST(cudaLaunchCooperativeKernel((const void *)backward_kernel<D, MODE>, blocks, Z::THREADS,
                                     parameters, Z::BYTES, 0));
    MUST(cudaEventRecord(event[1]));
}

template <int D> static void chains_of(device_case &c, const ordo_fixed_work &work, int which)
{
    which == 0   ? chains<D, ORDO_DQ_ORDERED>(c, work)
    : which == 1 ? chains<D, ORDO_DQ_NONE>(c, work)
    : which == 2 ? chains<D, ORDO_DQ_UNORDERED>(c, work)
                 : chains<D, ORDO_DQ_FIXED>(c, work);
}

template <int D> static void row(int S, ordo_mask mask, void *flush)
{
    const int heads = 2048 / D;
    device_case c({ 16384 / S, heads, heads, S, S, D, mask, ORDO_ORDER_DEFAULT, 0, 0, 0 });
    const size_t rows = (size_t)16384 * heads, parts = rows / ORDO_FIXED_KEYS;
    const ordo_fixed_work work = { c.take<float>(rows), c.take<float>(2 * parts) };
    std::vector<float> ms[FORMS + MODES];
    c.forward();
    for (int repeat = -1; repeat < REPEATS; repeat++) /* the first is not counted */
        for (int i = 0; i < FORMS + MODES; i++) {
            float t = 0;
            MUST(cudaMemsetAsync(flush, 0, FLUSH_BYTES));
            if (i < FORMS)
                form(c, work, i);
            else
                chains_of<D>(c, work, i - FORMS);
            MUST(cudaEventSynchronize(event[1]));
            MUST(cudaEventElapsedTime(&t, event[0], event[1]));
            if (repeat >= 0)
                ms[i].push_back(t);
        }
    printf("%5d %3d %-6s", S, D, mask == ORDO_MASK_FULL ? "full" : "causal");
    for (int i = 0; i < FORMS + MODES; i++) {
        std::sort(ms[i].begin(), ms[i].end());
        const double t = (double)ms[i][REPEATS / 2];
        const double base = (double)ms[i < FORMS ? 0 : FORMS][REPEATS / 2];
        if (i % FORMS == 0 && i <= FORMS)
            printf("%s %7.3f", i ? " |" : "", t);
        else
            printf(" %7.3f %.2f", t, base / t);
    }
    printf("  %5.1f\n", c.flops(5) / (double)ms[0][REPEATS / 2] * 1e-9);
    fflush(stdout);
}

int main(void)
{
    if (!case_have_device()) {
        printf("skip: no CUDA device of capability 9.0\n");
        return 77;
    }
    void *flush;
    MUST(cudaMalloc(&flush, FLUSH_BYTES));
    for (cudaEvent_t &e : event)
        MUST(cudaEventCreate(&e));
    printf("ms and speed relative to ordered: whole passes | chains alone; TFLOP/s of ordered\n"
           "%5s %3s %-6s",
           "S", "D", "mask");
    for (int i = 0; i < FORMS + MODES; i++)
        printf(i % FORMS == 0 && i <= FORMS ? "%s %7s" : "%s %-12s", i == FORMS ? " |" : "",
               names[i]);
    printf("\n");
    for (ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
        for (int S = 2048; S <= 16384; S *= 2) {
            row<128>(S, mask, flush);
            row<64>(S, mask, flush);
        }
    return 0;
}
