/* digest_fuzz.c: any bytes as a file of digests. Either a status that says why not, or blocks whose
 * plans parse and promise the same bits as themselves. */
#define _GNU_SOURCE
#include "fuzz/input.h"
#include "kit/digest_file.h"
#include "kit/message.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file in memory, by a name that can be opened. */
static const char *file_of(const uint8_t *data, size_t size)
{
    static char path[64];
    static int file = -1;
    if (file < 0) {
        must((file = memfd_create("digests", 0)) >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    must(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cli_digest_block *blocks = NULL;
    size_t count = 0;
    fuzz_quiet();
    const int status = cli_digest_read(file_of(data, size), &blocks, &count);
    must(status == CLI_OK || status == CLI_USAGE || status == CLI_UNSUPPORTED);
    for (size_t x = 0; status == CLI_OK && x < count; x++) {
        char here[64], there[64];
        must(blocks[x].line != NULL && blocks[x].inputs != NULL);
        must(cli_digest_same_plan(blocks[x].line, blocks[x].line, here, there, sizeof here));
        if (x > 0)
            (void)cli_digest_same_plan(blocks[x].line, blocks[x - 1].line, here, there,
                                       sizeof here);
    }
    cli_digest_free(blocks, count);
    return 0;
}
