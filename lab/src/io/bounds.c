/* bounds.c: lower bounds on the words that any algorithm moves.
 *
 * The bounds assume standard products: every multiplication of the inner-product form takes place,
 * in any order and any number of times. They are proven below. A run is divided into periods of R
 * words read, so that a period has at most T = M + R words at its disposal. With Z live scores,
 * D = dk + dv and d = min(dk, dv):
 *
 *   trivial   every live input once, every output once
 *   rows      counts scores (forward: products of p and v) as they are made first; those of which
 *             nothing was in fast memory need whole rows of their operands
 *   updates   counts the products that are added to results; a period makes at most
 *             max((T/3)^1.5, T^2 / (16 d)) of them forward
 *   products  counts those of scores, too: at most kappa T^1.5, kappa = 1/(3 sqrt 3), backward 2/9,
 *             less what scores that never leave fast memory need
 *
 * Each is the largest over R from M to 2M. */

/* Proofs of the bounds.
 *
 * What is counted. Every word in fast memory belongs to one quantity: an entry of an input, a
 * score s_ij (partial sums, the complete sum, p_ij), backward also a score t_ij (dp_ij and ds_ij,
 * partial sums included), or an entry of a result. Row statistics (maxima, sums, lse, δ) are free.
 * Multiplication is standard: s_ij is the sum of its d_k products q_ic·k_jc, in any order and with
 * any partial sums, each made from two words in fast memory, and likewise t_ij from dO and V, o
 * and dV from p, dQ and dK from ds. A score may be computed any number of times, but p_ij exists
 * only after all products of s_ij, and ds_ij after those of s_ij and t_ij. An update is a product
 * that is added to a result. Counted are the updates in the values that are finally written, and
 * of each score the products of its first completion.
 *
 * Periods. Choose R ≥ M and divide the run: a period ends as soon as ℓ, the words read in it plus
 * the quantities that are open, reaches R, the first one at M + R. A quantity is carried if one of
 * its words was in fast memory when the period began, or is read in it. A score or result entry
 * that is not carried is open if a word with products that are counted and were made in this period
 * is in fast memory, or was written in the period. A step raises ℓ by one at most. Let T = M + R.
 *
 * 1. At most T quantities. The entries of inputs that a period uses, and the scores and result
 *    entries that are carried or open, are T in number at most: each has a word that was there at
 *    the beginning (M at most) or is one of ℓ; the first period begins with an empty memory.
 *
 * 2. Open quantities are paid for by writes. Let a quantity be open in k periods. It is not carried
 *    in the second, so that no word of it was in fast memory when that period began, although what
 *    was counted in the first is still needed: a word was written in between, and so on. That
 *    makes k − 1 writes, and k for a result, whose last value is written, too. Hence the sum of ℓ
 *    over all periods is at most the words moved plus the number of scores that are ever open.
 *
 * 3. A score that leaves no trace needs whole rows. A score with counted products or updates in a
 *    period that is neither carried nor open is fresh: all its products were made in the period, so
 *    that its row of Q and its row of K were used whole. With q and k words of Q and K there are
 *    at most u = qk/d_k² such scores, and T²/4d² at most; those of t have at most the words of dO
 *    times those of V over d_v².
 *
 * 4. Loomis and Whitney. With c carried or open scores a period makes at most √((c + u)·v·o)
 *    updates of o, where v and o are words of V and entries of O, and likewise for every other
 *    product. Products of scores are in such a box, too: those counted of the c scores, plus
 *    d_k·u, are at most √(q·k·(c + u)).
 *
 * 5. Sum. If a period has at most F of E > F counted things, there are h ≥ E/F periods, of which
 * the first has ℓ = M + R and the last may have 0. So the sum of ℓ is at least (h − 1)R + M ≥ R·E/F
 *    + M − R.
 *
 * rows. Count scores, by the first ds (forward: the products of p and v as they are made first,
 * d_v per score). Nothing is open, as only words read and words present are used. Backward, of y
 * carried scores and I × J others, D(I + J) ≤ T − y: at most y + (T − y)²/4D², which is convex in
 * y, so that F = max{T, T²/4D²} and E = Z. Forward, I rows of Q, v words of V and the rows of K
 * that belong to them fit: d_k·I + v(1 + d_k/d_v) ≤ T − y, and I·v ≤ (T − y)²d_v/(4 d_k D). So F =
 * d_v·max{T, T²/(4 d_k D)} and E = Z·d_v.
 *
 * updates. Only updates are counted, so that no score is open, and each one that is updated is
 * carried or fresh. Forward E = Z·d_v and F is the largest √((c + qk/d_k²)·v·o) with c + q + k + v
 * + o ≤ T. For a given c + q + k, the first factor is convex with q = k, so that the best is c
 * alone, (T/3)^1.5, or q = k alone, T²/16d_k. If d_v < d_k, an update that needs a fresh score
 * also obeys v ≤ k·d_v/d_k and o ≤ q·d_v/d_k, because only whole rows count. There are P/d_k of
 * them at most, P the lesser of q·v and k·o; from P² ≤ (q·o)(k·v) and q·o ≤ d_k·d_v·(q + o)²/D²
 * follows P/d_k ≤ A·T², A = d_v/4D². With y carried scores the other updates are at most √y·(T −
 * y)/2, and A(T − y)² + √y(T − y)/2 ≤ A·T² + T/32A: for √y ≤ 1/2A the excess is at most T(√y/2 −
 * 2Ay), above it T(√y/2 − Ay) ≤ 0. So F = max{(T/3)^1.5, the lesser of T²/16d_k and A·T² + T/32A}.
 *
 * Backward E = Z(d_v + 2d_k). Let a = q + k, Y the entries of dQ, dK and dV together, g the words
 * of dO, v those of V, c and e the carried s and t. By Cauchy and Schwarz F² ≤ Y·G, G = (c +
 * a²/4d²)·g + (e + g·v/d²)·a, which is linear in (c, e, v): one of them alone is best. With v, a(v
 * + a/4) ≤ (a + v)²/3 and Y·g·(a + v)² ≤ T⁴/64 give T²/(8√3·d). With c, G is convex in a for a
 * given c + a, and with e linear in (e, g): both give (T/3)^1.5 or T²/16d. So F = max{(T/3)^1.5,
 * T²/(8√3·d)}.
 *
 * Where d_k = d_v, F ≤ T²/16d + dT/2 as well. Let w, h, g be entries of dV, dK, dQ now, o words of
 * dO, α = min(q, o), β = min(k, v). An update of a pair (i, j) of which neither score is carried
 * takes part at most once per whole row or column of its words: there are P/d, αh/d and βg/d of
 * the three at most, with P the lesser of q·w and k·o, h ≤ β and g ≤ α. Claim: 4(P + αh + βg) ≤ (q
 * + o + g)(k + v + w + h). We may assume q·w = k·o = P: the larger product is made smaller by its
 * words, which lowers the right side only; if that ends with o = α and k = β, then w is raised
 * instead, which lowers the right side less the left one, as q + o + g ≤ 3q < 4q. Now q·w + k·o =
 * 2P, and q·k + o·w ≥ 2P since their product is P². Further (q + o)h ≥ 2αh and g(k + v) ≥ 2βg.
 * What remains is v(q + o) + g(w + h) ≥ 2αh + 2βg. If q ≤ o, then w ≥ k ≥ h, and the left side is
 * at least 2αβ + 2gh, which suffices as (α − g)(β − h) ≥ 0. If q = (1 + ε)α > o, then w ≥ β/(1 +
 * ε), and the left side is at least (2 + ε)αβ + gβ/(1 + ε) + gh ≥ 2αβ + gβ + gh, which suffices as
 * αβ + gh ≥ αh + βg and αβ ≥ αh. ∎ The right side of the claim is at most (T − y)²/4, and pairs
 * with a carried score, y at most, add √y(T − y)/2, as above with A = 1/16d.
 *
 * products. Let S be the words of a period, scores included. Forward √(qkc) + √(cvo) ≤ √(c(q + o)(k
 * + v)) ≤ κS^1.5 with κ = 1/(3√3). Backward, with weights w = 2/√3 for products of dO, √(qkc) +
 * w√(g·v·e) + w√(c·g·dv) + √(e·k·dq) + √(e·q·dk) ≤ κS^1.5 with κ = 2/9: let S = 1, a = q + k and W
 * = v + dq + dk + dv. The sum is at most f = (a/2)√c + √(W(4/3·g(c + e) + a·e)). For given c, e, W
 * and b = a + g it is concave in g. If g = 0 is best, f² ≤ (c + W)(b²/4 + b·e) ≤ (c + W)(b + e)²/3
 * ≤ 4/81. If g = b is best, f² ≤ 4/3·W(c + e)b ≤ 4/81. Otherwise, with r = (4c + e)/3, f =
 * (b√c/2)(1 + e/r) + Wr/(2√c), which is linear in b for a given b + W: it is largest where the
 * best g reaches 0 or b, which are the cases above. ∎
 *
 * Let φ(y) = y/(M + y)^1.5 and ρ = min{φ(R), φ(R + T²/4d²)}/κ; as φ rises to y = 2M and falls from
 * there, ρ ≤ φ(R + u)/κ for every number u of fresh scores. Let ρd ≥ 1. Count updates and products
 * of scores that are carried or open with weight 1 (backward w for products of dO), those of fresh
 * scores with 1/(ρd_k) less (of t, 1/(ρd_v) less). By 4. a period counts at most κ(T + u)^1.5 − u/ρ
 * ≤ R/ρ. Of the Z scores (backward 2Z, s and t) let Z_f be those that are first completed while
 * fresh; they are never open. Let ω = d_k + d_v, backward 3d_k + (4/√3)d_v. The total count is E =
 * ωZ − Z_f/ρ, and by 5. and 2. the words are at least ρE + M − R − (Z − Z_f), backward 2Z instead
 * of Z. So words ≥ ρωZ − χZ + M − R with χ = 1 forward and 2 backward, if ρωZ − χZ > R.
 *
 * Gradient. The products are A1·X, A3·Y = h, the scores, o = f·h, c·hᵀ with c = o − E, p·A2 and
 * A1ᵀ·(p·A2), in this order; each sum is complete before the next product uses it, and A1, A2 and
 * A3 are different inputs. A row of A1·X in use has as many words of itself or of A1, so that
 * projections, which may be recomputed, count as Q and V do. Entries of o, of p·A2 and of c are no
 * results; each may be open once without being written, 3nd in all: those of o and of p·A2 are
 * open where they have counted products and are not carried, those of c in the period that
 * completes the entry of o. (Assumption: that happens once. Inside one period it needs n words of a
 * column of h, so that nothing is assumed if M + R < n; a recomputation over several periods is
 * carried.) Reads of E, X and Y and writes of g are not in ℓ. So all bounds have the ends − 2nd +
 * 3d². As √(qkc) + √(cvo) + √(o'·v·e) + √(e·k·g) ≤ √((c + e)(k + v)(q + o + o' + g)), κ = 1/(3√3),
 * ω = 4d and χ = 2. Updates are those of o and p·A2, E = 2n²d, F = max{(T/3)^1.5, T²/16d}: under
 * each root of √((c + qk/d²)vo) + √((e + o'v/d²)kg) the sum is linear in (c, q) and in (e, o'), so
 * that one of each pair is 0, and each of the four cases is at most one of the two.
 *
 * What remains loose. A score that is neither written nor fresh is charged once (−Z, −2Z).
 * Backward 4 + 3√3 allows that a period uses Q, K and ds three times at once, and no algorithm is
 * known that does. For large M words read in a period count as if they were present at the same
 * time, which is why 12 stands against 14.
 *
 * The method is that of Hong and Kung (1981), Irony, Toledo and Tiskin (2004) and Smith and others
 * (arXiv 1702.02017). */
