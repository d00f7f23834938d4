/* timing.cuh: launches that take turns, timed by the device's clock with cold caches. */
#ifndef BENCH_TIMING_CUH
#define BENCH_TIMING_CUH

#include <algorithm>
#include <functional>
#include <vector>

#include "../../tests/cuda/handmade_pass.h"

struct turn {
    std::function<void(void)> launch;
    std::function<void(void)> prepare = {}; /* before the clock starts; may be empty */
};

/* Median milliseconds of every launch over `rounds` rounds, in which all take turns and L2 is
 * flushed before each; a first round is not counted. */
static std::vector<double> time_in_turns(const std::vector<turn> &turns, int rounds)
{
    const size_t flush_bytes = 256 << 20;
    std::vector<std::vector<float>> ms(turns.size());
    std::vector<double> median;
    cudaEvent_t from, to;
    void *flush;
    MUST(cudaMalloc(&flush, flush_bytes));
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    for (int round = -1; round < rounds; round++)
        for (size_t i = 0; i < turns.size(); i++) {
            float t = 0;
            MUST(cudaMemsetAsync(flush, 0, flush_bytes));
            if (turns[i].prepare)
                turns[i].prepare();
            MUST(cudaEventRecord(from));
            turns[i].launch();
            MUST(cudaEventRecord(to));
            MUST(cudaEventSynchronize(to));
            MUST(cudaEventElapsedTime(&t, from, to));
            if (round >= 0)
                ms[i].push_back(t);
        }
    for (std::vector<float> &x : ms) {
        std::sort(x.begin(), x.end());
        median.push_back((double)x[x.size() / 2]);
    }
    MUST(cudaEventDestroy(from));
    MUST(cudaEventDestroy(to));
    MUST(cudaFree(flush));
    return median;
}

#endif
