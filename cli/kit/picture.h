/* picture.h: black and white pictures, row by row: PGM, and PNG without compression. */
#ifndef CLI_PICTURE_H
#define CLI_PICTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_picture {
    FILE *out;
    bool png;
    uint32_t width, height;
    uint32_t crc, a, b;  /* PNG: running checksums of the chunk and of the pixels */
    uint64_t left;       /* PNG: bytes of pixels still to come, and of those */
    uint32_t block_left; /* ... in the present stored block */
} cli_picture;

/* Start a picture: a PNG with 1 bit per pixel if the path ends in .png, else a PGM. */
cli_picture cli_picture_start(FILE *out, const char *path, uint32_t width, uint32_t height);

/* One row of `width` bytes: 0 is black, anything else white. */
void cli_picture_row(cli_picture *picture, const unsigned char *row);
void cli_picture_finish(cli_picture *picture);

#endif
