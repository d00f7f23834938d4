/* sm90/forward/blocks_128.cu: the forward kernel for block masks, for head sizes of this bucket. */
#include "cuda/sm90/forward/kernel.h"

ordo_forward_instance ordo_forward_blocks_128(bool f16, ordo_keep_source source)
{
    return f16 ? forward_general<128, 128, true, true>(source)
               : forward_general<128, 128, false, true>(source);
}
