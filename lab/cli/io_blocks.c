/* io_blocks.c: the block mask of `ordo io`: blocks in which --block-mask shows something. */
#include "cli/io.h"
#include "kit/block_mask.h"
#include "kit/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BLOCK = 128, MOST_BLOCKS = 1 << 26 };

int cli_io_blocks(const char *text, int64_t block, ordo_io_problem *problem, uint8_t **blocks)
{
    const int64_t size = block > 0 ? block : DEFAULT_BLOCK, rows = problem->q_len;
    const int64_t columns = problem->kv_len > 0 ? problem->kv_len : rows;
    const int64_t down = (rows + size - 1) / size, across = (columns + size - 1) / size;
    ordo_block_mask *mask = NULL;
    if (down * across > MOST_BLOCKS)
        return cli_usage("--block %" PRId64 ": %" PRId64 " x %" PRId64 " blocks: expected at most "
                         "2^26 of them",
                         size, down, across);
    CLI_TRY(cli_block_mask_make(text, rows, columns, &mask));
    *blocks = calloc((size_t)(down * across) + 1, sizeof **blocks);
    if (*blocks == NULL) {
        ordo_block_mask_destroy(mask);
        return cli_out_of_memory();
    }
    for (int64_t i = 0; i < rows; i++)
        if (mask->first[i] <= mask->last[i])
            memset(*blocks + i / size * across + mask->first[i] / size, 1,
                   (size_t)(mask->last[i] / size - mask->first[i] / size + 1));
    ordo_block_mask_destroy(mask);
    problem->blocks = *blocks;
    problem->block_q = problem->block_k = size;
    return CLI_OK;
}
