/* block_mask.h: check a block mask, or an element mask, against a problem. */
#ifndef API_BLOCK_MASK_H
#define API_BLOCK_MASK_H

#include "base/versioned.h"
#include "ordo/blocks.h"

/* Copy the mask of a call, of any version, to `out`, and check it against a resolved problem: that
 * there is the one that the problem says, and its sizes. If `host`, its lists and intervals too.
 * Either mask may be NULL. */
ordo_status ordo_blocks_check(const ordo_problem *problem, bool host, const ordo_block_mask *blocks,
                              const ordo_block_mask *seen, ordo_block_mask *out);

extern const ordo_struct ordo_block_mask_struct;

#endif
