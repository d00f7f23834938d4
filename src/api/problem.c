/* problem.c: check a problem once, for every backend, and fill in its defaults. */
#include "api/problem.h"

#include "base/bias.h"
#include "base/checked.h"
#include "base/environment.h"
#include "base/keep.h"
#include "base/mask.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/versioned.h"
#include "plan/family.h"

#include <inttypes.h>
#include <math.h>

static ordo_status check_kinds(const ordo_problem *p)
{
    if ((unsigned)p->dtype > ORDO_F16)
        return ordo_fail(ORDO_ERR_ARGUMENT, "dtype %d: expected 0 (f32), 1 (bf16) or 2 (f16)",
                         (int)p->dtype);
    if ((unsigned)p->layout > ORDO_PADDED)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "layout %d: expected 0 (dense), 1 (packed) or 2 (padded)", (int)p->layout);
    ORDO_TRY(ordo_check_mask("mask", p->mask));
    if ((unsigned)p->dropout.keying > ORDO_KEYING_FA2)
        return ordo_fail(ORDO_ERR_ARGUMENT, "dropout.keying %d: expected 0 (ordo) or 1 (fa2)",
                         (int)p->dropout.keying);
    return ORDO_OK;
}

static ordo_status check_extras(const ordo_problem *p)
{
    static const struct {
        uint32_t bit;
        const char *name, *constant;
    } known[] = {
        { ORDO_EXTRA_BIAS, "attention bias of a problem's extras (it is bias)", "ORDO_EXTRA_BIAS" },
        { ORDO_EXTRA_SINKS, "attention sinks of a problem (they are call.sink)",
          "ORDO_EXTRA_SINKS" },
        { ORDO_EXTRA_BLOCK_MASK, "mask tensor of a problem (it is seen)", "ORDO_EXTRA_BLOCK_MASK" },
        { ORDO_EXTRA_PAGED_KV, "paged keys and values of a problem (they are paging)",
          "ORDO_EXTRA_PAGED_KV" },
        { ORDO_EXTRA_FP8, "8-bit input", "ORDO_EXTRA_FP8" },
        { ORDO_EXTRA_PROBABILITIES, "probabilities as output", "ORDO_EXTRA_PROBABILITIES" },
    };
    if (p->extras == 0)
        return ORDO_OK;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (p->extras & known[i].bit)
            return ordo_fail(ORDO_ERR_UNSUPPORTED,
                             "extras %#" PRIx32 " (%s): %s not supported; expected 0", p->extras,
                             known[i].constant, known[i].name);
    return ordo_fail(ORDO_ERR_ARGUMENT, "extras %#" PRIx32 ": unknown bits; expected 0", p->extras);
}

/* How many keys are meant. */
static int64_t keys(int64_t count, int64_t otherwise)
{
    return count == ORDO_NO_KEYS ? 0 : count == 0 ? otherwise : count;
}

