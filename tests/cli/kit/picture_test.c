/* picture_test.c: pictures read back: chunks, checksums, stored blocks and pixels. */
#include "check.h"
#include "kit/picture.c" /* NOLINT(bugprone-suspicious-include) */

typedef struct bytes {
    unsigned char *at;
    size_t size;
} bytes;

static unsigned char pixel(uint32_t x, uint32_t y)
{
    return (x * x + 3 * y + x * y) % 5 < 2;
}

/* A picture drawn into memory; the caller frees. */
static bytes draw(const char *path, uint32_t width, uint32_t height)
{
    FILE *file = tmpfile();
    unsigned char *row = calloc(width, 1);
    cli_picture p = cli_picture_start(file, path, width, height);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++)
            row[x] = pixel(x, y);
        cli_picture_row(&p, row);
    }
    cli_picture_finish(&p);
    free(row);
    bytes all = { NULL, (size_t)ftell(file) };
    all.at = malloc(all.size + 1);
    rewind(file);
    CHECK_INT(fread(all.at, 1, all.size, file), all.size);
    fclose(file);
    return all;
}

static uint32_t get32(const unsigned char *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* The chunk at `at`: checks its checksum, advances. */
static bytes next_chunk(const bytes *file, size_t *at, const char *name)
{
    const unsigned char *b = file->at + *at;
    const bytes data = { file->at + *at + 8, get32(b) };
    CHECK(*at + 12 + data.size <= file->size);
    CHECK(memcmp(b + 4, name, 4) == 0);
    uint32_t crc = 0xffffffff;
    for (size_t i = 4; i < 8 + data.size; i++)
        crc = crc_of(crc, b[i]);
    CHECK_INT(~crc, get32(data.at + data.size));
    *at += 12 + data.size;
    return data;
}

/* Stored blocks to plain bytes, in place. */
static bytes inflate(const bytes *stream)
{
    size_t at = 2, size = 0;
    bool last = false;
    uint32_t a = 1, b = 0;
    CHECK_INT((stream->at[0] * 256 + stream->at[1]) % 31, 0); /* zlib's own check */
    while (!last && at + 5 < stream->size) {
        const unsigned char *head = stream->at + at;
        const size_t count = head[1] + 256u * head[2];
        CHECK_INT(count ^ (head[3] + 256u * head[4]), 0xffff);
        last = head[0] == 1;
        memmove(stream->at + size, head + 5, count);
        size += count;
        at += 5 + count;
    }
    for (size_t i = 0; i < size; i++) {
        a = (a + stream->at[i]) % 65521;
        b = (b + a) % 65521;
    }
    CHECK(last);
    CHECK_INT(at + 4, stream->size);
    CHECK_INT(get32(stream->at + at), b << 16 | a);
    return (bytes) { stream->at, size };
}

TEST(png_reads_back)
{
    static const uint32_t sizes[][2] = { { 1, 1 }, { 13, 5 }, { 64, 64 }, { 1000, 1100 } };
    for (int i = 0; i < 4; i++) {
        const uint32_t width = sizes[i][0], height = sizes[i][1], row = 1 + (width + 7) / 8;
        bytes file = draw("a.png", width, height);
        size_t at = 8;
        CHECK(memcmp(file.at, "\x89PNG\r\n\x1a\n", 8) == 0);
        const bytes header = next_chunk(&file, &at, "IHDR");
        CHECK_INT(header.size, 13);
        CHECK_INT(get32(header.at), width);
        CHECK_INT(get32(header.at + 4), height);
        CHECK(memcmp(header.at + 8, "\1\0\0\0\0", 5) == 0);
        const bytes stream = next_chunk(&file, &at, "IDAT"), raw = inflate(&stream);
        CHECK_INT(raw.size, (size_t)row * height);
        for (uint32_t y = 0; y < height; y++)
            for (uint32_t x = 0; x < width; x++)
                CHECK((raw.at[y * row + 1 + x / 8] >> (7 - x % 8) & 1) == pixel(x, y));
        CHECK_INT(next_chunk(&file, &at, "IEND").size, 0);
        CHECK_INT(at, file.size);
        free(file.at);
    }
}

TEST(crc_of_known_text)
{
    uint32_t crc = 0xffffffff;
    for (const char *s = "123456789"; *s; s++)
        crc = crc_of(crc, (unsigned char)*s);
    CHECK_INT(~crc, 0xcbf43926);
}

TEST(pgm_reads_back)
{
    bytes file = draw("a.pgm", 7, 3);
    const char heading[] = "P5\n7 3\n255\n";
    CHECK_INT(file.size, sizeof heading - 1 + 21);
    CHECK(memcmp(file.at, heading, sizeof heading - 1) == 0);
    for (uint32_t i = 0; i < 21; i++)
        CHECK_INT(file.at[sizeof heading - 1 + i], pixel(i % 7, i / 7) ? 255 : 0);
    free(file.at);
}

CHECK_MAIN()
