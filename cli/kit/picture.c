/* picture.c: black and white pictures: PGM, and PNG without compression.
 *
 * A PNG is a signature and chunks: length, name, data, CRC-32 of name and data. The pixels are one
 * chunk, a zlib stream of stored blocks: each 65535 bytes at most after its length and the
 * complement of that; an Adler-32 of the pixels ends the stream. */
#include "kit/picture.h"

#include <string.h>

enum { STORED = 65535 }; /* bytes a stored block holds */

static uint32_t crc_of(uint32_t crc, unsigned char byte)
{
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++)
        crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    return crc;
}

/* A byte of a chunk. */
static void put(cli_picture *p, unsigned char byte)
{
    p->crc = crc_of(p->crc, byte);
    putc(byte, p->out);
}

static void put32(cli_picture *p, uint32_t x)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        put(p, (unsigned char)(x >> shift));
}

static void start_chunk(cli_picture *p, uint32_t length, const char *name)
{
    put32(p, length); /* stands before what the checksum covers */
    p->crc = 0xffffffff;
    for (int i = 0; i < 4; i++)
        put(p, (unsigned char)name[i]);
}

static void end_chunk(cli_picture *p)
{
    put32(p, ~p->crc);
}

static uint32_t row_bytes(const cli_picture *p)
{
    return (p->width + 7) / 8;
}

static void start_png(cli_picture *p)
{
    fwrite("\x89PNG\r\n\x1a\n", 1, 8, p->out);
    start_chunk(p, 13, "IHDR");
    put32(p, p->width);
    put32(p, p->height);
    put(p, 1); /* bit a pixel; then grey, deflate, filters by row, no interlace */
    for (int i = 0; i < 4; i++)
        put(p, 0);
    end_chunk(p);

    p->left = (uint64_t)p->height * (1 + row_bytes(p));
    const uint64_t blocks = (p->left + STORED - 1) / STORED;
    start_chunk(p, (uint32_t)(2 + p->left + 5 * blocks + 4), "IDAT");
    put(p, 0x78);
    put(p, 0x01);
    p->a = 1;
    p->b = 0;
}

/* A byte of the pixels. */
static void put_pixels(cli_picture *p, unsigned char byte)
{
    if (p->block_left == 0) {
        const uint32_t size = p->left < STORED ? (uint32_t)p->left : STORED;
        put(p, p->left == size); /* 1: the last block */
        put(p, (unsigned char)size);
        put(p, (unsigned char)(size >> 8));
        put(p, (unsigned char)~size);
        put(p, (unsigned char)(~size >> 8));
        p->block_left = size;
    }
    put(p, byte);
    p->block_left--;
    p->left--;
    p->a = (p->a + byte) % 65521;
    p->b = (p->b + p->a) % 65521;
}

cli_picture cli_picture_start(FILE *out, const char *path, uint32_t width, uint32_t height)
{
    const size_t length = strlen(path);
    cli_picture p = { .out = out, .width = width, .height = height };
    p.png = length >= 4 && strcmp(path + length - 4, ".png") == 0;
    if (p.png)
        start_png(&p);
    else
        fprintf(out, "P5\n%u %u\n255\n", width, height);
    return p;
}

void cli_picture_row(cli_picture *p, const unsigned char *row)
{
    if (!p->png) {
        for (uint32_t x = 0; x < p->width; x++)
            putc(row[x] ? 255 : 0, p->out);
        return;
    }
    put_pixels(p, 0); /* no filter */
    for (uint32_t x = 0; x < p->width; x += 8) {
        unsigned char eight = 0;
        for (uint32_t i = 0; i < 8 && x + i < p->width; i++)
            eight |= (unsigned char)((row[x + i] != 0) << (7 - i)); /* the left one highest */
        put_pixels(p, eight);
    }
}

void cli_picture_finish(cli_picture *p)
{
    if (!p->png)
        return;
    put32(p, p->b << 16 | p->a);
    end_chunk(p);
    start_chunk(p, 0, "IEND");
    end_chunk(p);
}
