/* seen.c: the element mask that --seen names. */
#include "kit/seen.h"

#include "kit/array.h"
#include "kit/block_mask.h"
#include "kit/digest.h"
#include "kit/message.h"
#include "kit/numbers.h"
#include "kit/random.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void cli_mask_destroy(ordo_block_mask *mask)
{
    if (!mask || !mask->bits) {
        ordo_block_mask_destroy(mask);
        return;
    }
    free(((cli_seen *)(void *)mask)->memory);
    free(mask);
}

/* ---- making ---- */

static cli_seen *open_elements(int64_t q_len, int64_t kv_len)
{
    cli_seen *s = malloc(sizeof *s + (size_t)(q_len * kv_len) + 1);
    if (s)
        *s = (cli_seen) { .mask = ORDO_BLOCK_MASK_INIT };
    return s;
}

/* The mask of the elements, or nothing after an error. */
static int close_elements(cli_seen *s, int64_t q_len, int64_t kv_len, int status,
                          ordo_block_mask **mask)
{
    const int64_t strides[] = { 0, 0, kv_len, 1 };
    ordo_problem p = ORDO_PROBLEM_INIT;
    size_t bytes = 0;
    p.batch = p.heads = p.head_dim = 1;
    p.q_len = q_len;
    p.kv_len = kv_len;
    p.seen.on = true;
    if (status == CLI_OK)
        status = cli_library(ordo_seen_bytes(&p, &bytes));
    if (status == CLI_OK && !(s->memory = aligned_alloc(16, (bytes + 31) / 16 * 16)))
        status = cli_out_of_memory();
    if (status == CLI_OK)
        status = cli_library(ordo_seen_make(&s->mask, &p, s->elements, strides, s->memory, bytes));
    if (status == CLI_OK) {
        *mask = &s->mask;
        return CLI_OK;
    }
    free(s->memory);
    free(s);
    return status;
}

static void draw(cli_seen *s, int64_t q_len, int64_t kv_len, double share, uint64_t seed)
{
    for (int64_t i = 0; i < q_len; i++)
        for (int64_t j = 0; j < kv_len; j++) {
            const uint64_t own = cli_random_mix(cli_random_mix(seed + (uint64_t)i) + (uint64_t)j);
            s->elements[i * kv_len + j] = (double)(own >> 11) < share * 0x1p53;
        }
}

static int read_file(cli_seen *s, const char *path, int64_t q_len, int64_t kv_len)
{
    cli_array a = { .path = path };
    CLI_TRY(cli_npy_open(&a, path));
    if (a.element != CLI_ELEMENT_BOOL || a.dims != 2 || a.shape[0] != q_len || a.shape[1] != kv_len)
        return cli_usage("--seen %s: expected bool of shape (%" PRId64 ", %" PRId64 ")", path,
                         q_len, kv_len);
    return cli_array_read(&a, s->elements);
}

/* "0.5" or "0.5:7". */
static bool read_share(const char *text, double *share, uint64_t *seed)
{
    char *end = NULL;
    *seed = 0;
    *share = strtod(text, &end);
    if (end == text || !(*share >= 0 && *share <= 1))
        return false;
    return *end == '\0' || (*end == ':' && cli_read_u64(end + 1, seed));
}

int cli_seen_make(const char *text, int64_t q_len, int64_t kv_len, ordo_block_mask **mask)
{
    double share = 0;
    uint64_t seed = 0;
    *mask = NULL;
    if (q_len > INT32_MAX || kv_len > INT32_MAX)
        return cli_usage("--seen: %" PRId64 " rows, %" PRId64 " columns: expected fewer", q_len,
                         kv_len);
    cli_seen *s = open_elements(q_len, kv_len);
    if (s == NULL)
        return cli_out_of_memory();
    const size_t length = strlen(text);
    int status = CLI_OK;
    if (read_share(text, &share, &seed))
        draw(s, q_len, kv_len, share, seed);
    else if (length > 4 && strcmp(text + length - 4, ".npy") == 0)
        status = read_file(s, text, q_len, kv_len);
    else
        status = cli_usage("--seen %s: expected a probability, such as 0.5 or 0.5:SEED, or a "
                           ".npy file",
                           text);
    return close_elements(s, q_len, kv_len, status, mask);
}

/* ---- masks of either kind ---- */

int cli_mask_part(const ordo_block_mask *mask, int64_t q_len, int64_t kv_len,
                  ordo_block_mask **part)
{
    if (!mask->bits)
        return cli_block_mask_part(mask, q_len, kv_len, part);
    cli_seen *s = open_elements(q_len, kv_len);
    if (s == NULL)
        return cli_out_of_memory();
    for (int64_t i = 0; i < q_len; i++)
        memcpy(s->elements + i * kv_len, cli_seen_row(mask, i), (size_t)kv_len);
    return close_elements(s, q_len, kv_len, CLI_OK, part);
}

uint64_t cli_mask_digest(const ordo_block_mask *mask)
{
    if (!mask->bits)
        return cli_block_mask_digest(mask);
    cli_digest digest = cli_digest_start();
    cli_digest_add(&digest, cli_seen_row(mask, 0), (size_t)(mask->q_len * mask->kv_len));
    return cli_digest_value(&digest);
}
