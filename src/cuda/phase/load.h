/* phase/load.h: the stages of a tile of scores, in both phases that compute scores. */
#ifndef CUDA_PHASE_LOAD_H
#define CUDA_PHASE_LOAD_H

#include "cuda/phase/pipe.h"

/* Rows of query tile i times rows of key tile j, over `columns` columns. The first stage may have
 * been taken already. */
ORDO_DEVICE void phase_load_scores(phase_loader<PHASE_KEYS> &load, const CUtensorMap *a,
                                   const CUtensorMap *b, int columns, const ordo_cuda_sequence &s,
                                   int i, int j, int q_head, int kv_head)
{
    using Z = phase_shape<PHASE_KEYS>;
#pragma unroll 1
    for (int column = 0; column < columns; column += PHASE_STEP) {
        load.take();
        mbar_expect(load.full(), Z::STAGE_BYTES);
#pragma unroll
        for (int n = 0; n < PHASE_ROWS / PHASE_STEP; n++)
            tma_load(load.a() + n * PHASE_BOX_BYTES, a, load.full(), column,
                     s.q_row + i * PHASE_ROWS + n * PHASE_STEP, q_head, s.batch, load.keep);
#pragma unroll
        for (int n = 0; n < PHASE_KEYS / PHASE_STEP; n++)
            tma_load(load.a() + Z::A_BYTES + n * PHASE_BOX_BYTES, b, load.full(), column,
                     s.kv_row + j * PHASE_KEYS + n * PHASE_STEP, kv_head, s.batch, load.keep);
        phase_advance<PHASE_KEYS>(load.ring);
    }
}

#endif
