/* safetensors_fuzz.c: any bytes as the header of a .safetensors file. Either a message, or arrays
 * whose data lie inside the file. The first byte says how much data follows the header. */
#include "fuzz/array_inside.h"
#include "kit/array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "q", "k", "v" };
    enum { NAMES = sizeof names / sizeof *names };
    char why[CLI_WHY] = "", other[CLI_ARRAY_NAME] = "";
    cli_array arrays[NAMES] = { { 0 } };
    if (size == 0)
        return 0;
    block exact = block_of(data + 1, size - 1);
    const int64_t file_bytes = 8 + (int64_t)(size - 1) + data[0];
    cli_metadata text = { "ordo.plan", NULL };
    if (cli_safetensors_parse(arrays, names, NAMES, other, &text, 1, block_data(&exact), size - 1,
                              file_bytes, why)) {
        for (int x = 0; x < NAMES; x++)
            if (arrays[x].path != NULL)
                check_inside(&arrays[x], file_bytes);
    } else {
        must(why[0] != '\0' && memchr(why, '\0', sizeof why) != NULL);
    }
    must(memchr(other, '\0', sizeof other) != NULL);
    must(text.text == NULL || strlen(text.text) < size);
    free(text.text);
    block_close(&exact);
    return 0;
}
