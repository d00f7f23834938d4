/* xxh64.h: XXH64 with seed 0, after the public specification of xxHash, for host and device.
 *
 * Four lanes each take 8 bytes of every block of 32. The end folds them together with the length
 * and with what is left over. Bytes are read little endian. On a device, data must be aligned to 8
 * bytes. */
#ifndef BASE_XXH64_H
#define BASE_XXH64_H

#include "base/hd.h"

#include <stdint.h>

#define ORDO_XXH64_P1 UINT64_C(0x9e3779b185ebca87)
#define ORDO_XXH64_P2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define ORDO_XXH64_P3 UINT64_C(0x165667b19e3779f9)
#define ORDO_XXH64_P4 UINT64_C(0x85ebca77c2b2ae63)
#define ORDO_XXH64_P5 UINT64_C(0x27d4eb2f165667c5)

enum { ORDO_XXH64_LANES = 4, ORDO_XXH64_BLOCK = 8 * ORDO_XXH64_LANES };

ORDO_HD uint64_t ordo_xxh64_rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

/* The 8 bytes at p, little endian. */
ORDO_HD uint64_t ordo_xxh64_word(const unsigned char *p)
{
#ifdef __CUDA_ARCH__
    return *(const uint64_t *)p;
#else
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
           (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 |
           (uint64_t)p[7] << 56;
#endif
}

/* The value with which a lane begins, and the one after another word. */
ORDO_HD uint64_t ordo_xxh64_first(int lane)
{
    return lane == 0   ? ORDO_XXH64_P1 + ORDO_XXH64_P2
           : lane == 1 ? ORDO_XXH64_P2
           : lane == 2 ? 0
                       : 0 - ORDO_XXH64_P1;
}
ORDO_HD uint64_t ordo_xxh64_round(uint64_t lane, uint64_t word)
{
    return ordo_xxh64_rotate(lane + word * ORDO_XXH64_P2, 31) * ORDO_XXH64_P1;
}

ORDO_HD uint64_t ordo_xxh64_fold_one(uint64_t h, uint64_t lane)
{
    return (h ^ ordo_xxh64_round(0, lane)) * ORDO_XXH64_P1 + ORDO_XXH64_P4;
}

/* The digest of `bytes` bytes: the lanes after all whole blocks, and what follows the blocks. */
ORDO_HD uint64_t ordo_xxh64_finish(const uint64_t lane[4], const unsigned char *rest,
                                   uint64_t bytes)
{
    uint64_t h = ORDO_XXH64_P5;
    int left = (int)(bytes % ORDO_XXH64_BLOCK);
    if (bytes >= ORDO_XXH64_BLOCK) {
        h = ordo_xxh64_rotate(lane[0], 1) + ordo_xxh64_rotate(lane[1], 7) +
            ordo_xxh64_rotate(lane[2], 12) + ordo_xxh64_rotate(lane[3], 18);
        h = ordo_xxh64_fold_one(h, lane[0]);
        h = ordo_xxh64_fold_one(h, lane[1]);
        h = ordo_xxh64_fold_one(h, lane[2]);
        h = ordo_xxh64_fold_one(h, lane[3]);
    }
    h += bytes;
    for (; left >= 8; rest += 8, left -= 8) {
        h ^= ordo_xxh64_round(0, ordo_xxh64_word(rest));
        h = ordo_xxh64_rotate(h, 27) * ORDO_XXH64_P1 + ORDO_XXH64_P4;
    }
    if (left >= 4) {
        const uint64_t word = (uint64_t)rest[0] | (uint64_t)rest[1] << 8 | (uint64_t)rest[2] << 16 |
                              (uint64_t)rest[3] << 24;
        h = ordo_xxh64_rotate(h ^ word * ORDO_XXH64_P1, 23) * ORDO_XXH64_P2 + ORDO_XXH64_P3;
        rest += 4;
        left -= 4;
    }
    for (; left > 0; rest++, left--)
        h = ordo_xxh64_rotate(h ^ *rest * ORDO_XXH64_P5, 11) * ORDO_XXH64_P1;
    h = (h ^ h >> 33) * ORDO_XXH64_P2;
    h = (h ^ h >> 29) * ORDO_XXH64_P3;
    return h ^ h >> 32;
}

/* XXH64 of `bytes` bytes, by one thread. */
ORDO_HD uint64_t ordo_xxh64(const void *data, uint64_t bytes)
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t a = ordo_xxh64_first(0), b = ordo_xxh64_first(1);
    uint64_t c = ordo_xxh64_first(2), d = ordo_xxh64_first(3);
    for (uint64_t block = bytes / ORDO_XXH64_BLOCK; block > 0; block--, p += ORDO_XXH64_BLOCK) {
        a = ordo_xxh64_round(a, ordo_xxh64_word(p));
        b = ordo_xxh64_round(b, ordo_xxh64_word(p + 8));
        c = ordo_xxh64_round(c, ordo_xxh64_word(p + 16));
        d = ordo_xxh64_round(d, ordo_xxh64_word(p + 24));
    }
    const uint64_t lane[4] = { a, b, c, d };
    return ordo_xxh64_finish(lane, p, bytes);
}

/* ---- xxh64-pieces: XXH64 over the XXH64 of pieces ---- */

#define ORDO_PIECE_BYTES UINT64_C(65536)

/* Number of pieces of `bytes` bytes; none of no bytes. */
ORDO_HD uint64_t ordo_pieces(uint64_t bytes)
{
    return bytes / ORDO_PIECE_BYTES + (bytes % ORDO_PIECE_BYTES != 0);
}

/* Bytes of one piece: the last may be shorter. */
ORDO_HD uint64_t ordo_piece_bytes(uint64_t bytes, uint64_t piece)
{
    const uint64_t left = bytes - piece * ORDO_PIECE_BYTES;
    return left < ORDO_PIECE_BYTES ? left : ORDO_PIECE_BYTES;
}

#endif
