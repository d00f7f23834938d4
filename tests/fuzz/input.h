/* input.h: what fuzz targets share: the input as fields, and memory that is watched.
 *
 * Every byte is a field, in the order in which a target reads them; past the end they are 0. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/gap.h"
#include "ordo/machine.h"
#include "ordo/problem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold of any input. stderr may be sent away: this goes to what was under it. */
#define must(condition) must_hold(condition, __FILE__, __LINE__, #condition)
static inline void must_hold(bool holds, const char *file, int line, const char *condition)
{
    if (holds)
        return;
    dprintf(2, "%s:%d: %s\n", file, line, condition);
    abort();
}

/* Send what the command prints nowhere, and let it read nothing: messages of the sanitizers do not
 * go through these. */
static inline void fuzz_quiet(void)
{
    static bool done;
    if (!done) {
        must((stdin = fopen("/dev/null", "r")) != NULL);
        must((stdout = fopen("/dev/null", "w")) != NULL);
        must((stderr = fopen("/dev/null", "w")) != NULL);
    }
    done = true;
}

/* The machine it runs on, probed once: that takes longer than most plans. */
static inline const ordo_machine *fuzz_host(void)
{
    static ordo_machine *machine;
    must(machine != NULL || ordo_machine_create(&machine, "host") == ORDO_OK);
    return machine;
}

/* ---- fields ---- */

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static inline int byte(reader *r)
{
    return r->at < r->end ? *r->at++ : 0;
}

/* A size: mostly small, now and then a limit of the type. */
static inline int64_t number_of(int b, int most)
{
    static const int64_t limits[] = { -1,      INT64_MIN, INT64_MAX,        1 << 30,
                                      1 << 16, INT32_MAX, INT64_C(1) << 32, INT64_C(1) << 59 };
    return b >= 248 ? limits[b - 248] : b % (most + 1);
}
static inline int64_t number(reader *r, int most)
{
    return number_of(byte(r), most);
}

/* A length, a head size or a side of a tile: mostly small; also at the edges of vectors of 16, of
 * blocks of 128 columns and of the head sizes that take row tiles together. */
static inline int64_t extent(reader *r)
{
    static const int edges[] = { 63,  64,  65,  96,  100, 127, 128, 129, 144, 192, 200, 255,
                                 256, 257, 300, 320, 383, 384, 385, 511, 512, 513, 576, 600 };
    enum { FIRST = 128, EDGES = sizeof edges / sizeof *edges };
    const int b = byte(r);
    return b < FIRST || b >= 248 ? number_of(b, 40) : edges[(b - FIRST) % EDGES];
}

static inline double real(reader *r)
{
    static const double odd[] = { 0, 0.1, 0.17, 0.5, 1, 2.5, 30, -1, 0.999, 1e-30, 1e30, -0.0 };
    const int b = byte(r);
    return b < 12 ? odd[b] : b == 255 ? (double)NAN : b == 254 ? (double)INFINITY : b / 64.0;
}

/* A part of a problem: most of them no kernel takes. */
static inline ordo_shard read_shard(reader *r)
{
    ordo_shard shard = { .batch0 = number(r, 9) };
    shard.head0 = number(r, 6);
    shard.heads_total = number(r, 12);
    shard.row0 = 16 * (byte(r) % 3);
    shard.row0 += byte(r) % 2;
    shard.col0 = 128 * (byte(r) % 2);
    shard.q_total = number(r, 120);
    shard.kv_total = number(r, 200);
    return shard;
}

/* ---- memory ---- */

/* An allocation with a guard on either side, and a copy of it to compare with. The address
 * sanitizer is the better guard. */
typedef struct block {
    unsigned char *memory, *copy;
    size_t bytes;
} block;

enum { POISON = 0xa5, GUARD = ORDO_GAP > 0 ? 0 : 64 };

/* With the rest of the input, over and over; or, if there is none, a fixed byte. */
static inline block block_open(size_t bytes, const reader *fill)
{
    const size_t given = (size_t)(fill->end - fill->at);
    const size_t all = bytes + 2 * GUARD; /* perhaps none: any access is an error then */
    /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI) */
    block b = { malloc(all), malloc(all), bytes };
    if (!b.memory || !b.copy)
        abort();
    memset(b.memory, POISON, bytes + 2 * GUARD);
    for (size_t x = 0; x < bytes && given > 0; x += given)
        memcpy(b.memory + GUARD + x, fill->at, bytes - x < given ? bytes - x : given);
    memcpy(b.copy, b.memory, bytes + 2 * GUARD);
    return b;
}

static inline void *block_data(const block *b)
{
    return b->memory + GUARD;
}

/* A block that holds what is in `data`. */
static inline block block_of(const void *data, size_t bytes)
{
    const reader all = { data, (const uint8_t *)data + bytes };
    return block_open(bytes, &all);
}

static inline void block_close(block *b)
{
    free(b->memory);
    free(b->copy);
}

static inline bool block_unchanged(const block *b)
{
    return memcmp(b->memory, b->copy, b->bytes + 2 * GUARD) == 0;
}

static inline bool guards_unchanged(const block *b)
{
    return memcmp(b->memory, b->copy, GUARD) == 0 &&
           memcmp(b->memory + GUARD + b->bytes, b->copy + GUARD + b->bytes, GUARD) == 0;
}

#endif
