/* safetensors_test.c: headers of .safetensors files, whole, truncated and mutated, as for .npy. */
#include "cli/kit/array_random.h"
#include "kit/json_read.h"

static const char *const wanted[] = { "q", "k" };

/* In memory of its own size, so that the sanitizer sees a byte too far. */
static bool safetensors(const char *data, size_t size, int64_t file_bytes)
{
    char why[CLI_WHY] = "";
    cli_array a[2] = { { 0 } };
    cli_metadata texts[2] = { { "a", NULL }, { "b", NULL } };
    char *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    const bool good =
        cli_safetensors_parse(a, wanted, 2, NULL, texts, 2, copy, size, file_bytes, why);
    for (int i = 0; good && i < 2; i++)
        if (a[i].path)
            check_array(&a[i], file_bytes);
    CHECK(good || why[0] != '\0');
    CHECK(!texts[0].text || strlen(texts[0].text) < size);
    free(texts[0].text);
    free(texts[1].text);
    free(copy);
    return good;
}

TEST(safetensors_whole_cut_and_mutated)
{
    static const char text[] =
        "{\"__metadata__\":{\"a\":\"\\ud83d\\ude00\"},"
        "\"q\":{\"dtype\":\"BF16\",\"shape\":[2,4],\"data_offsets\":[8,24]},"
        "\"other\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[24,25]},"
        "\"k\":{\"data_offsets\":[0,8],\"shape\":[1,2],\"dtype\":\"F32\"} } ";
    enum { TEXT = sizeof text - 1 };
    uint64_t seed = 2;
    CHECK(safetensors(text, TEXT, 8 + TEXT + 25));
    CHECK(!safetensors(text, TEXT, 8 + TEXT + 24));
    CHECK(!safetensors(text, TEXT, 8 + TEXT + 26));
    for (size_t size = 0; size + 1 < TEXT; size++)
        CHECK(!safetensors(text, size, (int64_t)size + 8 + 25));
    for (int i = 0; i < 100000; i++) {
        char other[TEXT];
        memcpy(other, text, TEXT);
        mutate((unsigned char *)other, TEXT, &seed);
        safetensors(other, TEXT, 8 + TEXT + 25);
    }
}

/* Metadata that is asked for comes back whole; one of two texts of a name is not chosen. */
TEST(metadata)
{
    static const char once[] = "{\"__metadata__\":{\"other\":\"x\",\"a\":\"one \\u00e9\"}}",
                      twice[] = "{\"__metadata__\":{\"a\":\"one\",\"a\":\"two\"}}";
    char why[CLI_WHY] = "";
    cli_metadata texts[2] = { { "a", NULL }, { "b", NULL } };
    CHECK(cli_safetensors_parse(NULL, NULL, 0, NULL, texts, 2, once, sizeof once - 1,
                                8 + sizeof once - 1, why));
    CHECK_TEXT(texts[0].text, "one \xc3\xa9");
    CHECK(texts[1].text == NULL);
    free(texts[0].text);
    texts[0].text = NULL;
    CHECK(!cli_safetensors_parse(NULL, NULL, 0, NULL, texts, 2, twice, sizeof twice - 1,
                                 8 + sizeof twice - 1, why));
    CHECK_HAS(why, "second text");
    free(texts[0].text);
}

/* A caller who wants to know of every array hears of one that it did not name. */
TEST(other_arrays)
{
    static const char named[] = "{\"q\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                      more[] = "{\"q\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                               "\"Q\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    char why[CLI_WHY] = "", other[CLI_ARRAY_NAME] = "";
    cli_array a[2] = { { 0 } };
    CHECK(cli_safetensors_parse(a, wanted, 2, other, NULL, 0, named, sizeof named - 1,
                                8 + sizeof named - 1, why));
    CHECK_TEXT(other, "");
    a[0].path = NULL;
    CHECK(cli_safetensors_parse(a, wanted, 2, other, NULL, 0, more, sizeof more - 1,
                                8 + sizeof more - 1, why));
    CHECK_TEXT(other, "Q");
}

/* An array ends where the file does, or before. */
TEST(offsets_past_the_end)
{
    static const char text[] = "{\"x\":{\"dtype\":\"I3\",\"shape\":[1],\"data_offsets\":[0,%d]}}";
    char head[sizeof text], why[CLI_WHY] = "";
    for (int end = 8; end < 10; end++) {
        const int size = snprintf(head, sizeof head, text, end);
        const bool good = cli_safetensors_parse(NULL, NULL, 0, NULL, NULL, 0, head, (size_t)size,
                                                8 + size + 8, why);
        CHECK(good == (end == 8));
    }
    CHECK_HAS(why, "offsets inside the data");
}

CHECK_MAIN()
