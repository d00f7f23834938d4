/* block_mask.h: check a block mask against a problem. */
#ifndef API_BLOCK_MASK_H
#define API_BLOCK_MASK_H

#include "ordo/blocks.h"

/* Copy the mask of a call, of any version, to `out`, and check it against a resolved problem: that
 * there is one if the problem says so, and its sizes. If `host`, its lists and intervals too. `in`
 * may be NULL. */
ordo_status ordo_blocks_check(const ordo_problem *problem, bool host, const ordo_block_mask *in,
                              ordo_block_mask *out);

#endif