static ordo_status check_sizes(ordo_problem *p)
{
    const int64_t head_dim_max = /* the oracle runs every problem */
        ordo_family_first(ORDO_BACKEND_REF)->head_dim_max;
    ORDO_TRY(ordo_check_range("batch", p->batch, 0, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("heads", p->heads, 1, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("q_len", p->q_len, 0, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("head_dim", p->head_dim, 1, head_dim_max));

    if (p->kv_heads == 0)
        p->kv_heads = p->heads;
    if (p->layout == ORDO_PACKED)
        p->total_kv = keys(p->total_kv, p->kv_len == ORDO_NO_KEYS ? 0 : p->total_q);
    p->kv_len = keys(p->kv_len, p->q_len);
    if (p->v_head_dim == 0)
        p->v_head_dim = p->head_dim;
    ORDO_TRY(ordo_check_range("kv_len", p->kv_len, 0, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("v_head_dim", p->v_head_dim, 1, head_dim_max));
    if (p->kv_heads < 1 || p->heads % p->kv_heads != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "kv_heads %" PRId64 ": expected a divisor of heads %" PRId64, p->kv_heads,
                         p->heads);
    return ORDO_OK;
}

/* More rows than sequences of the stated length have are fine: some lie after the last end. */
static ordo_status check_total(const char *name, int64_t total)
{
    if (total < 0)
        return ordo_fail(ORDO_ERR_SHAPE, "%s %" PRId64 ": expected 0 or more in packed layout",
                         name, total);
    if (total > INT32_MAX)
        return ordo_fail(ORDO_ERR_OVERFLOW, "%s %" PRId64 ": expected at most 2^31 - 1", name,
                         total);
    return ORDO_OK;
}

static ordo_status check_layout(const ordo_problem *p)
{
    if (p->layout == ORDO_PACKED) {
        ORDO_TRY(check_total("total_q", p->total_q));
        return check_total("total_kv", p->total_kv);
    }
    if (p->total_q != 0 || p->total_kv != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "total_%s %" PRId64 ": expected 0 in %s layout; only packed has totals",
                         p->total_q ? "q" : "kv", p->total_q ? p->total_q : p->total_kv,
                         ordo_layout_name(p->layout));
    return ORDO_OK;
}

/* Tensors of up to 2^59 elements: then sizes in bytes of doubles, and sums of a few of them,
 * fit in 63 bits, and nothing below has to check again. */
static ordo_status check_extent(const ordo_problem *p, const char *name, int64_t len, int64_t total,
                                int64_t heads, int64_t dim)
{
    const bool packed = p->layout == ORDO_PACKED;
    uint64_t count = packed ? 1 : (uint64_t)p->batch;
    if (!ordo_mul_fits(&count, (uint64_t)(packed ? total : len)) ||
        !ordo_mul_fits(&count, (uint64_t)heads) || !ordo_mul_fits(&count, (uint64_t)dim) ||
        count > UINT64_C(1) << 59)
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "%s of %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
                         " elements: expected at most 2^59",
                         name, packed ? 1 : p->batch, packed ? total : len, heads, dim);
    return ORDO_OK;
}

/* A float, and so is what it gives times log2(e): kernels compute in single precision. */
static bool is_single(double x)
{
    return x >= 0x1p-126 && x <= 0x1p127;
}

static ordo_status check_numbers(ordo_problem *p)
{
    if (p->scale != 0 && !is_single(fabs(p->scale)))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "scale %g: expected 0 (1/sqrt(head_dim)) or a finite number of magnitude "
                         "2^-126 to 2^127 (1.2e-38 to 1.7e38)",
                         p->scale);
    if (p->softcap != 0 && !is_single(p->softcap))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "softcap %g: expected 0 (off) or a positive number from 2^-126 to 2^127 "
                         "(1.2e-38 to 1.7e38)",
                         p->softcap);
    if (p->scale == 0)
        p->scale = 1 / sqrt((double)p->head_dim);
    p->softcap = fabs(p->softcap); /* -0.0 would print as another number */
    return ORDO_OK;
}

static ordo_status check_window(ordo_problem *p)
{
    ordo_window *w = &p->window;
    const bool bad_left = w->on ? w->left < -1 : w->left != 0 && w->left != -1;
    const bool bad_right = w->on ? w->right < -1 : w->right != 0 && w->right != -1;
    if (bad_left || bad_right)
        return ordo_fail(ORDO_ERR_ARGUMENT, "window.%s %" PRId64 ": expected %s",
                         bad_left ? "left" : "right", bad_left ? w->left : w->right,
                         w->on ? "-1 (open), 0 or more" : "0 or -1 with window.on false");

    if (w->left >= ORDO_LENGTH_MAX) /* further than any sequence reaches */
        w->left = -1;
    if (w->right >= ORDO_LENGTH_MAX)
        w->right = -1;
    const bool right_hides = w->right >= 0 && p->mask == ORDO_MASK_FULL;
    if (!w->on || (w->left < 0 && !right_hides))
        *w = (ordo_window) { false, 0, 0 };
    else if (p->mask != ORDO_MASK_FULL)
        w->right = 0;
    return ORDO_OK;
}

/* FlashAttention-2 has one generator, and takes p in single precision. */
static ordo_status check_fa2(const ordo_dropout *d)
{
    if (d->rounds != 7 || d->bits != 8)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "dropout.%s %d: expected %d with dropout.keying 1 (fa2)",
                         d->rounds != 7 ? "rounds" : "bits", d->rounds != 7 ? d->rounds : d->bits,
                         d->rounds != 7 ? 7 : 8);
    const float keep = 1.0f - (float)d->p;
    if (keep == 0 || keep == 1)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "dropout.p %.10g: 1 - p is %g in single precision, as dropout.keying 1 "
                         "(fa2) takes it; expected 2^-24 <= p <= 1 - 2^-24",
                         d->p, (double)keep);
    return ORDO_OK;
}

