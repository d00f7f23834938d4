/* key_side.c: loads carried sums of dK and dV into a chain, and stores its results. */
#include "cpu/key_side.h"

#include <string.h>

/* The sums of (sequence b, column, key head), which are contiguous. */
static float *sums_at(const ordo_cpu_pass *p, float *sums, int dim, int64_t b, int64_t col,
                      int64_t kv_head)
{
    const int64_t row = p->problem->layout == ORDO_PACKED ? p->sequences[b].kv_row + col
                                                          : b * p->problem->kv_len + col;
    return sums + (row * p->problem->kv_heads + kv_head) * dim;
}

/* One of the two sums of a tile. */
typedef struct side {
    const ordo_tensor *tensor;
    float *sums, *panel;
    int dim, ld;
    float factor; /* when it is rounded */
} side;

static side dk_of(const ordo_cpu_pass *p, float *panel)
{
    return (
        side) { &p->call->dk, p->call->dk_sums, panel, p->dim, p->ld, (float)p->problem->scale };
}
static side dv_of(const ordo_cpu_pass *p, float *panel)
{
    return (side) { &p->call->dv, p->call->dv_sums, panel, p->v_dim, p->v_ld, 1 };
}

static void begin(const ordo_cpu_pass *p, const ordo_key_tile *t, side s)
{
    for (int c = t->first; c < t->end; c++) {
        float *panel = s.panel + (ptrdiff_t)c * s.ld;
        memset(panel, 0, (size_t)s.ld * sizeof *panel);
        if (p->call->carry & ORDO_CARRY_IN)
            memcpy(panel, sums_at(p, s.sums, s.dim, t->b, t->col + c, t->kv_head),
                   (size_t)s.dim * sizeof *panel);
    }
}

static void end(const ordo_cpu_pass *p, const ordo_key_tile *t, side s)
{
    const float *panel = s.panel + (ptrdiff_t)t->first * s.ld;
    if (p->call->carry & ORDO_CARRY_OUT) {
        for (int c = t->first; c < t->end; c++, panel += s.ld)
            memcpy(sums_at(p, s.sums, s.dim, t->b, t->col + c, t->kv_head), panel,
                   (size_t)s.dim * sizeof *panel);
        return;
    }
    const ordo_rows to =
        ordo_cpu_rows(p, s.tensor, ORDO_KEYS, s.dim, t->b, t->col + t->first, t->kv_head);
    p->kernels->store(to.data, p->problem->dtype, to.stride, panel, s.ld, t->end - t->first, s.dim,
                      s.factor, NULL);
}

static void clear(const ordo_cpu_pass *p, int64_t b, int64_t kv_head, side s)
{
    const size_t width = p->problem->dtype == ORDO_F32 ? 4 : 2;
    for (int64_t col = p->sequences[b].kv_len; col < p->problem->kv_len; col++) {
        if (p->call->carry == ORDO_CARRY_OUT)
            memset(sums_at(p, s.sums, s.dim, b, col, kv_head), 0, 4 * (size_t)s.dim);
        else if (s.tensor->data)
            memset(ordo_cpu_rows(p, s.tensor, ORDO_KEYS, s.dim, b, col, kv_head).data, 0,
                   width * (size_t)s.dim);
    }
}

void ordo_key_begin(const ordo_cpu_pass *p, const ordo_key_tile *tile)
{
    if (!p->dk_dv)
        return;
    begin(p, tile, dk_of(p, tile->dk));
    begin(p, tile, dv_of(p, tile->dv));
}

void ordo_key_end(const ordo_cpu_pass *p, const ordo_key_tile *tile)
{
    if (!p->dk_dv || tile->first >= tile->end)
        return;
    end(p, tile, dk_of(p, tile->dk));
    end(p, tile, dv_of(p, tile->dv));
}

void ordo_key_clear(const ordo_cpu_pass *p, int64_t b, int64_t kv_head)
{
    clear(p, b, kv_head, dk_of(p, NULL));
    clear(p, b, kv_head, dv_of(p, NULL));
}
