/* bench_peak.c: floating-point operations per second that the cores can do, measured.
 *
 * A loop of independent fused multiply-adds, x = x + x c with c so small that x stays 1: more of
 * them than latency times units on any core at hand. Reading x twice matters: a Neoverse V1 that
 * reads two operands other than the sum from its register file does only half as many. In
 * assembly, because compilers find shorter ways to the same numbers. */
#define _XOPEN_SOURCE 700
#include "attention/bench_peak.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { LOOPS = 20000 }; /* a burst: about 100 microseconds between looks at the clock */

typedef struct loop {
    const char *name;
    void (*run)(uint64_t loops);
    double flops; /* a loop */
} loop;

static const float one = 1, tiny = 0x1p-30f;

#if defined(__aarch64__)

#define X(n)    "dup v" #n ".4s, %w1\n"
#define F(n)    "fmla v" #n ".4s, v" #n ".4s, v31.4s\n"
#define HALF(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define ALL(M)  HALF(M) M(12) M(13) M(14) M(15) M(16) M(17) M(18) M(19) M(20) M(21) M(22) M(23)

static void run_neon(uint64_t loops)
{
    __asm__ volatile(ALL(X) "dup v31.4s, %w2\n"
                            "1:\n" ALL(F) "subs %0, %0, #1\n b.ne 1b\n"
                     : "+r"(loops)
                     : "r"(one), "r"(tiny)
                     : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10",
                       "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21",
                       "v22", "v23", "v31");
}

static loop choose(void)
{
    return (loop) { "neon fmla", run_neon, 24 * 4 * 2 };
}

#elif defined(__x86_64__)

#define X2(n)   "vbroadcastss %1, %%ymm" #n "\n"
#define F2(n)   "vfmadd231ps %%ymm15, %%ymm" #n ", %%ymm" #n "\n"
#define X5(n)   "vbroadcastss %1, %%zmm" #n "\n"
#define F5(n)   "vfmadd231ps %%zmm31, %%zmm" #n ", %%zmm" #n "\n"
#define HALF(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define ALL(M)  HALF(M) M(12) M(13) M(14) M(15) M(16) M(17) M(18) M(19) M(20) M(21) M(22) M(23)

__attribute__((target("avx2,fma"))) static void run_avx2(uint64_t loops)
{
    __asm__ volatile(HALF(X2) "vbroadcastss %2, %%ymm15\n"
                              "1:\n" HALF(F2) "dec %0\n jnz 1b\n vzeroupper\n"
                     : "+r"(loops)
                     : "m"(one), "m"(tiny)
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm15");
}

__attribute__((target("avx512f"))) static void run_avx512(uint64_t loops)
{
    __asm__ volatile(ALL(X5) "vbroadcastss %2, %%zmm31\n"
                             "1:\n" ALL(F5) "dec %0\n jnz 1b\n vzeroupper\n"
                     : "+r"(loops)
                     : "m"(one), "m"(tiny)
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16",
                       "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm31");
}

/* Without fused ones: multiplications by 1 and additions of a tiny number, half and half. */
static void run_sse(uint64_t loops)
{
    __asm__ volatile("movss %1, %%xmm14\n shufps $0, %%xmm14, %%xmm14\n"
                     "movss %2, %%xmm15\n shufps $0, %%xmm15, %%xmm15\n"
                     "movaps %%xmm14, %%xmm0\n movaps %%xmm14, %%xmm1\n"
                     "movaps %%xmm14, %%xmm2\n movaps %%xmm14, %%xmm3\n"
                     "movaps %%xmm14, %%xmm4\n movaps %%xmm14, %%xmm5\n"
                     "movaps %%xmm14, %%xmm6\n movaps %%xmm14, %%xmm7\n"
                     "1:\n"
                     "mulps %%xmm14, %%xmm0\n addps %%xmm15, %%xmm1\n"
                     "mulps %%xmm14, %%xmm2\n addps %%xmm15, %%xmm3\n"
                     "mulps %%xmm14, %%xmm4\n addps %%xmm15, %%xmm5\n"
                     "mulps %%xmm14, %%xmm6\n addps %%xmm15, %%xmm7\n"
                     "dec %0\n jnz 1b\n"
                     : "+r"(loops)
                     : "m"(one), "m"(tiny)
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                       "xmm14", "xmm15");
}

static loop choose(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return (loop) { "avx512 vfmadd", run_avx512, 24 * 16 * 2 };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (loop) { "avx2 vfmadd", run_avx2, 12 * 8 * 2 };
    return (loop) { "sse mulps and addps", run_sse, 8 * 4 };
}

#else

/* No assembly for this machine: a lower bound. */
static void run_plain(uint64_t loops)
{
    volatile float sink;
    float x[16] = { 0 };
    for (uint64_t i = 0; i < loops; i++)
        for (int n = 0; n < 16; n++)
            x[n] = x[n] * tiny + one;
    for (int n = 0; n < 16; n++)
        sink = x[n];
    (void)sink;
}

static loop choose(void)
{
    return (loop) { "compiled loop", run_plain, 16 * 2 };
}

#endif

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct burner {
    pthread_t thread;
    double seconds, rate;
} burner;

static void *burn(void *argument)
{
    burner *w = argument;
    const loop l = choose();
    const double start = seconds_now();
    double passed = 0, flops = 0;
    while (passed < w->seconds) {
        l.run(LOOPS);
        flops += LOOPS * l.flops;
        passed = seconds_now() - start;
    }
    w->rate = flops / passed;
    return NULL;
}

double cli_peak_flops(int threads, double seconds)
{
    burner *all = calloc((size_t)threads, sizeof *all);
    double rate = 0;
    int started = 0;
    if (all == NULL)
        return 0;
    for (; started < threads; started++) {
        all[started].seconds = seconds;
        if (pthread_create(&all[started].thread, NULL, burn, &all[started]) != 0)
            break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(all[i].thread, NULL);
        rate += all[i].rate;
    }
    free(all);
    return started == threads ? rate : 0;
}

const char *cli_peak_name(void)
{
    return choose().name;
}
