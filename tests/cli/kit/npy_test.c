/* npy_test.c: headers of .npy files, whole, truncated and mutated: what is accepted lies inside
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

/* A header says everything once, in a version that is known. */
TEST(npy_headers_that_are_refused)
{
    static const struct {
        const char *text;
        unsigned char major, minor;
        const char *said; /* or "" */
    } rows[] = {
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 1, 0, "" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 1, 1, "version 1.1" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, 0, "version 4.0" },
        { "{'descr': '<f2', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 1, 0,
          "twice" },
        { "{'descr': '<f4', 'fortran_order': False}", 1, 0, "lacks 'shape'" },
        { "{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", 1, 0, "fortran_order True" },
        { "{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 1, 0, "big-endian" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const size_t length = strlen(rows[i].text);
        unsigned char data[128] = "\x93NUMPY";
        char why[CLI_WHY] = "";
        cli_array a = { .path = "x" };
        data[6] = rows[i].major;
        data[7] = rows[i].minor;
        data[8] = (unsigned char)length;
        memcpy(data + 10, rows[i].text, length);
        CHECK(cli_npy_parse(&a, data, 10 + length, (int64_t)(10 + length + 4), why) ==
              !*rows[i].said);
        CHECK_HAS(why, rows[i].said);
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

CHECK_MAIN()
