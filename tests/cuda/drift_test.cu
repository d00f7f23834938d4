/* lse over many keys, of which the one with the largest logit, 55, is in the key tile that is
 * visited first: the running maximum stays from then on, and nothing may touch the sums but what is
 * added to them. The bound is the same for every length. Without a device of compute
 * capability 9.0: compiled, and skipped. */
#include <algorithm>

#include "handmade_call.h"

/* Keys are a multiple of one vector, so that every row of every head has the same logits. */
static float multiple_of(int key, int kv_len, int head_dim)
{
    const float largest = 55.0f / sqrtf((float)head_dim);
    const uint32_t drawn = (uint32_t)key * 2654435761u >> 8;
    const float part = key == kv_len - 1 ? 1.0f : 0.4f + 0.3f * (float)drawn * 0x1p-24f;
    return largest * part;
}

static void check_drift(int head_dim, ordo_dtype dtype, ordo_layout layout, int kv_len)
{
    enum { ROWS = 200, HEADS = 2 };
    const bool f16 = dtype == ORDO_F16;
    const auto half = [&](float x) { return f16 ? ordo_f16_from_f32(x) : ordo_bf16_from_f32(x); };
    two_sided t;
    t.p.dtype = dtype, t.p.layout = layout;
    t.p.batch = t.p.kv_heads = 1, t.p.heads = HEADS;
    t.p.q_len = ROWS, t.p.kv_len = kv_len, t.p.head_dim = head_dim;
    if (layout == ORDO_PACKED)
        set_lengths(t, { ROWS }, { kv_len });
    t.q.assign((size_t)ROWS * HEADS * head_dim, half(1));
    t.o = t.q;
    t.v.assign((size_t)kv_len * head_dim, half(1));
    t.k = t.v;
    t.lse.assign(ROWS * HEADS, NAN);
    std::vector<double> logits((size_t)kv_len);
    double largest = -INFINITY, sum = 0, worst = 0;
    for (int j = 0; j < kv_len; j++) {
        const uint16_t x = half(multiple_of(j, kv_len, head_dim));
        const float key = f16 ? ordo_f32_from_f16(x) : ordo_f32_from_bf16(x);
        std::fill_n(t.k.begin() + (size_t)j * head_dim, head_dim, x);
        logits[(size_t)j] = head_dim * (double)key * (double)(1.0f / sqrtf((float)head_dim));
        largest = fmax(largest, logits[(size_t)j]);
    }
    for (const double x : logits)
        sum += exp(x - largest);
    make_plan(t, ORDO_ORDER_DEFAULT);
    const ordo_call call = device_call(t, false);
    const ordo_cuda_pass pass = make_pass(t, ORDO_FORWARD, call);
    must_ordo(ordo_cuda_launch_forward(&pass, NULL), ordo_cuda_why());
    for (const float lse : case_download(call.lse, t.lse.size())) {
        const double off = fabs(lse - (largest + log(sum)));
        worst = fmax(worst, off == off ? off : INFINITY); /* not written: NaN */
    }
    verdict(worst < 2e-5, "%s head size %d, %s, %d keys: lse off by %.1e", ordo_dtype_name(dtype),
            head_dim, ordo_layout_name(layout), kv_len, worst);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    for (const int kv_len : { 1000, 16384, 65536 })
        for (const int head_dim : { 64, 128, 256 }) {
            check_drift(head_dim, ORDO_BF16, ORDO_DENSE, kv_len);
            check_drift(head_dim, ORDO_F16, ORDO_DENSE, kv_len);
            check_drift(head_dim, ORDO_BF16, ORDO_PACKED, kv_len);
        }
    return report_all();
}
