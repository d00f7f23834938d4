/* bench_peak.h: floating-point operations per second that the cores can do, measured. */
#ifndef CLI_BENCH_PEAK_H
#define CLI_BENCH_PEAK_H

/* Returns f32 multiplications and additions per second of `threads` threads that run only fused
 * multiply-adds on registers for `seconds`, or 0 if no thread could be started. */
double cli_peak_flops(int threads, double seconds);

/* Returns the instructions of that loop: "neon fmla", "avx512 vfmadd", ... */
const char *cli_peak_name(void);

#endif
