/* forms.cuh: a pass by phases at any head size, whichever form its plan has. */
#ifndef BENCH_FORMS_CUH
#define BENCH_FORMS_CUH

#include "../../tests/cuda/handmade_pass.h"
extern "C" {
#include "plan/phase.h"
}

/* The pass of `c` by phases, in panels of the default workspace; `c` keeps its own form. */
static inline void by_phases(device_case &c, ordo_cuda_pass &pass)
{
    ordo_band &band = c.pass.run.band;
    const ordo_cuda_pass before = c.pass;
    band.bq = 128;
    band.bk = 256;
    c.make_batch();
    const ordo_phase_problem p = { .tiles = c.pass.batch.tiles,
                                   .tile_rows = band.bq,
                                   .tile_keys = band.bk,
                                   .kv_heads = c.z.kv_heads,
                                   .group_heads = c.z.heads / c.z.kv_heads,
                                   .kv_len = c.z.kv_len,
                                   .kv_rows = (int64_t)c.z.batch * c.z.kv_len,
                                   .sum_columns = 2 * c.z.head_dim,
                                   .backward = true,
                                   .chained = c.z.head_dim <= ORDO_CHAIN_D };
    const ordo_phase_panels panels = ordo_phase_panels_of(&p, ORDO_PHASE_BUDGET);
    ordo_cuda_phase &x = c.pass.phase;
    x.section = (int32_t)panels.section;
    x.tiles = (int32_t)panels.tiles;
    x.columns = (int32_t)panels.columns;
    const size_t scores = (size_t)(panels.section * p.group_heads * panels.tiles) * 128 * x.columns;
    const size_t sums = (size_t)(p.kv_rows * panels.section) * c.z.head_dim;
    x.p = c.take<uint16_t>(scores); /* the forward pass has P, too */
    x.score_bytes = (int64_t)(2 * scores);
    x.all_bytes = x.score_bytes + (int64_t)(8 * sums);
    x.ds = c.take<uint16_t>((size_t)x.all_bytes / 2);
    x.dk = (float *)(x.ds + scores);
    x.dv = x.dk + sums;
    x.shrink = c.take<float>(scores / 256);
    pass = c.pass;
    pass.form = p.chained ? ORDO_FORM_CHAIN : ORDO_FORM_PHASE;
    c.pass = before;
}

#endif
