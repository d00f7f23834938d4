/* bounds.c: lower bounds on the words that any algorithm moves.
 *
 * The bounds assume standard products: every multiplication of the inner-product form takes place,
 * in any order and any number of times. lab/docs/io.md proves them. A run is cut into phases of R
 * words read, so that a phase has at most T = M + R words at its disposal. With Z live scores,
 * D = dk + dv and d = min(dk, dv):
 *
 *   trivial   every live input once, every output once
 *   rows      counts scores (forward: products of p and v) as they are made first; those of which
 *             nothing was in fast memory need whole rows of their operands
 *   updates   counts the products that are added to results; a phase makes at most
 *             max((T/3)^1.5, T^2 / (16 d)) of them forward
 *   products  counts those of scores, too: at most kappa T^1.5, kappa = 1/(3 sqrt 3), backward 2/9,
 *             less what scores that never leave fast memory need
 *
 * Each is the largest over R from M to 2M. */
#include <math.h>

#include "base/environment.h"
#include "base/status.h"
#include "io/bounds.h"

enum { STEPS = 32 }; /* of R between M and 2M */

/* The sizes of a shape, as doubles. */
typedef struct sizes {
    double n, k, dk, dv, m; /* rows, columns, widths, fast memory */
    double live;            /* scores */
    double least;           /* of the widths */
    double ends;            /* words outside of phases: of the gradient */
    bool forward, gradient;
} sizes;

static sizes sizes_of(const ordo_io_shape *s)
{
    const double n = (double)s->rows, dk = (double)s->dk, dv = (double)s->dv;
    const bool gradient = s->pass == ORDO_IO_GRADIENT;
    return (sizes) { .n = n,
                     .k = (double)s->cols,
                     .dk = dk,
                     .dv = dv,
                     .m = (double)s->cache,
                     .live = (double)ordo_io_live_scores(s),
                     .least = dk < dv || s->pass == ORDO_IO_FORWARD ? dk : dv,
                     .ends = gradient ? 3 * dk * dk - 2 * n * dk : 0,
                     .forward = s->pass == ORDO_IO_FORWARD,
                     .gradient = gradient };
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

/* ---- phases ---- */

/* Words of a run in which phases make at most `most` of `count`; 0 if one phase may do it all. */
static double phases(const sizes *z, double r, double count, double most)
{
    return count > most ? r * count / most + z->m - r + z->ends : 0;
}

static double rows_at(const sizes *z, double r)
{
    const double d = z->dk + z->dv, t = z->m + r;
    const double fresh = z->forward ? t * t / (4 * z->dk * d) : t * t / (4 * d * d);
    return phases(z, r, z->live, t > fresh ? t : fresh);
}

/* The most updates of a phase whose scores are all made in it. Whole rows of both operands bound
 * them by area T^2 if no score stays, and by at most T / (32 area) more if some do. */
static double fresh_updates(const sizes *z, double t)
{
    const double d = z->dk + z->dv, all = t * t / (z->forward || z->gradient ? 16 : 8 * sqrt(3));
    const double area = z->forward && z->dv < z->dk ? z->dv / (4 * d * d) : 1 / (16 * z->dk);
    const double most = all / z->least, sharper = area * t * t + t / (32 * area);
    return (z->forward || z->dk == z->dv) && sharper < most ? sharper : most;
}

static double updates_at(const sizes *z, double r)
{
    const double t = z->m + r, kept = t / 3 * sqrt(t / 3), fresh = fresh_updates(z, t);
    const double per_score = z->forward ? z->dv : z->gradient ? z->dk + z->dv : z->dv + 2 * z->dk;
    return phases(z, r, z->live * per_score, kept > fresh ? kept : fresh);
}

static double products_at(const sizes *z, double r)
{
    const bool backward = !z->forward && !z->gradient;
    const double kappa = backward ? 2.0 / 9 : 1 / (3 * sqrt(3)), charges = z->forward ? 1 : 2;
    const double t = z->m + r, d = z->least, most = r + t * t / (4 * d * d);
    const double none = r / (t * sqrt(t)), all = most / ((z->m + most) * sqrt(z->m + most));
    const double rho = (none < all ? none : all) / kappa; /* of no fresh scores, and of all */
    const double weight =
        backward ? 3 * z->dk + 4 / sqrt(3) * z->dv : (z->forward ? 1 : 2) * (z->dk + z->dv);
    const double words = (rho * weight - charges) * z->live;
    return rho * d >= 1 && words > r ? words + z->m - r + z->ends : 0;
}

/* The largest over R. That of the gradient assumes something where a phase holds a column. */
static ordo_io_bound over_phases(const sizes *z, const char *name,
                                 double (*at)(const sizes *z, double r))
{
    ordo_io_bound best = { name, "more than one phase", 0, false };
    for (int j = 0; j <= STEPS; j++) {
        const double r = z->m * (1 + (double)j / STEPS), words = at(z, r);
        if (words <= best.words)
            continue;
        best = (ordo_io_bound) { name, "always", words, true };
        if (z->gradient && z->m + r >= z->n)
            best.valid = "if each entry of o is computed once";
    }
    return best;
}

ordo_io_bound ordo_io_bound_of(const ordo_io_shape *s, int index)
{
    const sizes z = sizes_of(s);
    const double wide = z.dk > z.dv ? z.dk : z.dv;
    const double weights = z.gradient ? z.n * z.dk * z.dk : 0; /* products with X and Y */
    switch (index) {
    case 0:
        /* The gradient reads A1, A2, A3, E, X and Y, and writes g. */
        return (ordo_io_bound) { "trivial", "always",
                                 z.gradient ? 4 * z.n * z.dk + 3 * z.dk * z.dk : trivial(s, &z),
                                 true };
    case 1: return over_phases(&z, "rows", rows_at);
    case 2: return over_phases(&z, "updates", updates_at);
    case 3: return over_phases(&z, "products", products_at);
    case 4:
        return (ordo_io_bound) { "asymptotic-large", "order of growth, M >= d^2; no constant",
                                 (z.live * wide * wide + weights * z.dk) / z.m, false };
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
