/* fp_control.h: the control word of floating point, and words of it that a caller might have set.
 *
 *   control()       the word at hand; exception flags are not part of it
 *   set_control()   make it this one
 *   modes[]         other roundings, flushing, and what else the machine offers; no traps */
#ifndef TESTS_FP_CONTROL_H
#define TESTS_FP_CONTROL_H

#include <fenv.h>
#include <stdint.h>

#if defined(__aarch64__)
static inline uint64_t control(void)
{
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
static inline void set_control(uint64_t word)
{
    __asm__ volatile("msr fpcr, %0\n\tisb" ::"r"(word));
}
/* rounding up, down, to zero; flush to zero; default NaN; other half precision; flush of halves */
static const uint64_t modes[] = { 1 << 22, 2 << 22, 3 << 22, 1 << 24, 1 << 25, 1 << 26, 1 << 19 };
static const uint64_t all_traps = 0x9f00; /* which a machine may not have */
#elif defined(__x86_64__)
#include <immintrin.h>
/* MXCSR, and above it the control word of x87, which C libraries ask for the rounding */
static inline uint64_t control(void)
{
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (uint64_t)x87 << 32 | (_mm_getcsr() & ~0x3fu);
}
static inline void set_control(uint64_t word)
{
    const uint16_t x87 = (uint16_t)(0x037f | (word >> 13 & 3) << 10);
    __asm__ volatile("fldcw %0" ::"m"(x87));
    _mm_setcsr((unsigned)(word & 0xffffffffu) | (_mm_getcsr() & 0x3f));
}
/* rounding down, up, to zero; flush to zero; denormals are zero */
static const uint64_t modes[] = { 0x3f80, 0x5f80, 0x7f80, 0x9f80, 0x1fc0 };
static const uint64_t all_traps = 0;
#else
static inline uint64_t control(void)
{
    return (uint64_t)fegetround();
}
static inline void set_control(uint64_t word)
{
    fesetround((int)word);
}
static const uint64_t modes[] = { FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };
static const uint64_t all_traps = FE_TONEAREST;
#endif
enum { MODES = sizeof modes / sizeof modes[0] };

#endif
