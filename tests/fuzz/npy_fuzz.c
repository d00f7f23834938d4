/* npy_fuzz.c: any bytes as the beginning of a .npy file. Either a message, or an array whose data
 * lie inside the file. The first byte says how much longer the file is than what is held. */
#include "fuzz/array_inside.h"
#include "kit/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[CLI_WHY] = "";
    cli_array array = { .path = "x" };
    if (size == 0)
        return 0;
    block exact = block_of(data + 1, size - 1);
    const int64_t file_bytes = (int64_t)(size - 1) + 16 * data[0];
    if (cli_npy_parse(&array, block_data(&exact), size - 1, file_bytes, why))
        check_inside(&array, file_bytes);
    else
        must(why[0] != '\0' && memchr(why, '\0', sizeof why) != NULL);
    block_close(&exact);
    return 0;
}