static ordo_status check_dropout(ordo_problem *p)
{
    ordo_dropout *d = &p->dropout;
    if (!(d->p >= 0 && d->p < 1))
        return ordo_fail(ORDO_ERR_ARGUMENT, "dropout.p %g: expected 0 <= p < 1", d->p);
    if (d->rounds == 3 || d->rounds == 5)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "dropout.rounds %d: expected 7 or 10; 3 and 5 give correlated bits and "
                         "are experiments (experiment_rounds of ordo_dropout_call)",
                         d->rounds);
    if (d->rounds != 0 && d->rounds != 7 && d->rounds != 10)
        return ordo_fail(ORDO_ERR_ARGUMENT, "dropout.rounds %d: expected 7 or 10 (0 = 7)",
                         d->rounds);
    if (d->bits < 0 || d->bits > 16)
        return ordo_fail(ORDO_ERR_ARGUMENT, "dropout.bits %d: expected 1..16 (0 = 8)", d->bits);
    if (d->p == 0) {
        *d = (ordo_dropout) { 0 };
        return ORDO_OK;
    }
    d->rounds = d->rounds ? d->rounds : 7;
    d->bits = d->bits ? d->bits : 8;
    if (d->keying == ORDO_KEYING_FA2)
        return check_fa2(d);

    const uint32_t threshold = ordo_keep_threshold(d->p, d->bits), all = 1u << d->bits;
    if (threshold == 0 || threshold == all) /* would keep nothing, or silently everything */
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "dropout.p %g: keeps %u of %u with %d bits; nearest usable p is %.10g%s",
                         d->p, threshold, all, d->bits, threshold ? 1.0 / all : 1 - 1.0 / all,
                         d->bits < 16 ? ", or set dropout.bits, up to 16" : "");
    return ORDO_OK;
}

/* Global coordinates must fit the counter of the generator. */
static ordo_status check_shard_keys(const ordo_problem *p)
{
    const ordo_shard *s = &p->shard;
    if (p->dropout.p == 0)
        return ORDO_OK;
    if (s->row0 % ORDO_KEEP_ROWS != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "shard.row0 %" PRId64 ": expected a multiple of 16 with dropout", s->row0);
    if (s->col0 % ORDO_KEEP_COLS != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "shard.col0 %" PRId64 ": expected a multiple of 128 with dropout",
                         s->col0);
    if ((s->batch0 + p->batch) > (INT64_C(1) << 32) / s->heads_total)
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "shard.batch0 %" PRId64 " + batch %" PRId64 ": expected at most %" PRId64
                         " with dropout (2^32 / heads_total %" PRId64 ")",
                         s->batch0, p->batch, (INT64_C(1) << 32) / s->heads_total, s->heads_total);
    return ORDO_OK;
}

