/* bench_peak.h: how many floating-point operations a second the cores can do, measured. */
#ifndef CLI_BENCH_PEAK_H
#define CLI_BENCH_PEAK_H

/* Multiplications and additions a second, f32, of `threads` threads that do nothing but fused
 * multiply-adds on registers for `seconds`. 0 if no thread could be started. */
double cli_peak_flops(int threads, double seconds);

/* The instructions that loop consists of: "neon fmla", "avx512 vfmadd", ... */
const char *cli_peak_name(void);

#endif
