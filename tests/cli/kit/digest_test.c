/* digest_test.c: XXH64 against published values, whole and in pieces. */
#include "check.h"
#include "kit/digest.h"

static uint64_t digest(const void *data, size_t size)
{
    cli_digest d = cli_digest_start();
    cli_digest_add(&d, data, size);
    return cli_digest_value(&d);
}

TEST(known_answers)
{
    CHECK(digest("", 0) == 0xef46db3751d8e999u);
    CHECK(digest("a", 1) == 0xd24ec4f1a98c6e5bu);
    CHECK(digest("abc", 3) == 0x44bc2cf5ad770999u);
    const char *longer = "Nobody inspects the spammish repetition";
    CHECK(digest(longer, strlen(longer)) == 0xfbcea83c8a378bf1u);
}

/* 32 bytes make a block: divided before, at and after every boundary. */
TEST(pieces_give_the_same_as_the_whole)
{
    unsigned char data[100];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 + 11);
    for (size_t size = 0; size <= sizeof data; size++)
        for (size_t part = 0; part <= size; part++) {
            cli_digest d = cli_digest_start();
            cli_digest_add(&d, data, part);
            cli_digest_add(&d, data + part, size - part);
            CHECK(cli_digest_value(&d) == digest(data, size));
        }
}

CHECK_MAIN()
