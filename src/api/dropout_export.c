/* dropout_export.c: keep bits row by row; names; the generator by itself. */
#include "api/dropout.h"
#include "base/environment.h"
#include "base/philox.h"
#include "base/status.h"
#include "base/versioned.h"

#include <inttypes.h>
#include <string.h>

/* A rectangle that has been checked: nothing in it is left to a default. */
typedef struct rectangle {
    int64_t sequence, head, row, rows, col, cols;
    bool bits;
    int64_t row_bytes;
} rectangle;

static ordo_status check_span(const char *first_name, int64_t first, const char *count_name,
                              int64_t *count, int64_t length)
{
    ORDO_TRY(ordo_check_range(first_name, first, 0, length));
    if (*count < 0 || *count > length - first)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s %" PRId64 ": expected 1..%" PRId64 ", or 0 (all that follow)",
                         count_name, *count, length - first);
    if (*count == 0)
        *count = length - first;
    return ORDO_OK;
}

static ordo_status check_part(const ordo_dropout_view *m, const ordo_dropout_part *in, rectangle *r)
{
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_dropout_part, "ordo_dropout_part", ORDO_DROPOUT_PART_INIT, NULL);
    ordo_dropout_part p = ORDO_DROPOUT_PART_INIT;
    if (in)
        ORDO_TRY(ordo_versioned_copy(&p, in, &kind));
    ORDO_TRY(ordo_check_range("part.sequence", p.sequence, 0, m->problem.batch - 1));
    ORDO_TRY(ordo_check_range("part.head", p.head, 0, m->problem.heads - 1));
    if ((unsigned)p.format > ORDO_DROPOUT_BITS)
        return ordo_fail(ORDO_ERR_ARGUMENT, "part.format %d: expected 0 (bytes) or 1 (bits)",
                         (int)p.format);
    const ordo_dropout_sequence s = ordo_dropout_sequence_at(m, p.sequence);
    ORDO_TRY(check_span("part.row", p.row, "part.rows", &p.rows, s.rows));
    ORDO_TRY(check_span("part.col", p.col, "part.cols", &p.cols, s.cols));
    const bool bits = p.format == ORDO_DROPOUT_BITS;
    *r = (rectangle) { p.sequence, p.head, p.row, p.rows,
                       p.col,      p.cols, bits,  bits ? (p.cols + 7) / 8 : p.cols };
    return ORDO_OK;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The part of one row of one block that lies in the rectangle; `out` is the row's. */
static void write_row(const rectangle *r, const uint32_t columns[4], int64_t block,
                      unsigned char *out)
{
    const int64_t left = block * ORDO_KEEP_COLS;
    const int64_t begin = larger(r->col, left);
    const int64_t end = smaller(r->col + r->cols, left + ORDO_KEEP_COLS);
    for (int64_t c = begin; c < end; c++) {
        const int64_t inside = c - left, at = c - r->col;
        const uint32_t kept = columns[inside >> 5] >> (inside & 31) & 1;
        if (r->bits)
            out[at >> 3] |= (unsigned char)(kept << (at & 7));
        else
            out[at] = (unsigned char)kept;
    }
}

/* The part of one block that lies in the rectangle. */
static void write_block(const rectangle *r, const uint32_t *words, int64_t down, int64_t block,
                        unsigned char *out)
{
    const int64_t top = down * ORDO_KEEP_ROWS;
    const int64_t begin = larger(r->row, top);
    const int64_t end = smaller(r->row + r->rows, top + ORDO_KEEP_ROWS);
    for (int64_t row = begin; row < end; row++) {
        uint32_t quads[4], columns[4];
        for (int64_t q = 0; q < 4; q++)
            quads[q] = words[ordo_keep_index(ORDO_KEEP_COLS, row - top, 0, q)];
        ordo_keep_columns(quads, columns);
        write_row(r, columns, block, out + (row - r->row) * r->row_bytes);
    }
}

static void write_all(const ordo_dropout_view *m, const rectangle *r, const uint32_t *stored,
                      unsigned char *out)
{
    const ordo_dropout_sequence s = ordo_dropout_sequence_at(m, r->sequence);
    if (stored)
        stored += (ordo_dropout_first_block(m, r->sequence) +
                   (uint64_t)r->head * (uint64_t)s.head_blocks) *
                  ORDO_KEEP_WORDS;
    memset(out, 0, (size_t)(r->rows * r->row_bytes));
    const int64_t bottom = (r->row + r->rows + ORDO_KEEP_ROWS - 1) / ORDO_KEEP_ROWS;
    const int64_t right = (r->col + r->cols + ORDO_KEEP_COLS - 1) / ORDO_KEEP_COLS;
    for (int64_t down = r->row / ORDO_KEEP_ROWS; down < bottom; down++)
        for (int64_t block = r->col / ORDO_KEEP_COLS; block < right; block++) {
            uint32_t made[ORDO_KEEP_WORDS];
            if (!stored)
                ordo_dropout_blocks(m, &s, r->head, down, block, 1, made);
            write_block(r, stored ? stored + (down * s.across + block) * ORDO_KEEP_WORDS : made,
                        down, block, out);
        }
}

ordo_status ordo_dropout_export(const ordo_problem *problem, const ordo_dropout_call *call,
                                const uint32_t *words, const ordo_dropout_part *part, void *out,
                                size_t bytes, size_t *needed)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_dropout_view m;
    rectangle r;
    ORDO_TRY(ordo_dropout_open(problem, call, true, &m));
    ORDO_TRY(check_part(&m, part, &r));
    const size_t size = (size_t)(r.rows * r.row_bytes); /* lengths are at most 2^30 */
    if (needed)
        *needed = size;
    if (!out && needed)
        return ORDO_OK;
    if (!out)
        return ordo_fail(ORDO_ERR_ARGUMENT, "out NULL: expected room for %zu bytes", size);
    if (bytes < size)
        return ordo_fail(ORDO_ERR_SHAPE, "bytes %zu: expected at least %zu", bytes, size);
    ORDO_TRY(ordo_check_aligned("words", words, sizeof *words));
    if (size > 0)
        write_all(&m, &r, words, out);
    return ORDO_OK;
}

ordo_status ordo_philox4x32(const uint32_t counter[4], const uint32_t key[2], int rounds,
                            uint32_t words[4])
{
    ordo_philox_words w;
    ORDO_TRY(ordo_check_pointer("counter", counter));
    ORDO_TRY(ordo_check_pointer("key", key));
    ORDO_TRY(ordo_check_pointer("words", words));
    ORDO_TRY(ordo_check_range("rounds", rounds, 1, 10));
    memcpy(w.w, counter, sizeof w.w);
    w = ordo_philox(w, key[0], key[1], rounds);
    memcpy(words, w.w, sizeof w.w);
    return ORDO_OK;
}
