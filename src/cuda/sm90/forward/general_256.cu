/* sm90/forward/general_256.cu: the general forward kernel for head sizes of this bucket. */
#include "cuda/sm90/forward/kernel.h"

ordo_forward_instance ordo_forward_general_256(bool f16, ordo_keep_source source)
{
    return f16 ? forward_general<256, 256, true>(source) : forward_general<256, 256, false>(source);
}
