/* units_module.c: fake_module.c as it is built with ORDO_FAULTS: it knows the units of
 * fault_module.c, which is preloaded beside it. */
#include "fault_module.c"

#include "../../api/fake_module.c"
