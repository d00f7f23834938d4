/* digest.c: XXH64 of data that arrives in pieces, by base/xxh64.h. */
#include "kit/digest.h"

#include "base/xxh64.h"

#include <string.h>

static void add_block(cli_digest *d, const unsigned char *block)
{
    for (int i = 0; i < ORDO_XXH64_LANES; i++)
        d->lane[i] = ordo_xxh64_round(d->lane[i], ordo_xxh64_word(block + 8 * i));
}

cli_digest cli_digest_start(void)
{
    cli_digest d = { .length = 0 };
    for (int i = 0; i < ORDO_XXH64_LANES; i++)
        d.lane[i] = ordo_xxh64_first(i);
    return d;
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

uint64_t cli_digest_value(const cli_digest *d)
{
    return ordo_xxh64_finish(d->lane, d->rest, d->length);
}
