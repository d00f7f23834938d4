/* phase/stats.cu: row statistics of the forward pass by phases: the instances. */
#include "cuda/phase/stats.h"

ordo_phase_kernel ordo_phase_stats_kernel(bool f16)
{
    return { f16 ? (const void *)phase_stats<true> : (const void *)phase_stats<false>,
             phase_shape<PHASE_KEYS>::BYTES };
}
