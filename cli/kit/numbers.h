/* numbers.h: numbers on the command line, read strictly: no blanks, no trailing text,
 * nothing out of range. Each returns false and leaves the target unchanged on invalid text. */
#ifndef CLI_NUMBERS_H
#define CLI_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cli_list {
    int64_t *values;
    size_t count;
} cli_list;

/* 4096, 4k, 1m (k = 1024, m = 1024 * 1024), also negative. */
bool cli_read_size(const char *text, int64_t low, int64_t high, int64_t *value);

/* Sizes separated by commas: 1k,4k. Allocates; cli_list_free() releases. */
bool cli_read_list(const char *text, int64_t low, int64_t high, cli_list *list);
bool cli_list_of(cli_list *list, int64_t value); /* replaces the list by one value */
void cli_list_free(cli_list *list);

/* 0 .. 2^64 - 1, decimal or 0x. */
bool cli_read_u64(const char *text, uint64_t *value);

/* A finite number. One too small for a double is refused: 0 often means something else. */
bool cli_read_real(const char *text, double *value);

/* Two sizes separated by a character: 128x64, -1,0. */
bool cli_read_pair(const char *text, char between, int64_t low, int64_t high, int64_t *first,
                   int64_t *second);

/* A positive ratio, 8/5 or 1.6 or 2, as an exact fraction in lowest terms. */
bool cli_read_ratio(const char *text, int64_t *numerator, int64_t *denominator);

#endif
