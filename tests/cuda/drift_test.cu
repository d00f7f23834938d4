/* lse over many keys, of which the one with the largest logit, 55, is in the key tile that is
 * visited first: the running maximum stays from then on, and nothing may touch the sums but what is
 * added to them. The bound is the same for every length. Without a device of compute
 * capability 9.0: compiled, and skipped. */
#include "handmade_batch.h"

/* Keys are a multiple of one vector, so that every row of every head has the same logits. */
static float multiple_of(int key, int kv_len, int head_dim)
{
    const float largest = 55.0f / sqrtf((float)head_dim);
    const uint32_t drawn = (uint32_t)key * 2654435761u >> 8;
    const float part = key == kv_len - 1 ? 1.0f : 0.4f + 0.3f * (float)drawn * 0x1p-24f;
    return largest * part;
}

static void check_drift(int head_dim, bool f16, ordo_layout layout, int kv_len)
{
    general_shape z = { head_dim, 2, 1, f16, { 200 }, { kv_len } };
    general_case c(z, layout);
    const std::vector<uint16_t> ones(c.q_count, case_half(1.0f, f16));
    std::vector<uint16_t> keys(c.kv_count);
    std::vector<double> logits((size_t)kv_len);
    double largest = -INFINITY, sum = 0, worst = 0;
    for (int j = 0; j < kv_len; j++) {
        const uint16_t x = case_half(multiple_of(j, kv_len, head_dim), f16);
        std::fill_n(keys.begin() + (size_t)j * head_dim, head_dim, x);
        logits[(size_t)j] = head_dim * case_number(x, f16) * (double)c.pass.scale;
        largest = fmax(largest, logits[(size_t)j]);
    }
    for (const double x : logits)
        sum += exp(x - largest);
    MUST(cudaMemcpy(c.q, ones.data(), ones.size() * 2, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(c.k, keys.data(), keys.size() * 2, cudaMemcpyHostToDevice));
    for (const float lse : c.forward()) {
        const double off = fabs(lse - (largest + log(sum)));
        worst = fmax(worst, off == off ? off : INFINITY); /* not written: NaN */
    }
    verdict(worst < 2e-5, "%s head size %d, %s, %d keys: lse off by %.1e", f16 ? "f16" : "bf16",
            head_dim, layout == ORDO_DENSE ? "dense" : "packed", kv_len, worst);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    for (const int kv_len : { 1000, 16384, 65536 })
        for (const int head_dim : { 64, 128, 256 }) {
            check_drift(head_dim, false, ORDO_DENSE, kv_len);
            check_drift(head_dim, true, ORDO_DENSE, kv_len);
            check_drift(head_dim, false, ORDO_PACKED, kv_len);
        }
    return report_all();
}
