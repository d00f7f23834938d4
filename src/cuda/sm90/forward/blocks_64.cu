/* sm90/forward/blocks_64.cu: the forward kernel for block masks, for head sizes of this bucket. */
#include "cuda/sm90/forward/kernel.h"

ordo_forward_instance ordo_forward_blocks_64(bool f16, ordo_keep_source source)
{
    return f16 ? forward_general<64, 64, true, true>(source)
               : forward_general<64, 64, false, true>(source);
}
