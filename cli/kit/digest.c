/* digest.c: XXH64 with seed 0, after the specification of xxHash.
 *
 * Four lanes each take 8 bytes of every block of 32; the end folds them together with the
 * length and whatever is left over. Bytes are read little endian on every machine. */
#include "kit/digest.h"

#include <string.h>

#define PRIME1 0x9e3779b185ebca87u
#define PRIME2 0xc2b2ae3d27d4eb4fu
#define PRIME3 0x165667b19e3779f9u
#define PRIME4 0x85ebca77c2b2ae63u
#define PRIME5 0x27d4eb2f165667c5u

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static uint64_t read_le(const unsigned char *p, int bytes)
{
    uint64_t x = 0;
    for (int i = bytes - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

static uint64_t stir(uint64_t lane, uint64_t input)
{
    return rotate(lane + input * PRIME2, 31) * PRIME1;
}

static void add_block(cli_digest *d, const unsigned char *block)
{
    for (int i = 0; i < 4; i++)
        d->lane[i] = stir(d->lane[i], read_le(block + 8 * i, 8));
}

cli_digest cli_digest_start(void)
{
    return (cli_digest) { .lane = { PRIME1 + PRIME2, PRIME2, 0, 0 - PRIME1 } };
}

void cli_digest_add(cli_digest *d, const void *data, size_t size)
{
    const unsigned char *p = data;
    const size_t held = d->length % 32;
    d->length += size;
    if (held + size < 32) {
        if (size > 0)
            memcpy(d->rest + held, p, size);
        return;
    }
    if (held > 0) {
        memcpy(d->rest + held, p, 32 - held);
        add_block(d, d->rest);
        p += 32 - held;
        size -= 32 - held;
    }
    for (; size >= 32; p += 32, size -= 32)
        add_block(d, p);
    if (size > 0)
        memcpy(d->rest, p, size);
}

static uint64_t fold_lanes(const cli_digest *d)
{
    uint64_t h = rotate(d->lane[0], 1) + rotate(d->lane[1], 7) + rotate(d->lane[2], 12) +
                 rotate(d->lane[3], 18);
    for (int i = 0; i < 4; i++)
        h = (h ^ stir(0, d->lane[i])) * PRIME1 + PRIME4;
    return h;
}

uint64_t cli_digest_value(const cli_digest *d)
{
    const unsigned char *p = d->rest;
    size_t left = d->length % 32;
    uint64_t h = (d->length >= 32 ? fold_lanes(d) : PRIME5) + d->length;
    for (; left >= 8; p += 8, left -= 8)
        h = rotate(h ^ stir(0, read_le(p, 8)), 27) * PRIME1 + PRIME4;
    for (; left >= 4; p += 4, left -= 4)
        h = rotate(h ^ read_le(p, 4) * PRIME1, 23) * PRIME2 + PRIME3;
    for (; left > 0; p++, left--)
        h = rotate(h ^ *p * PRIME5, 11) * PRIME1;
    h = (h ^ h >> 33) * PRIME2;
    h = (h ^ h >> 29) * PRIME3;
    return h ^ h >> 32;
}