static ordo_status check_shard_heads(ordo_problem *p)
{
    ordo_shard *s = &p->shard;
    const int64_t group = p->heads / p->kv_heads;
    if (s->heads_total == 0)
        s->heads_total = p->heads;
    ORDO_TRY(ordo_check_range("shard.batch0", s->batch0, 0, INT64_C(1) << 32));
    ORDO_TRY(ordo_check_range("shard.heads_total", s->heads_total, p->heads, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("shard.head0", s->head0, 0, s->heads_total - p->heads));
    if (s->heads_total % group != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "shard.heads_total %" PRId64 ": expected a multiple of %" PRId64
                         ", the query heads that share a key head",
                         s->heads_total, group);
    if (s->head0 % group != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "shard.head0 %" PRId64 ": expected a multiple of %" PRId64
                         ", the query heads that share a key head",
                         s->head0, group);
    return ORDO_OK;
}

static ordo_status check_shard(ordo_problem *p)
{
    ordo_shard *s = &p->shard;
    ORDO_TRY(check_shard_heads(p));
    if (s->q_total == 0)
        s->q_total = p->q_len;
    if (s->kv_total == 0)
        s->kv_total = p->kv_len;

    /* The diagonal needs each sequence's whole lengths, which one pair of totals cannot give
     * for sequences of different lengths. */
    if (p->layout != ORDO_DENSE &&
        (s->row0 != 0 || s->col0 != 0 || s->q_total != p->q_len || s->kv_total != p->kv_len))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "shard.row0 %" PRId64 ", col0 %" PRId64 ", q_total %" PRId64
                         ", kv_total %" PRId64 ": expected 0 in %s layout; only dense sequences "
                         "can be split",
                         s->row0, s->col0, s->q_total, s->kv_total, ordo_layout_name(p->layout));
    ORDO_TRY(ordo_check_range("shard.q_total", s->q_total, p->q_len, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("shard.kv_total", s->kv_total, p->kv_len, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("shard.row0", s->row0, 0, s->q_total - p->q_len));
    ORDO_TRY(ordo_check_range("shard.col0", s->col0, 0, s->kv_total - p->kv_len));
    return check_shard_keys(p);
}

static ordo_status check_blocks(const ordo_problem *p)
{
    const ordo_block_limits *b = &p->blocks;
    ORDO_TRY(ordo_check_range("blocks.entries", b->entries, 0, INT32_MAX));
    if (b->entries == 0 && (b->per_sequence || b->per_head))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "blocks.per_%s true: expected false with blocks.entries 0 (no block mask)",
                         b->per_sequence ? "sequence" : "head");
    if (!p->seen.on && (p->seen.per_sequence || p->seen.per_head))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "seen.per_%s true: expected false with seen.on false (no element mask)",
                         p->seen.per_sequence ? "sequence" : "head");
    if (p->seen.on && b->entries > 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "seen, blocks.entries %" PRId64 ": expected one of the two masks",
                         b->entries);
    return ORDO_OK;
}

/* The type of a bias, and what passes with one do not compute. */
static ordo_status check_bias(const ordo_problem *p)
{
    const ordo_bias *b = &p->bias;
    if (!b->on && (b->per_sequence || b->per_head || b->dtype != ORDO_F32))
        return ordo_fail(ORDO_ERR_ARGUMENT, "bias.%s: expected 0 with bias.on false",
                         b->per_sequence ? "per_sequence true"
                         : b->per_head   ? "per_head true"
                                         : "dtype");
    if (!b->on)
        return ORDO_OK;
    if (b->dtype != ORDO_F32 && b->dtype != p->dtype)
        return ordo_fail(ORDO_ERR_ARGUMENT, "bias.dtype %d: expected f32, or dtype %s",
                         (int)b->dtype, ordo_dtype_name(p->dtype));
    if (p->layout == ORDO_PACKED)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "bias.on true, layout packed: expected dense or padded");
    if (p->paging.page_rows != 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "bias.on true, paging.page_rows %" PRId64 ": expected 0 (no pages)",
                         p->paging.page_rows);
    ordo_problem matrix = *p; /* (batch, heads, q_len, kv_len) */
    matrix.batch = ordo_bias_sequences(p);
    return check_extent(&matrix, "bias", p->q_len, 0, ordo_bias_heads(p), p->kv_len);
}

/* The sizes of pages. total_kv becomes the number of rows of all of them. */
static ordo_status check_paging(ordo_problem *p)
{
    const ordo_paging *pages = &p->paging;
    if (pages->page_rows == 0 && (pages->pages != 0 || pages->table_columns != 0))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "paging.page_rows 0: expected 1..65536, or paging.pages and "
                         "table_columns 0 (no pages)");
    if (pages->page_rows == 0)
        return ORDO_OK;
    ORDO_TRY(ordo_check_range("paging.page_rows", pages->page_rows, 1, 65536));
    ORDO_TRY(ordo_check_range("paging.pages", pages->pages, 1, INT32_MAX));
    ORDO_TRY(ordo_check_range("paging.table_columns", pages->table_columns, 1, INT32_MAX));
    if (p->layout == ORDO_DENSE)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "layout dense: expected packed or padded with paging, whose sequences "
                         "have lengths of their own");
    const int64_t rows = pages->page_rows * pages->pages;
    if (p->layout == ORDO_PACKED && (p->total_kv == 0 || p->total_kv == ORDO_NO_KEYS))
        p->total_kv = rows;
    if (p->layout == ORDO_PACKED && p->total_kv != rows)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "total_kv %" PRId64 ": expected 0 or %" PRId64
                         ", the rows of all pages, with paging",
                         p->total_kv, rows);
    return ORDO_OK;
}

