/* sm90/forward/keep.h: the keep bits of the tile at hand. */
#ifndef CUDA_SM90_FORWARD_KEEP_H
#define CUDA_SM90_FORWARD_KEEP_H

#include "cuda/sm90/forward/math.h"

/* The words of rows `row` and `row + 8` of a block, by any generator: rarely run, and short. */
ORDO_DEVICE void keep_words(uint2 &kept, const ordo_keep &keep, uint32_t bh, uint32_t row,
                            uint32_t block)
{
#pragma unroll 1
    for (uint32_t r = 0; r < 2; r++) {
        kept.x = kept.y;
        kept.y = ordo_keep_word_ordo(&keep, bh, row + 8 * r, block, threadIdx.x % 4);
    }
}

/* The dense kernel's: draw `number`, 0 or 1, of the words of rows `row` and `row + 8` and a block,
 * which are there after both. `lines`: of these rows. */
struct dense_maker {
    static __device__ __forceinline__ void draw(uint2 &kept, const ordo_forward_args &args,
                                                const ordo_keep &keep, const ordo_keep_keys &keys,
                                                const ordo_keep_product (&lines)[2], uint32_t bh,
                                                uint32_t row, uint32_t block, int number)
    {
        if (ordo_keep_tile_makes(&keep)) {
            keep_draw(kept, keys, (uint32_t)keep.offset, lines, bh, block, args.select, number);
        } else if (number == 0) {
            keep_words(kept, keep, bh, row, block);
        }
    }
};

/* The varlen kernel's. A word for each of a thread's two rows, of 128 columns: those of a tile of
 * 64 are half of it. */
template <class Z, ordo_keep_source SOURCE, bool LISTS> struct varlen_keep {
    const ordo_forward_args &args;
    const ordo_keep maker;
    const uint2 *unit = nullptr; /* given: this thread's first words */
    uint2 words = { 0, 0 }, ahead = { 0, 0 };

    __device__ __forceinline__ explicit varlen_keep(const ordo_forward_args &of)
        : args(of), maker(SOURCE == ORDO_KEEP_MADE ? keep_now(of) : ordo_keep())
    {
    }

    /* The given words of a tile, if the sequence has any. */
    __device__ __forceinline__ void load(uint2 &to, const forward_record &record, int tile) const
    {
        if (record.kv_len > 0)
            to = load_once(unit + max(tile, 0) * Z::COLUMNS / ORDO_KEEP_COLS * 32);
    }

    /* A unit begins with this tile. Rows that do not exist have no bits and are not written: they
     * use the last row's. `row`: the warp's first one. */
    __device__ __forceinline__ void begin(const forward_record &record, int row, int tile)
    {
        if constexpr (SOURCE == ORDO_KEEP_GIVEN) {
            const int block = min(row, (record.q_len - 1) / 16 * 16) / 16;
            unit = (const uint2 *)args.keep_bits +
                   (record.keep + (int64_t)block * record.keep_across) * 32 + threadIdx.x % 32;
            if (!LISTS) {
                load(ahead, record, tile);
                take(record, tile);
            }
        }
    }

    /* The words of a tile, before its scores are computed: given ones are read a tile ahead, if it
     * is known which one comes after it. */
    __device__ __forceinline__ void take(const forward_record &record, int tile)
    {
        if constexpr (SOURCE == ORDO_KEEP_GIVEN && !LISTS) {
            words = ahead;
            load(ahead, record, tile - 1);
        }
    }

    /* The words of a tile, while its scores are computed. */
    __device__ __forceinline__ void next(const forward_record &record, int row, int tile,
                                         bool fresh)
    {
        if constexpr (SOURCE == ORDO_KEEP_GIVEN && LISTS)
            load(words, record, tile);
        else if (Z::PANELS > 1)
            make(record, row, tile, fresh);
    }

    /* Makes the words of a tile; `row`: the thread's first one. `fresh`: the unit's first tile. */
    __device__ __forceinline__ void make(const forward_record &record, int row, int tile,
                                         bool fresh)
    {
        if constexpr (SOURCE == ORDO_KEEP_MADE) {
            const bool by_f64 = Z::PANELS == 1;
            const int to = ORDO_KEEP_COLS / Z::COLUMNS;
            if (to == 1 || fresh || tile % to == to - 1) {
                const uint32_t place = args.block0 + tile / to, head = record.keep_head;
                uint32_t line = (uint32_t)row;
                asm volatile("" : "+r"(line)); /* so that the sum is not kept live */
                line += args.row0;
                words.x = keep_inside<by_f64>(maker, head, line, place, threadIdx.x % 4);
                words.y = keep_inside<by_f64>(maker, head, line + 8, place, threadIdx.x % 4);
            }
        }
    }

    __device__ __forceinline__ uint2 words_of(int tile) const
    {
        const int odd = Z::COLUMNS < ORDO_KEEP_COLS ? tile % 2 * 4 : 0;
        return make_uint2(words.x << odd, words.y << odd);
    }
};

#endif
