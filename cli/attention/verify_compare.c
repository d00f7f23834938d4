/* verify_compare.c: the first element in which two results differ. */
#include "attention/verify_compare.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static uint32_t bits_at(const void *row, int64_t column, size_t width)
{
    if (width == 4)
        return ((const uint32_t *)row)[column];
    return ((const uint16_t *)row)[column];
}

/* Count the columns that differ, and note the first of all. */
static void compare_row(const void *expected, const void *got, const cli_extent *e,
                        cli_difference *d)
{
    for (int64_t c = 0; c < e->columns; c++) {
        const uint32_t a = bits_at(expected, c, e->width), b = bits_at(got, c, e->width);
        if (a == b)
            continue;
        if (d->count++ == 0) {
            d->column = c;
            d->expected = a;
            d->got = b;
        }
    }
}

static bool compare_output(const cli_tensors *expected, int64_t sequence, const cli_tensors *got,
                           int64_t at, cli_difference *d)
{
    const cli_extent e = cli_tensors_extent(expected, d->output, sequence);
    const cli_extent f = cli_tensors_extent(got, d->output, at);
    d->sequence = sequence;
    d->bits = (int)(8 * e.width);
    d->elements = (uint64_t)(e.rows * e.heads * e.columns);
    for (int64_t row = 0; row < e.rows; row++)
        for (int64_t head = 0; head < e.heads; head++) {
            const void *a = cli_tensors_at(expected, d->output, &e, row, head);
            const void *b = cli_tensors_at(got, d->output, &f, row, head);
            const uint64_t before = d->count;
            if (memcmp(a, b, (size_t)e.columns * e.width) == 0)
                continue;
            compare_row(a, b, &e, d);
            if (before == 0) {
                d->row = row;
                d->head = head;
            }
        }
    if (d->output == CLI_LSE)
        d->column = -1;
    return d->count > 0;
}

static const unsigned all_outputs = (1u << CLI_OUTPUTS) - 1;

static bool compare_outputs(const cli_tensors *expected, int64_t sequence, const cli_tensors *got,
                            int64_t at, unsigned outputs, cli_difference *difference)
{
    for (int i = 0; i < CLI_OUTPUTS; i++) {
        *difference = (cli_difference) { .output = (cli_output)i };
        if (outputs >> i & 1 && compare_output(expected, sequence, got, at, difference))
            return true;
    }
    return false;
}

bool cli_compare_sequence(const cli_tensors *expected, int64_t sequence, const cli_tensors *got,
                          int64_t at, cli_difference *difference)
{
    const bool shared = !expected->problem.bias.per_sequence; /* dbias is of all sequences */
    return compare_outputs(expected, sequence, got, at,
                           shared ? all_outputs & ~(1u << CLI_DBIAS) : all_outputs, difference);
}

bool cli_compare_some(const cli_tensors *expected, const cli_tensors *got, unsigned outputs,
                      cli_difference *difference)
{
    for (int64_t b = 0; b < expected->problem.batch; b++)
        if (compare_outputs(expected, b, got, b, outputs, difference))
            return true;
    return false;
}

bool cli_compare_all(const cli_tensors *expected, const cli_tensors *got,
                     cli_difference *difference)
{
    return cli_compare_some(expected, got, all_outputs, difference);
}

static double value_of(const ordo_problem *p, const cli_difference *d, uint32_t bits)
{
    float value;
    if (d->bits == 16 && p->dtype == ORDO_F16) {
        const int exponent = bits >> 10 & 31;
        const double mantissa = bits & 0x3ff;
        const double size = exponent == 31  ? (mantissa > 0 ? NAN : INFINITY)
                            : exponent == 0 ? ldexp(mantissa, -24)
                                            : ldexp(1024 + mantissa, exponent - 25);
        return bits & 0x8000 ? -size : size;
    }
    if (d->bits == 16)
        bits <<= 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void cli_difference_text(const ordo_problem *p, const cli_difference *d, char *text,
                         size_t capacity)
{
    char column[32] = "";
    if (d->column >= 0)
        snprintf(column, sizeof column, ", column %" PRId64, d->column);
    snprintf(text, capacity,
             "%s, sequence %" PRId64 ", row %" PRId64 ", head %" PRId64 "%s: 0x%0*" PRIx32
             " (%.9g), expected 0x%0*" PRIx32 " (%.9g); %" PRIu64 " of %" PRIu64 " elements differ",
             cli_output_name(d->output), d->sequence, d->row, d->head, column, d->bits / 4, d->got,
             value_of(p, d, d->got), d->bits / 4, d->expected, value_of(p, d, d->expected),
             d->count, d->elements);
}

void cli_difference_json(cli_json *json, const char *key, const cli_difference *d)
{
    char hex[16];
    cli_json_object(json, key);
    cli_json_text(json, "tensor", cli_output_name(d->output));
    cli_json_int(json, "sequence", d->sequence);
    cli_json_int(json, "row", d->row);
    cli_json_int(json, "head", d->head);
    if (d->column >= 0)
        cli_json_int(json, "column", d->column);
    else
        cli_json_null(json, "column");
    snprintf(hex, sizeof hex, "%0*" PRIx32, d->bits / 4, d->got);
    cli_json_text(json, "bits", hex);
    snprintf(hex, sizeof hex, "%0*" PRIx32, d->bits / 4, d->expected);
    cli_json_text(json, "expected_bits", hex);
    cli_json_uint(json, "differ", d->count);
    cli_json_uint(json, "elements", d->elements);
    cli_json_end_object(json);
}