/* What passes over pages do not compute, and whether a table holds the longest sequence. */
static ordo_status check_paged(const ordo_problem *p)
{
    const ordo_paging *pages = &p->paging;
    if (pages->page_rows == 0)
        return ORDO_OK;
    if (p->kv_len > pages->page_rows * pages->table_columns)
        return ordo_fail(
            ORDO_ERR_SHAPE,
            "paging.table_columns %" PRId64 ": expected at least %" PRId64 " for kv_len %" PRId64,
            pages->table_columns, (p->kv_len + pages->page_rows - 1) / pages->page_rows, p->kv_len);
    if (p->dropout.p > 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "dropout.p %g: expected 0 with paging",
                         p->dropout.p);
    if (p->blocks.entries > 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "blocks.entries %" PRId64 ": expected 0 (no block mask) with paging",
                         p->blocks.entries);
    if (p->seen.on)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "seen: expected none with paging");
    return ORDO_OK;
}

static const ordo_nested nested[] = {
    ORDO_NESTED(ordo_problem, window), ORDO_NESTED(ordo_problem, dropout),
    ORDO_NESTED(ordo_problem, shard),  ORDO_NESTED(ordo_problem, blocks),
    ORDO_NESTED(ordo_problem, paging), ORDO_NESTED(ordo_problem, seen),
    ORDO_NESTED(ordo_problem, bias),   { 0 }
};

const ordo_struct ordo_problem_struct =
    ORDO_STRUCT(ordo_problem, "problem", ORDO_PROBLEM_INIT, nested);

ordo_status ordo_problem_resolve(const ordo_problem *in, ordo_problem *out)
{
    ordo_problem p;
    ORDO_TRY(ordo_check_pointer("problem", in));
    ORDO_TRY(ordo_versioned_copy(&p, in, &ordo_problem_struct));
    ORDO_TRY(check_extras(&p));
    ORDO_TRY(check_kinds(&p));
    ORDO_TRY(check_paging(&p));
    ORDO_TRY(check_sizes(&p));
    ORDO_TRY(check_layout(&p));
    ORDO_TRY(check_extent(&p, "q", p.q_len, p.total_q, p.heads, p.head_dim));
    const ordo_problem keys = ordo_stored_keys(&p);
    ORDO_TRY(check_extent(&keys, "k", keys.kv_len, p.total_kv, p.kv_heads, p.head_dim));
    ORDO_TRY(check_extent(&keys, "v", keys.kv_len, p.total_kv, p.kv_heads, p.v_head_dim));
    ORDO_TRY(check_extent(&p, "o", p.q_len, p.total_q, p.heads, p.v_head_dim));
    ORDO_TRY(check_numbers(&p));
    ORDO_TRY(check_window(&p));
    ORDO_TRY(check_dropout(&p));
    ORDO_TRY(check_shard(&p));
    ORDO_TRY(check_blocks(&p));
    ORDO_TRY(check_paged(&p));
    ORDO_TRY(check_bias(&p));
    *out = p;
    return ORDO_OK;
}

ordo_problem ordo_problem_original(const ordo_problem *resolved)
{
    ordo_problem p = *resolved;
    if (p.kv_len == 0 && p.q_len > 0)
        p.kv_len = ORDO_NO_KEYS;
    if (p.total_kv == 0 && p.total_q > 0)
        p.total_kv = ORDO_NO_KEYS;
    return p;
}

ordo_status ordo_problem_check(const ordo_problem *problem)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_problem resolved;
    return ordo_problem_resolve(problem, &resolved);
}

int ordo_dropout_threshold(const ordo_problem *resolved)
{
    return (int)ordo_keep_of(&resolved->dropout, 0, 0).threshold;
}
