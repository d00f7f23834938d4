/* sm90/forward/ruled_128.cu: the kernel of sm90/forward/ruled.h for head sizes of this bucket. */
#include "cuda/sm90/forward/ruled.h"

ordo_forward_instance ordo_forward_ruled_128(bool f16, ordo_forward_rule rule)
{
    return f16 ? forward_ruled<128, true>(rule) : forward_ruled<128, false>(rule);
}
