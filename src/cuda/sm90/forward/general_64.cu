/* sm90/forward/general_64.cu: the general forward kernel for head sizes of this bucket. */
#include "cuda/sm90/forward/kernel.h"

ordo_forward_instance ordo_forward_general_64(bool f16, ordo_keep_source source)
{
    return f16 ? forward_general<64, 64, true>(source) : forward_general<64, 64, false>(source);
}
