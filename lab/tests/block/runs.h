/* runs.h: runners of transformer blocks, and what they computed as one number. */
#ifndef TESTS_BLOCK_RUNS_H
#define TESTS_BLOCK_RUNS_H

#include "check.h"
#include "ordo/lab/block.h"

#include <stdio.h>
#include <stdlib.h>

static inline ordo_block_runner *runner_of(const ordo_block_job *job)
{
    ordo_block_runner *runner = NULL;
    CHECK_INT(ordo_block_runner_create(&runner, job), ORDO_OK);
    if (runner == NULL)
        printf("  %s\n", ordo_last_error());
    return runner;
}

/* A copy of a tensor, to be freed. */
static inline void *read_tensor(ordo_block_runner *runner, ordo_block_tensor tensor,
                                ordo_block_extent *extent)
{
    CHECK_INT(ordo_block_extent_of(runner, tensor, extent), ORDO_OK);
    void *data = calloc(1, extent->bytes + 1);
    if (extent->rows > 0)
        CHECK_INT(ordo_block_read(runner, tensor, data, extent->bytes), ORDO_OK);
    return data;
}

/* Run both passes; FNV-1a of y and of all gradients. */
static inline uint64_t run(ordo_block_runner *runner, ordo_block_mode mode)
{
    uint64_t hash = 0xcbf29ce484222325u;
    const ordo_status forward = ordo_block_forward(runner, mode);
    if (forward != ORDO_OK)
        CHECK_FAIL("forward pass: %s", ordo_last_error());
    else if (ordo_block_backward(runner) != ORDO_OK)
        CHECK_FAIL("backward pass: %s", ordo_last_error());
    for (int i = ORDO_BLOCK_DX; i <= ORDO_BLOCK_Y; i++) {
        ordo_block_extent extent;
        unsigned char *data = read_tensor(runner, (ordo_block_tensor)i, &extent);
        for (size_t x = 0; x < extent.bytes; x++)
            hash = (hash ^ data[x]) * 0x100000001b3u;
        free(data);
    }
    return hash;
}

#endif
