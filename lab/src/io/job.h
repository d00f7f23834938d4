/* job.h: a running algorithm (shape, tiles, both memories), and the arithmetic on blocks that the
 * algorithms share. Row and column indices i, j refer to the whole matrix of scores. */
#ifndef IO_JOB_H
#define IO_JOB_H

#include "io/fast.h"
#include "io/shape.h"

typedef struct ordo_io_job {
    const ordo_io_shape *shape;
    ordo_io_tiles tiles;
    ordo_io_fast *fast;
    double scale;
    const uint8_t *keep; /* rows x cols, 1 = kept; NULL = no dropout */
    double keep_scale;
    ordo_io_matrix q, k, v, o, lse, sum;
    ordo_io_matrix dout, delta, dq, dk, dv;
    ordo_io_matrix p, ds;           /* one panel of rows */
    ordo_io_matrix a1, a3, e, x, y; /* tensors of the pass gradient */
    ordo_io_matrix g;
} ordo_io_job;

/* c += a b', a b, a' b. */
void ordo_io_nt(ordo_io_fast *fast, ordo_io_view c, ordo_io_view a, ordo_io_view b);
void ordo_io_nn(ordo_io_fast *fast, ordo_io_view c, ordo_io_view a, ordo_io_view b);
void ordo_io_tn(ordo_io_fast *fast, ordo_io_view c, ordo_io_view a, ordo_io_view b);

/* s += rows i of a times rows j of b, by strips of the inner dimension. */
void ordo_io_strip_product(const ordo_io_job *job, ordo_io_view s, const ordo_io_matrix *a,
                           int64_t i, const ordo_io_matrix *b, int64_t j);

/* The factor of dropout for one score: 0, or the scale of kept elements. */
static inline double ordo_io_kept(const ordo_io_job *job, int64_t i, int64_t j)
{
    return !job->keep ? 1 : job->keep[i * job->shape->cols + j] ? job->keep_scale : 0;
}

/* Turn raw products into logits, -inf where masked. */
void ordo_io_logits(const ordo_io_job *job, ordo_io_view s, int64_t i, int64_t j);

/* Update the running maximum m and sum l of row r with its logits. Return the factor for earlier
 * results of the row. The second function also replaces the logits by exp(s - m) with dropout. */
double ordo_io_online(const ordo_io_job *job, ordo_io_view s, ordo_io_view m, ordo_io_view l,
                      int64_t r);
double ordo_io_online_soften(const ordo_io_job *job, ordo_io_view s, ordo_io_view m, ordo_io_view l,
                             int64_t r, int64_t i, int64_t j);

/* o *= factor for one row. For all rows: o *= alpha; o /= l, or 0 where l is 0; m += log l. */
void ordo_io_scale_row(ordo_io_fast *fast, ordo_io_view o, int64_t r, double factor);
void ordo_io_rescale(ordo_io_fast *fast, ordo_io_view o, ordo_io_view alpha);
void ordo_io_normalise(ordo_io_fast *fast, ordo_io_view o, ordo_io_view l);
void ordo_io_finish_lse(ordo_io_fast *fast, ordo_io_view m, ordo_io_view l);

/* Turn raw products into probabilities, 0 where masked. */
void ordo_io_probabilities(const ordo_io_job *job, ordo_io_view s, ordo_io_view lse, int64_t i,
                           int64_t j);

/* Replace dp, the raw products of dout and v, by ds = scale p (keep dp - delta). */
void ordo_io_score_gradient(const ordo_io_job *job, ordo_io_view dp, ordo_io_view p,
                            ordo_io_view delta, int64_t i, int64_t j);

/* dv += (p keep)' dout. */
void ordo_io_value_gradient(const ordo_io_job *job, ordo_io_view dv, ordo_io_view p,
                            ordo_io_view dout, int64_t i, int64_t j);

/* delta = row sums of dout o, once for the whole backward pass. */
void ordo_io_delta(const ordo_io_job *job);

/* C = A B, or A' B, tile by tile: C is resident, strips of A and B are streamed. */
void ordo_io_gemm(const ordo_io_job *job, const ordo_io_matrix *c, const ordo_io_matrix *a,
                  bool transposed, const ordo_io_matrix *b, int64_t tile_rows, int64_t tile_cols);

/* The algorithms. */
void ordo_io_forward_naive(const ordo_io_job *job);
void ordo_io_forward_flash(const ordo_io_job *job);
void ordo_io_forward_flash1(const ordo_io_job *job);
void ordo_io_forward_mat(const ordo_io_job *job);
void ordo_io_forward_fused(const ordo_io_job *job);
void ordo_io_backward_naive(const ordo_io_job *job);
void ordo_io_backward_flash(const ordo_io_job *job);
void ordo_io_backward_apart(const ordo_io_job *job);
void ordo_io_backward_phase(const ordo_io_job *job);
void ordo_io_backward_fused(const ordo_io_job *job);
void ordo_io_gradient_phase(const ordo_io_job *job);
void ordo_io_gradient_flash(const ordo_io_job *job);

/* Rows top..bottom of `out` = S `operand`, tile by tile with the result resident. S are the stored
 * scores of the panel that begins at row top; with `lse` they are logits: S = exp(scores - lse)
 * with dropout. */
void ordo_io_rows_product(const ordo_io_job *job, const ordo_io_matrix *out,
                          const ordo_io_matrix *scores, const ordo_io_matrix *lse,
                          const ordo_io_matrix *operand, int64_t top, int64_t bottom);

/* The second kernel of APART: dq from p and ds of row blocks. */
void ordo_io_backward_rows(const ordo_io_job *job, int64_t height, int64_t width);

#endif
