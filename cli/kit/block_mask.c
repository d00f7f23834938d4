/* block_mask.c: the block mask that --block-mask names. */
#define _XOPEN_SOURCE 700
#include "kit/block_mask.h"

#include "kit/digest.h"
#include "kit/message.h"
#include "kit/numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

static int from_chunks(const char *text, int64_t q_len, int64_t kv_len, ordo_block_mask **mask)
{
    int64_t chunk = 0;
    if (!cli_read_size(text, 1, INT64_MAX, &chunk))
        return cli_usage("--block-mask chunk:%s: expected columns per chunk, such as chunk:8k",
                         text);
    return cli_library(ordo_block_mask_from_chunks(mask, q_len, kv_len, chunk, 0));
}

static int from_lengths(const cli_list *lengths, int64_t q_len, int64_t kv_len,
                        ordo_block_mask **mask)
{
    int64_t sum = 0;
    for (size_t d = 0; d < lengths->count && sum <= kv_len; d++)
        sum += lengths->values[d];
    if (sum != q_len || sum != kv_len)
        return cli_usage("--block-mask documents: their lengths add up to %s%" PRId64
                         ": expected %" PRId64 " rows and %" PRId64 " columns",
                         sum > kv_len ? "at least " : "", sum, q_len, kv_len);
    int64_t *ids = malloc((size_t)(sum + 1) * sizeof *ids);
    if (ids == NULL)
        return cli_out_of_memory();
    int64_t row = 0;
    for (size_t d = 0; d < lengths->count; d++)
        for (int64_t i = 0; i < lengths->values[d]; i++)
            ids[row++] = (int64_t)d;
    const int status = cli_library(ordo_block_mask_from_documents(mask, sum, ids));
    free(ids);
    return status;
}

static int from_documents(const char *text, int64_t q_len, int64_t kv_len, ordo_block_mask **mask)
{
    cli_list lengths = { NULL, 0 };
    if (!cli_read_list(text, 1, INT32_MAX, &lengths))
        return cli_usage("--block-mask documents:%s: expected lengths, such as documents:100,412",
                         text);
    const int status = from_lengths(&lengths, q_len, kv_len, mask);
    cli_list_free(&lengths);
    return status;
}

/* ---- a file ---- */

/* A line of two numbers, and nothing else but blanks. */
static bool read_pair(const char *line, int64_t *first, int64_t *last)
{
    int end = 0;
    return sscanf(line, " %" SCNd64 " %" SCNd64 " %n", first, last, &end) == 2 && line[end] == '\0';
}

static int read_rows(FILE *file, const char *path, int64_t q_len, int64_t kv_len, int32_t *first,
                     int32_t *last)
{
    char line[128];
    int64_t row = 0, a = 0, b = 0;
    for (; fgets(line, sizeof line, file); row++) {
        if (row == q_len)
            return cli_usage("--block-mask %s: more than %" PRId64
                             " lines: expected one for each query row",
                             path, q_len);
        if (!read_pair(line, &a, &b) || a < 0 || a > kv_len || b < -1 || b >= kv_len)
            return cli_usage("--block-mask %s, line %" PRId64 ": expected the first and the last "
                             "column that a row sees, of 0..%" PRId64 "; 0 -1 = none",
                             path, row + 1, kv_len - 1);
        first[row] = (int32_t)a;
        last[row] = (int32_t)b;
    }
    if (ferror(file))
        return cli_error(CLI_FAILED, "--block-mask %s: %s", path, strerror(errno));
    if (row < q_len)
        return cli_usage("--block-mask %s: %" PRId64 " lines: expected one for each of %" PRId64
                         " query rows",
                         path, row, q_len);
    return CLI_OK;
}

static int from_file(const char *path, int64_t q_len, int64_t kv_len, ordo_block_mask **mask)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return cli_usage("--block-mask %s: expected chunk:N, documents:N,N.. or a file; %s", path,
                         strerror(errno));
    int32_t *first = malloc((size_t)(q_len + 1) * sizeof *first);
    int32_t *last = malloc((size_t)(q_len + 1) * sizeof *last);
    int status =
        first && last ? read_rows(file, path, q_len, kv_len, first, last) : cli_out_of_memory();
    if (status == CLI_OK)
        status = cli_library(ordo_block_mask_from_intervals(mask, q_len, kv_len, first, last));
    free(first);
    free(last);
    fclose(file);
    return status;
}

/* ---- both ---- */

int cli_block_mask_make(const char *text, int64_t q_len, int64_t kv_len, ordo_block_mask **mask)
{
    static const char chunk[] = "chunk:", documents[] = "documents:";
    *mask = NULL;
    if (q_len > INT32_MAX || kv_len > INT32_MAX)
        return cli_usage("--block-mask: %" PRId64 " rows, %" PRId64 " columns: expected fewer",
                         q_len, kv_len);
    if (strncmp(text, chunk, sizeof chunk - 1) == 0)
        return from_chunks(text + sizeof chunk - 1, q_len, kv_len, mask);
    if (strncmp(text, documents, sizeof documents - 1) == 0)
        return from_documents(text + sizeof documents - 1, q_len, kv_len, mask);
    return from_file(text, q_len, kv_len, mask);
}

int cli_block_mask_part(const ordo_block_mask *mask, int64_t q_len, int64_t kv_len,
                        ordo_block_mask **part)
{
    int32_t *last = malloc((size_t)(q_len + 1) * sizeof *last), *first = NULL;
    *part = NULL;
    if (last)
        first = malloc((size_t)(q_len + 1) * sizeof *first);
    for (int64_t i = 0; first && i < q_len; i++) {
        first[i] = mask->first[i] < kv_len ? mask->first[i] : (int32_t)kv_len;
        last[i] = mask->last[i] < kv_len ? mask->last[i] : (int32_t)kv_len - 1;
    }
    const int status =
        first ? cli_library(ordo_block_mask_from_intervals(part, q_len, kv_len, first, last))
              : cli_out_of_memory();
    free(first);
    free(last);
    return status;
}

uint64_t cli_block_mask_digest(const ordo_block_mask *mask)
{
    cli_digest digest = cli_digest_start();
    for (int64_t i = 0; i < mask->q_len; i++) {
        char text[32];
        const int size =
            snprintf(text, sizeof text, "%" PRId32 " %" PRId32 "\n", mask->first[i], mask->last[i]);
        cli_digest_add(&digest, text, (size_t)size);
    }
    return cli_digest_value(&digest);
}
