/* combine.c: merge attention over disjoint sets of keys. */
#include "ref/attention.h"

#include <math.h>

void ordo_ref_combine(int64_t parts, int64_t rows, int64_t dim, const double *o_parts,
                      const double *lse_parts, double *o, double *lse)
{
    for (int64_t i = 0; i < rows; i++) {
        double largest = -INFINITY, sum = 0;
        for (int64_t s = 0; s < parts; s++) {
            const double part = lse_parts[s * rows + i];
            largest = isnan(largest) || largest >= part ? largest : part; /* NaN wins */
        }

        lse[i] = -INFINITY;
        for (int64_t d = 0; d < dim; d++)
            o[i * dim + d] = 0;
        if (largest == -INFINITY)
            continue;

        for (int64_t s = 0; s < parts; s++) {
            const double part = lse_parts[s * rows + i];
            if (part == -INFINITY) /* its o is 0, but need not be trusted */
                continue;
            const double weight = exp(part - largest);
            sum += weight;
            for (int64_t d = 0; d < dim; d++)
                o[i * dim + d] += weight * o_parts[(s * rows + i) * dim + d];
        }
        for (int64_t d = 0; d < dim; d++)
            o[i * dim + d] /= sum;
        lse[i] = largest + log(sum);
    }
}
