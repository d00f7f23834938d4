/* digest.h: XXH64 with seed 0 over data that arrives in pieces. */
#ifndef CLI_DIGEST_H
#define CLI_DIGEST_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_digest {
    uint64_t lane[4];
    uint64_t length;
    unsigned char rest[32]; /* length % 32 bytes that do not fill a block yet */
} cli_digest;

cli_digest cli_digest_start(void);
void cli_digest_add(cli_digest *digest, const void *data, size_t size);
uint64_t cli_digest_value(const cli_digest *digest);

#endif
