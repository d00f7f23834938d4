/* sum_device.cu: the tree sum of arrays ÷ a copy on a Hopper GPU: bytes read and written a second.
 *
 *   build/bench/sum_device [--quick]
 *
 * Sum and copy (cudaMemcpyAsync within the device) take turns, with the caches flushed before each;
 * medians by the device's clock. Target: at least 0.80 of the copy. */
#include "../../tests/cuda/handmade_pass.h"
#include "cuda/ops/sum.h"
#include "timing.cuh"

enum { MOST = 16 };
static const size_t elements = 64 << 20;

static void row(ordo_dtype dtype, int count, bool in_place, void *const *arrays, float *out,
                int runs)
{
    char why[300] = "";
    ordo_sum s = ORDO_SUM_INIT;
    s.dtype = dtype, s.count = count, s.elements = (int64_t)elements;
    s.inputs = (const void *const *)arrays;
    s.out = in_place ? (float *)arrays[0] : out;
    const auto add = [&] { must_ordo(ordo_cuda_sum(&s, NULL, why, sizeof why), why); };
    const auto copy = [&] {
        MUST(cudaMemcpyAsync(out, arrays[1], elements * 4, cudaMemcpyDeviceToDevice));
    };
    const std::vector<double> ms = time_in_turns({ { add }, { copy } }, runs);
    const double bytes = (double)elements * (count * (dtype == ORDO_F32 ? 4 : 2) + 4);
    const double rate = bytes / ms[0], copy_rate = (double)elements * 8 / ms[1];
    printf("%-5s %5d  %-7s %8.0f %8.2f  %s\n", ordo_dtype_name(dtype), count,
           in_place ? "a += b" : "", rate * 1e-6, rate / copy_rate,
           rate >= 0.8 * copy_rate ? "" : "below the target");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int runs = argc > 1 && strcmp(argv[1], "--quick") == 0 ? 9 : 31;
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    device_memory memory;
    void *arrays[MOST];
    float *const out = memory.take<float>(elements);
    for (void *&array : arrays) {
        array = memory.take<float>(elements);
        MUST(cudaMemset(array, 0, elements * 4));
    }
    printf("tree sums of arrays of %zu elements\ndtype count             GB/s   ÷ copy\n",
           elements);
    row(ORDO_F32, 2, true, arrays, out, runs);
    for (const ordo_dtype dtype : { ORDO_F32, ORDO_BF16 })
        for (const int count : { 2, 3, 4, 6, 8, 16 })
            row(dtype, count, false, arrays, out, runs);
    return 0;
}
