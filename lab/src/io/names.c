/* names.c: names of passes and algorithms, as the command spells them. */
#include <string.h>

#include "base/status.h"
#include "ordo/lab/io.h"

static const char *const passes[] = { "unknown", "forward", "backward", "gradient" };
static const char *const algorithms[] = { "best",  "naive", "flash", "flash1",
                                          "apart", "mat",   "phase", "fused" };

const char *ordo_io_pass_name(ordo_io_pass pass)
{
    return passes[(unsigned)pass <= ORDO_IO_GRADIENT ? pass : 0];
}

const char *ordo_io_algorithm_name(ordo_io_algorithm algorithm)
{
    return (unsigned)algorithm <= ORDO_IO_ALGORITHM_COUNT ? algorithms[algorithm] : "unknown";
}

ordo_status ordo_io_algorithm_from_name(const char *name, ordo_io_algorithm *algorithm)
{
    ORDO_TRY(ordo_check_pointer("name", name));
    ORDO_TRY(ordo_check_pointer("algorithm", algorithm));
    for (int a = 0; a <= ORDO_IO_ALGORITHM_COUNT; a++)
        if (strcmp(name, algorithms[a]) == 0) {
            *algorithm = (ordo_io_algorithm)a;
            return ORDO_OK;
        }
    return ordo_fail(ORDO_ERR_ARGUMENT,
                     "algorithm '%s': expected best, naive, flash, flash1, apart, mat, phase or "
                     "fused",
                     name);
}
