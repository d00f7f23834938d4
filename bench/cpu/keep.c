/* Keep bits on one core: elements a second and instructions an element.
 *
 * A is the library's generator, bit-sliced: `bits` random words decide 32 elements at once. B is
 * what one writes first: a 32-bit draw an element, compared and packed; its keep bits are others.
 * Target: A at least 4 times as fast as B. Both write to a buffer that stays in the cache. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#endif

#include "base/keep.h"
#include "cpu/keep.h"
#include "measure.h"

enum { BLOCKS = 64, ROWS = 8, TRIALS = 101, ELEMENTS = BLOCKS * ROWS * 2048 };

static uint32_t buffer[BLOCKS * ORDO_KEEP_WORDS];

/* Counter of instructions of this thread, or -1. */
static int open_counter(void)
{
#if defined(__linux__)
    struct perf_event_attr about = { .type = PERF_TYPE_HARDWARE,
                                     .size = sizeof about,
                                     .config = PERF_COUNT_HW_INSTRUCTIONS,
                                     .exclude_kernel = 1,
                                     .exclude_hv = 1 };
    return (int)syscall(SYS_perf_event_open, &about, 0, -1, -1, 0);
#else
    return -1;
#endif
}

static uint64_t read_counter(int counter)
{
    uint64_t value = 0;
    if (counter < 0 || read(counter, &value, sizeof value) != (ssize_t)sizeof value)
        return 0;
    return value;
}

/* One 32-bit draw an element, counters in a line. Not the keep bits of the library. */
__attribute__((noinline)) static void one_draw_an_element(uint64_t seed, uint64_t first,
                                                          uint32_t threshold, uint32_t *words,
                                                          int64_t count)
{
    for (int64_t w = 0; w < count; w++) {
        uint32_t kept = 0;
        for (uint32_t draw = 0; draw < 8; draw++, first++) {
            ordo_philox_words c = { { (uint32_t)first, (uint32_t)(first >> 32), 0, 0 } };
            c = ordo_philox(c, (uint32_t)seed, (uint32_t)(seed >> 32), 7);
            for (uint32_t i = 0; i < 4; i++)
                kept |= (uint32_t)(c.w[i] < threshold) << (4 * draw + i);
        }
        words[w] = kept;
    }
}

typedef struct contender {
    char name[48];
    const ordo_keep_kernel *kernel; /* NULL: B */
    ordo_keep keep;
    double seconds[TRIALS];
    uint64_t instructions;
} contender;

static void run(contender *c)
{
    for (uint32_t row = 0; row < ROWS; row++) {
        if (c->kernel)
            c->kernel->fill(&c->keep, 3, 16 * row, 0, BLOCKS, buffer);
        else
            one_draw_an_element(c->keep.seed, (uint64_t)row * BLOCKS * 512, 0xe6000000, buffer,
                                BLOCKS * ORDO_KEEP_WORDS);
        __asm__ volatile("" : : "r"(buffer) : "memory"); /* somebody reads it */
    }
}

int main(void)
{
    static contender all[16];
    int count = 0;
    const int counter = open_counter();
    const ordo_keep plain = { 1, 2, 7, 8, 230, ORDO_KEYING_ORDO };
    static const struct {
        int rounds, bits;
        uint32_t threshold;
        ordo_keying keying;
    } variants[] = { { 7, 8, 230, ORDO_KEYING_ORDO },
                     { 7, 4, 14, ORDO_KEYING_ORDO },
                     { 7, 16, 58982, ORDO_KEYING_ORDO },
                     { 10, 8, 230, ORDO_KEYING_ORDO },
                     { 7, 8, 230, ORDO_KEYING_FA2 } };

    all[count++] = (contender) { "one 32-bit draw an element, 7 rounds", NULL, plain, { 0 }, 0 };
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++)
        for (size_t k = 0; ordo_keep_kernel_at(k) && (k == 0 || v == 0); k++) {
            contender *c = &all[count++];
            c->kernel = ordo_keep_kernel_at(k);
            c->keep = plain;
            c->keep.rounds = variants[v].rounds;
            c->keep.bits = variants[v].bits;
            c->keep.threshold = variants[v].threshold;
            c->keep.keying = variants[v].keying;
            snprintf(c->name, sizeof c->name, "%s, %s, %d bits, %d rounds", c->kernel->name,
                     variants[v].keying == ORDO_KEYING_FA2 ? "fa2" : "bit-sliced", c->keep.bits,
                     c->keep.rounds);
        }

    for (int trial = 0; trial < TRIALS; trial++) /* interleaved: all meet the same weather */
        for (int i = 0; i < count; i++) {
            const uint64_t before = read_counter(counter);
            const double start = measure_seconds(CLOCK_THREAD_CPUTIME_ID);
            run(&all[i]);
            all[i].seconds[trial] = measure_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
            all[i].instructions = read_counter(counter) - before;
        }

    printf("%d elements, one core, median of %d interleaved runs (and the middle half)\n", ELEMENTS,
           TRIALS);
    printf("%-42s %8s %17s %8s %14s\n", "generator", "Gel/s", "", "ratio", "instr/element");
    double base = 0, best = 0;
    for (int i = 0; i < count; i++) {
        const spread s = measure_spread(all[i].seconds, TRIALS);
        const double rate = ELEMENTS / s.median * 1e-9;
        base = i == 0 ? rate : base;
        best = i == 1 ? rate : best;
        printf("%-42s %8.3f   %6.3f .. %6.3f %7.1fx", all[i].name, rate, ELEMENTS / s.high * 1e-9,
               ELEMENTS / s.low * 1e-9, rate / base);
        if (counter >= 0)
            printf(" %14.3f\n", (double)all[i].instructions / ELEMENTS);
        else
            printf(" %14s\n", "not available");
    }
    printf("bit-sliced is %.1f times as fast (target 4)\n", best / base);
    return best / base >= 4 ? 0 : 1;
}
