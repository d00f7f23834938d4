/* array_random.h: what holds of every array that a reader of files accepts; headers mutated. */
#ifndef TESTS_CLI_ARRAY_RANDOM_H
#define TESTS_CLI_ARRAY_RANDOM_H

#include "check.h"
#include "kit/array.h"

static void check_array(const cli_array *a, int64_t file_bytes)
{
    int64_t bytes = -1;
    CHECK(a->dims >= 0 && a->dims <= CLI_ARRAY_DIMS);
    CHECK(cli_array_size(a->shape, a->dims, cli_element_bytes(a->element), &bytes));
    CHECK_INT(bytes, a->bytes);
    CHECK(a->offset >= 0 && a->bytes >= 0 && a->offset <= file_bytes - a->bytes);
}

static void mutate(unsigned char *data, size_t size, uint64_t *seed)
{
    static const char alphabet[] = "{}[]()'\"\\:,.0123456789<>|fFuTd \n\t-eu\x80\xff";
    for (uint64_t n = 1 + check_random(seed) % 3; n-- > 0;) {
        const size_t at = (size_t)(check_random(seed) % size);
        const uint64_t how = check_random(seed);
        data[at] = how % 3 ? (unsigned char)alphabet[how / 3 % (sizeof alphabet - 1)]
                           : (unsigned char)(how >> 32);
    }
}

#endif
