/* bounds.c: lower bounds on the words that any algorithm moves.
 *
 * The bounds assume classical products: every multiplication of the inner-product form takes place.
 * lab/docs/io.md sketches proofs of the constants; the orders of growth are theorems of Saha and
 * Ye (forward) and Li et al. (backward). With Z live scores, D = dk + dv:
 *
 *   trivial          every live input once, every output once
 *   large-cache      counts scores, whose operands must all be in fast memory:
 *                    d(I + J) <= 2M bounds a phase; unmasked only
 *   small-cache      counts multiplications; a phase of M + 2M words does at most
 *                    kappa (3M)^(3/2), kappa = 1/(3 sqrt 3) forward, 2/9 backward; M <= d^2/2
 *   multiplications  the same with the constant that holds for every M, 1/(2 sqrt 2)
 *
 * The terms of order Z are for writing each score once, so that it counts as a product's result. */
#include <math.h>

#include "base/environment.h"
#include "base/status.h"
#include "io/bounds.h"

/* The sizes of a shape, as doubles. */
typedef struct sizes {
    double n, k, dk, dv, m; /* rows, columns, widths, fast memory */
    double live, products;  /* scores; multiplications */
    bool forward, full;
} sizes;

static sizes sizes_of(const ordo_io_shape *s)
{
    const double live = (double)ordo_io_live_scores(s);
    const double dk = (double)s->dk, dv = (double)s->dv;
    const bool forward = s->pass == ORDO_IO_FORWARD;
    return (sizes) { .n = (double)s->rows,
                     .k = (double)s->cols,
                     .dk = dk,
                     .dv = dv,
                     .m = (double)s->cache,
                     .live = live,
                     .products = live * (forward ? dk + dv : 3 * dk + 2 * dv),
                     .forward = forward,
                     .full = s->full };
}

static double trivial(const ordo_io_shape *s, const sizes *z)
{
    const ordo_io_strips cols = ordo_io_col_strips(s, 0, s->rows, 1);
    const ordo_io_strips rows = ordo_io_row_strips(s, 0, s->rows, 1);
    const double seen = (double)cols.live, seeing = (double)rows.live;
    if (z->forward)
        return seeing * z->dk + seen * (z->dk + z->dv) + z->n * z->dv;
    return (seeing + seen) * (z->dk + z->dv) + z->n * z->dk + z->k * (z->dk + z->dv);
}

static double large_cache(const sizes *z)
{
    const double d = z->dk + z->dv;
    if (z->forward)
        return z->n * z->k * z->dv / (z->m * z->dv / (z->dk * d) + 2 * (z->dv + 1)) - z->m;
    return z->n * z->k * d * d / (z->m + 2 * d * d) - z->m;
}

/* Accumulators start at zero and are not read first. */
static double outputs(const sizes *z)
{
    return z->forward ? z->n * z->dv : (z->n + z->k) * z->dk + z->k * z->dv;
}

static double small_cache(const sizes *z)
{
    const double factor = z->forward ? 2 : sqrt(3), scores = z->forward ? 2 : 4;
    return factor * z->products / sqrt(z->m) - scores * z->live - outputs(z) - 2 * z->m;
}

static double multiplications(const sizes *z)
{
    return z->products / (2 * sqrt(2) * sqrt(z->m)) - (z->forward ? 2 : 4) * z->live - z->m;
}

ordo_io_bound ordo_io_bound_of(const ordo_io_shape *s, int index)
{
    const sizes z = sizes_of(s);
    const double d = ordo_io_least(s->dk, s->dv) == s->dk ? z.dk : z.dv;
    const double wide = z.dk > z.dv ? z.dk : z.dv;
    const bool gradient = s->pass == ORDO_IO_GRADIENT;
    const double weights = gradient ? z.n * d * d : 0; /* products with X and Y */
    switch (index) {
    case 0:
        /* The gradient reads A1, A2, A3, E, X and Y, and writes g. */
        return (ordo_io_bound) { "trivial", "always",
                                 gradient ? 4 * z.n * d + 3 * d * d : trivial(s, &z), true };
    case 1:
        return (ordo_io_bound) { "large-cache", "unmasked; of the training passes", large_cache(&z),
                                 z.full && !gradient };
    case 2:
        return (ordo_io_bound) { "small-cache", "M <= d^2/2; of the training passes",
                                 small_cache(&z), z.m <= d * d / 2 && !gradient };
    case 3:
        return (ordo_io_bound) { "multiplications", "always; of the training passes",
                                 multiplications(&z), !gradient };
    case 4:
        return (ordo_io_bound) { "asymptotic-large", "order of growth, M >= d^2; no constant",
                                 (z.live * wide * wide + weights * d) / z.m, false };
    default:
        return (ordo_io_bound) { "asymptotic-small", "order of growth, M <= d^2; no constant",
                                 (z.live * wide + weights) / sqrt(z.m), false };
    }
}

ordo_io_bound ordo_io_best_bound(const ordo_io_shape *shape)
{
    ordo_io_bound best = ordo_io_bound_of(shape, 0);
    for (int i = 1; i < ORDO_IO_BOUND_COUNT; i++) {
        const ordo_io_bound b = ordo_io_bound_of(shape, i);
        if (b.holds && b.words > best.words)
            best = b;
    }
    return best;
}

double ordo_io_sparse_form(const ordo_io_sparse *sparse)
{
    ORDO_DEFAULT_ENVIRONMENT;
    if (!sparse) {
        ordo_set_error("sparse: expected a pointer, got NULL");
        return NAN;
    }
    const double in = sparse->z_in, m = sparse->m;
    const double large = (in * in + in * sparse->z_x) / m;
    const double small =
        (in * sqrt(sparse->z_qk) + sqrt(in * sparse->z_x * sparse->z_ax)) / sqrt(m);
    const volatile double form = large < small ? large : small; /* computed before returning */
    return form;
}
