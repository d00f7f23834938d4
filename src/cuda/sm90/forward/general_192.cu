/* sm90/forward/general_192.cu: the general forward kernel for head sizes 136 to 192, whose values
 * have up to 128 columns or as many as the keys. */
#include "cuda/sm90/forward/kernel.h"

ordo_forward_instance ordo_forward_general_192(bool f16, ordo_keep_source source)
{
    return f16 ? forward_general<192, 192, true>(source) : forward_general<192, 192, false>(source);
}

ordo_forward_instance ordo_forward_general_192_128(bool f16, ordo_keep_source source)
{
    return f16 ? forward_general<192, 128, true>(source) : forward_general<192, 128, false>(source);
}
