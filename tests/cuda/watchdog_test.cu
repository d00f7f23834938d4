/* watchdog_test.cu: warps that wait for ever are in the report, each with what it waits for, and
 * the host can read it while the kernel runs. Ends with the kernel still running: the driver
 * ends it with the process. Without a device: compiled, and skipped. */
#define ORDO_WATCHDOG
#define ORDO_WATCH_NS 500000000ull
#include <unistd.h>

#include "cuda/sm90/ptx.h"
#include "cuda/support/watchdog_host.h"
#include "on_device.h"

enum { BAR = ORDO_SMEM_BASE, NAMED = 5, VALUE = 77, SHARED_BYTES = 8 };

/* Warp 0: an mbarrier that one of two arrivals is missing of; 1: a counter; 2: a named barrier for
 * which nobody else comes; 3 ends. */
__global__ void hang_kernel(int32_t *counter)
{
    extern __shared__ __align__(1024) char smem[];
    if (threadIdx.x == 0) {
        mbar_init(BAR, 2);
        mbar_init_fence();
    }
    __syncthreads();
    const int warp = threadIdx.x / 32;
    if (warp == 0) {
        if (threadIdx.x == 0)
            mbar_arrive(BAR);
        mbar_wait(BAR, 0);
    } else if (warp == 1) {
        ordo_watch watch;
        for (uint32_t spins = 0; load_acquire(counter) != VALUE; spins++)
            watch.look(ORDO_WAIT_COUNTER, (uint64_t)counter, VALUE);
    } else if (warp == 2) {
        named_sync(NAMED, 64);
    }
}

int main(void)
{
    int failed = 0;
    if (device_is_missing())
        return 77;
    int32_t *const counter = device_array<int32_t>(1, 0);
    watch_launch((const void *)hang_kernel, 1);
    hang_kernel<<<1, 128, SHARED_BYTES>>>(counter);
    const volatile ordo_watch_line *const lines =
        (const volatile ordo_watch_line *)ORDO_WATCH_REPORT;
    for (int n = 0; n < 100 && !(lines[0].now && lines[1].now && lines[2].note); n++)
        usleep(100000);
    watch_print(lines);
    failed += !(lines[0].now && lines[0].wait == ORDO_WAIT_MBARRIER && lines[0].at == BAR &&
                lines[0].want == 0 && lines[0].state != 0);
    failed += !(lines[1].now && lines[1].wait == ORDO_WAIT_COUNTER &&
                lines[1].at == (uint64_t)counter && lines[1].want == VALUE);
    failed += !(!lines[2].now && lines[2].note == ((uint32_t)ORDO_WAIT_NAMED << 16 | NAMED));
    failed += !(!lines[3].now && !lines[3].note);
    failed += cudaStreamQuery(0) != cudaErrorNotReady;
    printf("%d passed, %d failed, 0 skipped\n", 5 - failed, failed);
    fflush(NULL);
    _exit(failed != 0); /* at once: an orderly end would wait for the kernel */
}
