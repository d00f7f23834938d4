/* backward_free.cu: the backward forms without turns, timed beside the ordered one.
 *
 * B S = 16384 tokens, H D = 2048 channels, bf16. The forms take turns in one process; the cache is
 * flushed before each; medians. A form's time is all of its kernels. */
#include <algorithm>

#include "../tests/cuda/case.h"
#include "cuda/backward_fixed.h"
#include "cuda/backward_split.h"

enum { FORMS = 3, REPEATS = 11, FLUSH_BYTES = 256 << 20 };
static const char *const form_names[FORMS] = { "ordered", "split", "fixed" };

static float time_once(device_case &c, const ordo_fixed_work &work, int form, void *flush)
{
    static cudaEvent_t begin, end;
    char why[300] = "";
    float ms = 0;
    if (!begin) {
        MUST(cudaEventCreate(&begin));
        MUST(cudaEventCreate(&end));
    }
    MUST(cudaMemsetAsync(flush, 0, FLUSH_BYTES));
    MUST(cudaEventRecord(begin));
    must_ordo(form == 0   ? ordo_sm90_backward(&c.pass, why, sizeof why)
              : form == 1 ? ordo_sm90_backward_split(&c.pass, why, sizeof why)
                          : ordo_sm90_backward_fixed(&c.pass, &work, why, sizeof why),
              why);
    MUST(cudaEventRecord(end));
    MUST(cudaEventSynchronize(end));
    MUST(cudaEventElapsedTime(&ms, begin, end));
    return ms;
}

static void row(int S, int D, ordo_mask mask, void *flush)
{
    const int heads = 2048 / D;
    device_case c({ 16384 / S, heads, heads, S, S, D, mask, ORDO_ORDER_DEFAULT, 0, 0, 0 });
    const size_t rows = (size_t)16384 * heads, parts = (size_t)rows / ORDO_FIXED_KEYS;
    const ordo_fixed_work work = { c.take<float>(rows), c.take<float>(2 * parts) };
    std::vector<float> ms[FORMS];
    c.forward();
    for (int repeat = -1; repeat < REPEATS; repeat++) /* the first is not counted */
        for (int form = 0; form < FORMS; form++) {
            const float t = time_once(c, work, form, flush);
            if (repeat >= 0)
                ms[form].push_back(t);
        }
    printf("%5d %3d %-6s", S, D, mask == ORDO_MASK_FULL ? "full" : "causal");
    double ordered = 0;
    for (int form = 0; form < FORMS; form++) {
        std::sort(ms[form].begin(), ms[form].end());
        const double t = (double)ms[form][REPEATS / 2];
        if (form == 0)
            ordered = t;
        printf("  %8.3f %6.1f %5.3f", t, c.flops(5) / t * 1e-9, ordered / t);
    }
    printf("\n");
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
    printf("%5s %3s %-6s", "S", "D", "mask");
    for (const char *name : form_names)
        printf("  %-22s", name);
    printf("\n%16s", "");
    for (int form = 0; form < FORMS; form++)
        printf("  %8s %6s %5s", "ms", "TFLOPs", "speed");
    printf("\n");
    for (int D = 128; D >= 64; D -= 64)
        for (ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
            for (int S = 2048; S <= 16384; S *= 2)
                row(S, D, mask, flush);
    return 0;
}