#include <math.h>

#include "base/environment.h"
#include "base/status.h"
#include "io/bounds.h"

enum { STEPS = 32 }; /* steps of R from M to 2M */

/* The sizes of a shape, as doubles. */
typedef struct sizes {
    double n, k, dk, dv, m; /* rows, columns, widths, fast memory */
    double live;            /* scores */
    double least;           /* least of the widths */
    double ends;            /* words outside of periods: of the gradient */
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

/* ---- periods ---- */

/* Words of a run in which periods make at most `most` of `count`; 0 if one period may do it all. */
static double periods(const sizes *z, double r, double count, double most)
{
    return count > most ? r * count / most + z->m - r + z->ends : 0;
}

static double rows_at(const sizes *z, double r)
{
    const double d = z->dk + z->dv, t = z->m + r;
    const double fresh = z->forward ? t * t / (4 * z->dk * d) : t * t / (4 * d * d);
    return periods(z, r, z->live, t > fresh ? t : fresh);
}

/* The most updates of a period whose scores are all made in it. Whole rows of both operands bound
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
    return periods(z, r, z->live * per_score, kept > fresh ? kept : fresh);
}

static double products_at(const sizes *z, double r)
{
    const bool backward = !z->forward && !z->gradient;
    const double kappa = backward ? 2.0 / 9 : 1 / (3 * sqrt(3)), charges = z->forward ? 1 : 2;
    const double t = z->m + r, d = z->least, most = r + t * t / (4 * d * d);
    const double none = r / (t * sqrt(t)), all = most / ((z->m + most) * sqrt(z->m + most));
    const double rho = (none < all ? none : all) / kappa; /* with no fresh scores, and with all */
    const double weight =
        backward ? 3 * z->dk + 4 / sqrt(3) * z->dv : (z->forward ? 1 : 2) * (z->dk + z->dv);
    const double words = (rho * weight - charges) * z->live;
    return rho * d >= 1 && words > r ? words + z->m - r + z->ends : 0;
}

/* The largest over R. That of the gradient assumes something where a period holds a column. */
static ordo_io_bound over_periods(const sizes *z, const char *name,
                                  double (*at)(const sizes *z, double r))
{
    ordo_io_bound best = { name, "more than one period", 0, false };
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
    case 1: return over_periods(&z, "rows", rows_at);
    case 2: return over_periods(&z, "updates", updates_at);
    case 3: return over_periods(&z, "products", products_at);
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
    if (ordo_check_pointer("sparse", sparse) != ORDO_OK)
        return NAN;
    const double in = sparse->z_in, m = sparse->m;
    const double large = (in * in + in * sparse->z_x) / m;
    const double small =
        (in * sqrt(sparse->z_qk) + sqrt(in * sparse->z_x * sparse->z_ax)) / sqrt(m);
    const volatile double form = large < small ? large : small; /* computed before returning */
    return form;
}
