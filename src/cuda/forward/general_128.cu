/* forward/general_128.cu: the general forward kernel for head sizes of this bucket. */
#include "cuda/forward/kernel.h"

ordo_forward_instance ordo_forward_general_128(bool f16, int drop)
{
    return f16 ? forward_general<128, true>(drop) : forward_general<128, false>(drop);
}
