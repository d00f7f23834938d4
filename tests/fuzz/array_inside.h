/* array_inside.h: what holds of every array that a reader of files accepts. */
#ifndef TESTS_FUZZ_ARRAY_INSIDE_H
#define TESTS_FUZZ_ARRAY_INSIDE_H

#include "fuzz/input.h"
#include "kit/array.h"

static inline void check_inside(const cli_array *a, int64_t file_bytes)
{
    int64_t bytes = -1;
    must(a->dims >= 0 && a->dims <= CLI_ARRAY_DIMS);
    must(cli_array_size(a->shape, a->dims, cli_element_bytes(a->element), &bytes));
    must(bytes == a->bytes);
    must(a->offset >= 0 && a->bytes >= 0 && a->offset <= file_bytes - a->bytes);
}

#endif
