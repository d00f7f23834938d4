/* fault_module.c: preloaded into `ordo scan --device emulator`, makes of the host a device with a
 * broken multiprocessor.
 *
 * Units of the forward pass (64 rows of a head) are spread over four multiprocessors. With
 * probability FAULT_P a unit of number FAULT_PROCESSOR has one bit inverted, in column 5 of its row
 * FAULT_ROW or the last one. What the scan itself computes on one thread, which is what it expects,
 * stays right. The functions ordo_cuda_units_...() are those of a CUDA module with ORDO_FAULTS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "ordo/ordo.h"

enum { PROCESSORS = 4, ROWS = 64, COLUMN = 5 };

typedef ordo_status forward(const ordo_plan *plan, const ordo_call *call);

static uint64_t units, flips, state = 7;

static double number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtod(text, NULL) : 0;
}

static double uniform(void) /* splitmix64 */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int processor_of(int64_t sequence, int64_t head, int64_t row)
{
    return (int)((sequence + 3 * head + row / ROWS) % PROCESSORS);
}

static void damage(const ordo_problem *p, const ordo_call *call)
{
    uint16_t *const o = call->o.data;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t first = 0; first < p->q_len; first += ROWS) {
                if (processor_of(b, h, first) != (int)number_of("FAULT_PROCESSOR"))
                    continue;
                units++;
                if (uniform() >= number_of("FAULT_P"))
                    continue;
                int64_t row = first + (int64_t)number_of("FAULT_ROW");
                row = row < p->q_len ? row : p->q_len - 1;
                o[((b * p->q_len + row) * p->heads + h) * p->v_head_dim + COLUMN] ^= 1 << 6;
                flips++;
            }
}

__attribute__((visibility("default"))) ordo_status ordo_attention_forward(const ordo_plan *plan,
                                                                          const ordo_call *call)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    forward *real;
    *(void **)&real = dlsym(RTLD_NEXT, "ordo_attention_forward"); /* as POSIX writes it */
    ordo_status status = real(plan, call);
    if (status == ORDO_OK && call->threads != 1)
        status = ordo_plan_problem(plan, &problem);
    if (status == ORDO_OK && call->threads != 1)
        damage(&problem, call);
    return status;
}

__attribute__((visibility("default"))) void ordo_cuda_units_clear(void);
__attribute__((visibility("default"))) void ordo_cuda_units_clear(void)
{
}

__attribute__((visibility("default"))) int ordo_cuda_units_processor(int backward, int64_t sequence,
                                                                     int64_t head, int64_t row);
__attribute__((visibility("default"))) int ordo_cuda_units_processor(int backward, int64_t sequence,
                                                                     int64_t head, int64_t row)
{
    return backward ? -1 : processor_of(sequence, head, row);
}

__attribute__((visibility("default"))) double ordo_cuda_units_rate(int *processor, uint64_t *count,
                                                                   uint64_t *flipped);
__attribute__((visibility("default"))) double ordo_cuda_units_rate(int *processor, uint64_t *count,
                                                                   uint64_t *flipped)
{
    *processor = (int)number_of("FAULT_PROCESSOR");
    *count = units;
    *flipped = flips;
    return number_of("FAULT_P");
}
