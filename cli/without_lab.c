/* without_lab.c: in place of lab/cli where the command is built without the laboratory. */
#include "kit/lab.h"

const cli_laboratory *cli_lab(void)
{
    return NULL;
}
