/* sm90/backward/keep.h: keep bits in the consumer warpgroups of the backward kernel: how they are
 * applied, and how they are made if they are not given. */
#ifndef CUDA_SM90_BACKWARD_KEEP_H
#define CUDA_SM90_BACKWARD_KEEP_H

#include "cuda/sm90/backward/varlen.h"

/* Makes the word of a row, a block of 128 columns and a quad: keep_inside(). */
template <int D> struct backward_maker {
    static __device__ __forceinline__ uint32_t word(const ordo_backward_args &,
                                                    const ordo_keep &keep, uint32_t bh,
                                                    uint32_t row, uint32_t block, uint32_t quad)
    {
        return keep_inside<D == 64>(keep, bh, row, block, quad);
    }
};

template <int D, ordo_keep_source SOURCE, bool VARLEN, bool BLOCKS, backward_bias BIAS, class MAKER>
struct backward_keep {
    using Z = backward_shape<D, SOURCE, VARLEN, BLOCKS, BIAS>;
    const int mine, thread; /* which consumer warpgroup; thread of the block */

    static __device__ __forceinline__ uint32_t step_at(uint32_t j)
    {
        return Z::STEP + Z::STEP_BYTES * (j % Z::STEPS);
    }

    /* Keep bits are applied with the exponentials, which leave time for it. Given ones at head size
     * 128 are applied after them, which is faster there; and varlen instances of head size 64
     * that make them have the registers only when dS is computed. */
    enum { AFTER_EXP = D == 128 && SOURCE == ORDO_KEEP_GIVEN };
    enum { WITH_DS = Z::MADE && VARLEN && D == 64 };
    enum { WITH_EXP = Z::DROP && !AFTER_EXP && !WITH_DS };

    /* Where this thread's bits are: two of each stored word, sixteen apart. Shifted left by
     * `shift`, or sixteen less, a word has them in its sign. */
    struct stored_bits {
        uint32_t at, shift;
    };

    __device__ __forceinline__ stored_bits stored(uint32_t j) const
    {
        const uint32_t x = opaque((uint32_t)thread); /* recomputed: registers are full */
        const uint32_t at = Z::KEEP + j % Z::KEEP_BUFFERS * Z::KEEP_BYTES;
        const uint32_t first = at + ordo_keep_key_offset(x % 32);
        /* opaque: or the compiler makes every address by itself */
        return { AFTER_EXP ? first : opaque(first),
                 ordo_keep_key_shift(mine * 4 + x / 32 % 4, x % 32) };
    }

    /* The sign of P says that the element is dropped; for sixteen queries k. Where registers allow,
     * a bit becomes a predicate by one instruction, which then costs the sign one of the f32 pipe;
     * otherwise both take the integer pipe. */
    static __device__ __forceinline__ void mark(float (&p)[Z::ROWS / 2], int k,
                                                const stored_bits &from)
    {
        int32_t word[2][2]; /* queries 0 and 8, 1 and 9 of this thread's sixteen */
        load_shared2(from.at + k * 256, word[0][0], word[0][1]);
        load_shared2(from.at + k * 256 + 32, word[1][0], word[1][1]);
#pragma unroll
        for (int i = 8 * k; i < 8 * k + 8; i++) {
            const uint32_t bits = (uint32_t)word[i % 2][i / 4 % 2];
            const uint32_t shift = from.shift - (i & 2 ? 16 : 0);
            if (WITH_DS || AFTER_EXP)
                p[i] = mark_dropped(p[i], bits, shift);
            else
                multiply_if_clear(p[i], bits, 0x80000000u >> shift, -1.0f);
        }
    }

    static __device__ __forceinline__ void wait(uint32_t j)
    {
        mbar_wait(Z::KEEP_FULL + 8 * (j % Z::KEEP_BUFFERS), j / Z::KEEP_BUFFERS & 1);
    }

    /* Releases the stored bits of step j. Must follow an instruction that uses what was loaded: an
     * arrival does not wait for loads, and while products run a load may take longer than the copy
     * of the next bits. */
    __device__ __forceinline__ void release(uint32_t j) const
    {
        mbar_arrive_warp(Z::KEEP_EMPTY + 8 * (j % Z::KEEP_BUFFERS), (uint32_t)thread % 32);
    }

    /* What the keep bits of the step recorded at `at` are made from. */
    static __device__ __forceinline__ keep_place made_from(uint32_t at,
                                                           const ordo_backward_args &args)
    {
        int32_t a, b;
        if constexpr (VARLEN) {
            load_shared2(at + offsetof(general_step, keep_row), a, b);
            return { (uint32_t)load_shared(at + offsetof(general_step, keep)), (uint32_t)a,
                     (uint32_t)b };
        }
        load_shared2(at + 16, a, b); /* struct backward_step: head, sequence; row; key */
        const uint32_t id = args.batch.first.id + (uint32_t)b * args.batch.step.id;
        return { keep_head_of(args, id, a), args.row0 + (uint32_t)load_shared(at + 8),
                 args.block0 + (uint32_t)load_shared(at + 28) / Z::KEYS };
    }

    /* Generates the keep words of step j, by all consumer threads together; none past the end. */
    __device__ __forceinline__ void make(uint32_t j, const ordo_backward_args &args) const
    {
        const uint32_t at = step_at(j), buffer = j % Z::KEEP_BUFFERS;
        mbar_wait(Z::STEP_FULL + 8 * (j % Z::STEPS), j / Z::STEPS & 1);
        if (load_shared(at + 4) < 0)
            return;
        const keep_place from = made_from(at, args);
        const ordo_keep keep = keep_now(args);
        mbar_wait(Z::KEEP_EMPTY + 8 * buffer, (j / Z::KEEP_BUFFERS & 1) ^ 1);
#pragma unroll 1
        for (uint32_t w = opaque((uint32_t)thread) % 256; w < Z::KEEP_BYTES / 4; w += 256) {
            /* in the order of storage: base/keep.h */
            const uint32_t r = from.row + w / 64 * 16 + w / 8 % 8 + w % 2 * 8;
            store_shared(Z::KEEP + buffer * Z::KEEP_BYTES + 4 * w,
                         (int32_t)MAKER::word(args, keep, from.which, r, from.block, w / 2 % 4));
        }
        mbar_arrive_warp(Z::KEEP_FULL + 8 * buffer, (uint32_t)thread % 32);
    }
};

#endif
