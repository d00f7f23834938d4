/* The general backward kernels with random delays before every turn: the bits of the same passes
 * without delays, whatever the layout, the rule, the order of sums and the source of keep bits.
 * Such kernels are made for this test only; repeat_test.cu delays the plain ones. Without a device
 * of compute capability 9.0: compiled, and skipped. */
#include <algorithm>

#include "cuda/sm90/backward/launch.h"
#include "cuda/sm90/backward/rows.h"
#include "cuda/support/sequences.h"
#include "handmade_call.h"

typedef std::vector<int32_t> lengths;

static std::vector<uint16_t> gradients(const two_sided &t, const ordo_call &call)
{
    MUST(cudaDeviceSynchronize());
    std::vector<uint16_t> all = case_download((const uint16_t *)call.dq.data, t.dq.size());
    for (const void *from : { call.dk.data, call.dv.data }) {
        const std::vector<uint16_t> more = case_download((const uint16_t *)from, t.dk.size());
        all.insert(all.end(), more.begin(), more.end());
    }
    return all;
}

static void poison(const two_sided &t, const ordo_call &call)
{
    MUST(cudaMemset(call.dq.data, 0xff, t.dq.size() * 2));
    MUST(cudaMemset(call.dk.data, 0xff, t.dk.size() * 2));
    MUST(cudaMemset(call.dv.data, 0xff, t.dv.size() * 2));
}

static void check(two_sided &t, ordo_order order)
{
    dice d = { 1, 0 };
    draw_tensors(d, t);
    make_plan(t, order);
    const ordo_call call = device_call(t, false);
    const ordo_cuda_pass forward = make_pass(t, ORDO_FORWARD, call);
    const ordo_cuda_pass backward = make_pass(t, ORDO_BACKWARD, call);
    must_ordo(ordo_cuda_launch_forward(&forward, NULL), ordo_cuda_why());
    must_ordo(ordo_cuda_launch_backward(&backward), ordo_cuda_why());
    const std::vector<uint16_t> first = gradients(t, call);
    const ordo_backward_instance delayed = backward_varlen<ORDO_DQ_DELAYED, false>(
        ordo_pass_bucket(&backward), ordo_pass_keep_source(&backward));
    bool same = true;
    for (int n = 0; n < 2; n++) {
        poison(t, call);
        must_ordo(ordo_cuda_clear_backward(&backward), ordo_cuda_why());
        must_ordo(ordo_backward_run(&backward, delayed), ordo_cuda_why());
        same = same && gradients(t, call) == first;
    }
    const ordo_problem &p = t.p;
    verdict(same, "%s dim %d heads %d/%d, %d sequences of %dx%d, %s window %d,%d%s%s%s%s order %s",
            ordo_layout_name(p.layout), (int)p.head_dim, (int)p.heads, (int)p.kv_heads,
            (int)p.batch, (int)p.q_len, (int)p.kv_len, ordo_mask_name(p.mask), (int)p.window.left,
            (int)p.window.right, p.softcap > 0 ? " softcap" : "", p.alibi ? " alibi" : "",
            p.dropout.p > 0 ? " dropout" : "", t.words.empty() ? "" : " given",
            ordo_order_name(order));
}

/* Without dropout, with bits given, with bits made inside. */
static void check_sources(ordo_problem p, const lengths &q, const lengths &kv, ordo_order order)
{
    p.batch = (int64_t)q.size();
    p.q_len = *std::max_element(q.begin(), q.end());
    p.kv_len = *std::max_element(kv.begin(), kv.end());
    for (const ordo_keep_source source : { ORDO_KEEP_NONE, ORDO_KEEP_GIVEN, ORDO_KEEP_MADE }) {
        two_sided t;
        t.p = p;
        t.seed = 0x1234567890abcdef, t.offset = 77;
        if (source == ORDO_KEEP_NONE)
            t.p.dropout.p = 0;
        if (p.layout != ORDO_DENSE)
            set_lengths(t, q, kv);
        for (int64_t x = 0; p.alibi && x < p.batch * p.heads; x++)
            t.slopes.push_back(0.02f * (float)(1 + x % p.heads) + 0.01f * (float)(x / p.heads));
        if (source == ORDO_KEEP_GIVEN)
            give_bits(t);
        check(t, order);
    }
}

static ordo_problem problem_of(int dim, int heads, int kv_heads, ordo_layout layout)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = ORDO_BF16;
    p.layout = layout;
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.head_dim = dim;
    p.dropout.p = 0.15;
    p.shard.heads_total = 3 * heads; /* the model has more heads than this shard */
    p.shard.head0 = heads;
    return p;
}

static void check_dim(int dim)
{
    const lengths q = { 5, 200, 0, 131, 64, 1, 300 }, kv = { 300, 200, 7, 0, 130, 1, 129 };
    ordo_problem p = problem_of(dim, 4, 2, ORDO_PACKED);
    check_sources(p, q, kv, ORDO_ORDER_SPT);
    p.mask = ORDO_MASK_CAUSAL;
    p.window = { true, 70, -1 };
    check_sources(p, q, kv, ORDO_ORDER_DESCENDING);
    p.mask = ORDO_MASK_FULL;
    p.window = { true, 70, 20 };
    p.softcap = 1.5;
    check_sources(p, q, kv, ORDO_ORDER_ASCENDING);
    p.layout = ORDO_PADDED;
    p.alibi = true;
    check_sources(p, q, kv, ORDO_ORDER_SPT);
    p = problem_of(dim, 4, 2, ORDO_PADDED);
    p.mask = ORDO_MASK_CAUSAL;
    check_sources(p, q, kv, ORDO_ORDER_SPT_TAIL);
    p = problem_of(dim, 4, 2, ORDO_DENSE);
    p.window = { true, 90, 0 };
    p.dropout.rounds = 10, p.dropout.bits = 11;
    p.shard.row0 = 48, p.shard.col0 = 384, p.shard.q_total = 400, p.shard.kv_total = 803;
    check_sources(p, { 333, 333 }, { 400, 400 }, ORDO_ORDER_SPT);
}

/* More chains than workers, tiles that no side cuts, every order. */
static void check_long(int dim)
{
    ordo_problem p = problem_of(dim, 6, 3, ORDO_PACKED);
    p.window = { true, 400, 0 };
    check_sources(p, { 1500, 700, 2000 }, { 1500, 900, 2000 }, ORDO_ORDER_SPT_TAIL);
    p = problem_of(dim, 4, 4, ORDO_DENSE);
    p.mask = ORDO_MASK_CAUSAL;
    p.alibi = true; /* else the dense kernels would run it, whose statistics lie elsewhere */
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
        check_sources(p, { 1024, 1024 }, { 1024, 1024 }, (ordo_order)order);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    for (const int dim : { 128, 64, 8, 40, 72, 96, 120 })
        check_dim(dim);
    for (const int dim : { 128, 64 })
        check_long(dim);
    return report_all();
}
