/* npy_test.c: headers of .npy files, whole, cut short and mutated: what is accepted lies inside
 * the file, and nothing is read past the end (the sanitizers watch). */
#include "cli/kit/array_random.h"

/* In memory of its own size, so that the sanitizer sees a byte too far. */
static bool npy(const unsigned char *data, size_t size, int64_t file_bytes)
{
    char why[CLI_WHY] = "";
    cli_array a = { .path = "x" };
    unsigned char *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    const bool good = cli_npy_parse(&a, copy, size, file_bytes, why);
    if (good)
        check_array(&a, file_bytes);
    else
        CHECK(why[0] != '\0');
    free(copy);
    return good;
}

TEST(npy_whole_cut_and_mutated)
{
    static const char text[] =
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 9, 4, 8), }           \n";
    enum { TEXT = sizeof text - 1, HEAD = 10 + TEXT };
    unsigned char data[HEAD] = "\x93NUMPY\x01";
    uint64_t seed = 1;
    data[8] = TEXT;
    memcpy(data + 10, text, TEXT);
    CHECK(npy(data, HEAD, HEAD + 2304));
    CHECK(!npy(data, HEAD, HEAD + 2303));
    CHECK(!npy(data, HEAD, HEAD + 2305));
    for (size_t size = 0; size < HEAD; size++)
        CHECK(!npy(data, size, (int64_t)size));
    for (int i = 0; i < 100000; i++) {
        unsigned char other[HEAD];
        memcpy(other, data, HEAD);
        mutate(other, HEAD, &seed);
        npy(other, HEAD, HEAD + 2304);
    }
}

TEST(npy_header_reads_back)
{
    static const int64_t shapes[][4] = { { 1, 128, 8, 64 },
                                         { 1, 1, 1, 1 },
                                         { 1000000000, 1, 2000000000, 1 } };
    for (int i = 0; i < 3; i++)
        for (int dims = 1; dims <= 4; dims++) {
            char *text = NULL, why[CLI_WHY];
            size_t size = 0;
            cli_file file = { .stream = open_memstream(&text, &size) };
            cli_array a = { .path = "x" };
            int64_t bytes = 0;
            cli_npy_header(&file, CLI_ELEMENT_F16, dims, shapes[i]);
            fclose(file.stream);
            CHECK(cli_array_size(shapes[i], dims, 2, &bytes));
            CHECK_INT(size % 64, 0);
            CHECK(cli_npy_parse(&a, (unsigned char *)text, size, (int64_t)size + bytes, why));
            CHECK_INT(a.dims, dims);
            CHECK(a.element == CLI_ELEMENT_F16 && a.shape[0] == shapes[i][0]);
            free(text);
        }
}

CHECK_MAIN(RUN(npy_whole_cut_and_mutated), RUN(npy_header_reads_back))
