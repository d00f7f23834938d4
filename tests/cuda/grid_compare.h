/* grid_compare.h: how far from the oracle the results of a grid_case are, in units of what
 * grid_bounds.h allows. */
#ifndef TESTS_CUDA_GRID_COMPARE_H
#define TESTS_CUDA_GRID_COMPARE_H

#include "grid_bounds.h"

/* Errors in units of what is allowed: more than 1 is a failure. */
typedef struct grid_errors {
    double element[GRID_TENSORS], mean[GRID_TENSORS];
    size_t wrong[GRID_TENSORS];  /* elements */
    grid_place at[GRID_TENSORS]; /* where the largest error is, and its values */
    double got[GRID_TENSORS], exact[GRID_TENSORS];
    double dsink; /* the largest of dsink_parts */
    int64_t dsink_at;
    bool dsink_summed; /* dsink is the sum of dsink_parts that the header describes */
    double dbias;      /* the largest, and where */
    int64_t dbias_at;
} grid_errors;

/* Sums over a tensor. */
typedef struct grid_total {
    double square, expected, f32;
    size_t count;
} grid_total;

static inline double grid_limit(const grid_case *c, int tensor, double exact, const grid_sums *s,
                                size_t i)
{
    const double bound = 1.01 * (double)s->worst[i]; /* summed in f32 */
    if (grid_tensors[tensor].row)
        return bound + GRID_E * fabs(exact);
    const bool f16 = c->problem.dtype == ORDO_F16;
    const double u = f16 ? 0x1p-11 : 0x1p-8, least = f16 ? 0x1p-25 : 0x1p-134;
    return bound + u * (fabs(exact) + bound) + GRID_E * fabs(exact) + least + 1e-37;
}

/* The element with index i, which lies at `at`. */
static inline void grid_compare_element(const grid_case *c, const grid_exact *exact,
                                        const grid_sums *bounds, const grid_place *at, size_t i,
                                        grid_errors *errors, grid_total *total)
{
    const int t = at->tensor;
    const bool f16 = c->problem.dtype == ORDO_F16;
    const double u = f16 ? 0x1p-11 : 0x1p-8, least = f16 ? 0x1p-25 : 0; /* under a large sink */
    const double want = (double)exact->data[t][i];
    const double got = grid_tensors[t].row
                           ? (double)((const float *)(void *)c->data[t])[i]
                           : grid_value(c, ((const uint16_t *)(void *)c->data[t])[i]);
    const double error = got == want ? 0 : fabs(got - want); /* -inf is one */
    double ratio = error / grid_limit(c, t, want, bounds, i);
    ratio = ratio == ratio && error == error ? ratio : INFINITY;
    errors->wrong[t] += ratio > 1;
    if (ratio > errors->element[t]) {
        errors->element[t] = ratio;
        errors->at[t] = *at;
        errors->got[t] = got;
        errors->exact[t] = want;
    }
    total->square += error * error;
    total->expected += ((double)bounds->square[i] + u * u * want * want + least * least) / 3;
    total->f32 += (double)bounds->f32[i] * (double)bounds->f32[i];
    total->count++;
}

static inline void grid_compare_tensor(const grid_case *c, const grid_exact *exact,
                                       const grid_sums *bounds, int t, grid_errors *errors)
{
    const bool keys = grid_tensors[t].keys;
    grid_total total = { 0 };
    for (int64_t b = 0; b < c->problem.batch; b++)
        for (int64_t r = 0; r < grid_space(c, keys, b); r++)
            for (int64_t h = 0; h < grid_heads(c, t); h++)
                for (int64_t d = 0; d < grid_dim(c, t); d++) {
                    const grid_place at = { .tensor = t, b, h, r, d };
                    const size_t i = grid_at(c, t, b, r, h) / grid_width(t) + (size_t)d;
                    grid_compare_element(c, exact, bounds, &at, i, errors, &total);
                }
    if (total.count >= 512 && !grid_tensors[t].row && total.square > 0)
        errors->mean[t] =
            sqrt(total.square) / (1.5 * sqrt(total.expected) + sqrt(total.f32) + 1e-30);
}

static inline void grid_compare_sinks(const grid_case *c, const grid_exact *exact,
                                      const grid_bounds *bounds, grid_errors *errors)
{
    const int64_t heads = c->problem.heads;
    errors->dsink_summed = true;
    for (int64_t h = 0; c->sinks && h < heads; h++) {
        double sum = 0;
        for (int64_t at = h; at < c->problem.batch * heads; at += heads) {
            const double want = (double)exact->dsink_parts[at], got = (double)c->dsink_parts[at];
            const double limit = 1.01 * bounds->dsink_parts[at] + GRID_E * fabs(want) + 1e-37;
            const double ratio = fabs(got - want) / limit;
            sum += got;
            if (!(ratio <= errors->dsink)) {
                errors->dsink = ratio == ratio ? ratio : INFINITY;
                errors->dsink_at = at;
            }
        }
        errors->dsink_summed = errors->dsink_summed && c->dsink[h] == ordo_f32_from_f64(sum);
    }
}

static inline void grid_compare_bias(const grid_case *c, const grid_exact *exact,
                                     const grid_bounds *bounds, grid_errors *errors)
{
    for (int64_t x = 0; x < ordo_bias_count(&c->problem); x++) {
        const double want = (double)exact->dbias[x], got = (double)c->dbias[x];
        const double limit = 1.01 * bounds->dbias[x] + GRID_E * fabs(want) + 1e-37;
        const double ratio = fabs(got - want) / limit;
        if (!(ratio <= errors->dbias)) {
            errors->dbias = ratio == ratio ? ratio : INFINITY;
            errors->dbias_at = x;
        }
    }
}

static inline void grid_compare(const grid_case *c, grid_errors *errors)
{
    grid_exact exact;
    grid_bounds bounds;
    *errors = (grid_errors) { 0 };
    grid_ask_oracle(c, &exact);
    grid_bound(c, &exact, &bounds);
    for (int t = GRID_OUTPUTS; t < GRID_TENSORS; t++)
        grid_compare_tensor(c, &exact, &bounds.at[t], t, errors);
    grid_compare_sinks(c, &exact, &bounds, errors);
    grid_compare_bias(c, &exact, &bounds, errors);
    grid_bounds_close(&bounds);
    grid_exact_close(&exact);
}

#endif
