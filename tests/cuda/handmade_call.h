/* handmade_call.h: passes of a plan on the device, by the kernels linked into the test.
 *
 *   two_sided t;                          any problem, its lengths, slopes and dropout
 *   draw_tensors(d, t);
 *   make_plan(t, ORDO_ORDER_DEFAULT);
 *   ordo_call call = device_call(t, false);
 *   make_pass(t, ORDO_FORWARD, call)      for one of the functions that launch a pass */
#ifndef TESTS_CUDA_HANDMADE_CALL_H
#define TESTS_CUDA_HANDMADE_CALL_H

#include "base/half.h"
#include "base/philox.h"
#include "handmade_pass.h"
extern "C" {
#include "api/call.h"
#include "api/cuda_pass.h"
#include "plan/plan.h"
}

/* Ends the program if the call is refused or fails. */
static inline void run_call(const ordo_plan *plan, ordo_pass which, const ordo_call &call)
{
    ordo_call checked;
    ordo_block_mask mask;
    ordo_cuda_pass pass;
    must_ordo(ordo_call_check(&plan->problem, which, false, ordo_plan_workspace(plan), &call,
                              &checked, &mask),
              "call");
    must_ordo(ordo_cuda_pass_make(plan, which, &checked, &pass), "pass");
    must_ordo(which == ORDO_FORWARD ? ordo_cuda_launch_forward(&pass, NULL)
                                    : ordo_cuda_launch_backward(&pass),
              ordo_cuda_why());
}

/* ---- a problem on both sides ---- */

/* Numbers in order of asking. */
struct dice {
    uint32_t seed, at;
    uint32_t next(void)
    {
        const ordo_philox_words counter = { { at++, 0, 0, 0 } };
        return ordo_philox(counter, seed, 77, 10).w[0];
    }
    int to(int most) /* 0 .. most */
    {
        return (int)(next() % (uint32_t)(most + 1));
    }
    float about_one(void)
    {
        return (float)(int32_t)next() * 0x1p-31f * 2.0f;
    }
};

/* A problem with its tensors on the host, and what of them is on the device. */
struct two_sided : device_memory {
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_plan *plan = NULL;
    std::vector<uint16_t> q, k, v, o, dout, dq, dk, dv;
    std::vector<float> lse, dlse, slopes;
    std::vector<int32_t> cu_q, cu_kv, q_lens, kv_lens;
    std::vector<int64_t> ids;
    std::vector<uint32_t> words;
    uint64_t seed = 0, offset = 0;

    template <class T> T *up(const std::vector<T> &x) /* what is empty is not given */
    {
        return x.empty() ? NULL : upload(x);
    }

    ~two_sided()
    {
        ordo_plan_destroy(plan);
    }
};

template <class T> static const T *or_null(const std::vector<T> &x)
{
    return x.empty() ? NULL : x.data();
}

/* A ragged batch of these lengths. */
static inline void set_lengths(two_sided &t, const std::vector<int32_t> &q,
                               const std::vector<int32_t> &kv)
{
    if (t.p.layout == ORDO_PADDED) {
        t.q_lens = q, t.kv_lens = kv;
        return;
    }
    t.cu_q = t.cu_kv = { 0 };
    for (size_t b = 0; b < q.size(); b++) {
        t.cu_q.push_back(t.cu_q[b] + q[b]);
        t.cu_kv.push_back(t.cu_kv[b] + kv[b]);
    }
    t.p.total_q = t.cu_q.back(), t.p.total_kv = t.cu_kv.back();
}

/* Keep bits that the host makes. */
static inline void give_bits(two_sided &t)
{
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    ordo_dropout_info info;
    call.seed = t.seed, call.offset = t.offset;
    call.cu_q = or_null(t.cu_q), call.cu_kv = or_null(t.cu_kv);
    call.sequence_ids = or_null(t.ids);
    must_ordo(ordo_dropout_query(&t.p, &call, &info), "bits");
    t.words.resize(info.bytes / 4 + 1);
    must_ordo(ordo_dropout_fill(&t.p, &call, 0, info.blocks, t.words.data(), info.bytes), "bits");
}

static inline void draw(dice &d, std::vector<uint16_t> &x, size_t count, bool f16)
{
    x.resize(count);
    for (uint16_t &e : x) {
        const float value = d.about_one();
        e = f16 ? ordo_f16_from_f32(value) : ordo_bf16_from_f32(value);
    }
}

/* Inputs of a size of about one, and a gradient of lse for one problem in two. */
static inline void draw_tensors(dice &d, two_sided &t)
{
    const ordo_problem &p = t.p;
    const bool packed = p.layout == ORDO_PACKED, f16 = p.dtype == ORDO_F16;
    const size_t rows = packed ? p.total_q : p.batch * p.q_len;
    const size_t keys = packed ? p.total_kv : p.batch * p.kv_len;
    const size_t q = rows * p.heads * p.head_dim, k = keys * p.kv_heads * p.head_dim;
    draw(d, t.q, q, f16);
    draw(d, t.dout, q, f16);
    draw(d, t.k, k, f16);
    draw(d, t.v, k, f16);
    t.o.assign(q, 0xffff);
    t.dq.assign(q, 0xffff);
    t.dk.assign(k, 0xffff);
    t.dv.assign(k, 0xffff);
    t.lse.assign(rows * p.heads, NAN);
    if (d.to(1))
        for (size_t x = 0; x < t.lse.size(); x++)
            t.dlse.push_back(d.about_one());
}

static inline void make_plan(two_sided &t, ordo_order order)
{
    ordo_machine *machine = NULL;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.order = order;
    must_ordo(ordo_machine_create(&machine, "h200"), "machine");
    must_ordo(ordo_plan_create(&t.plan, &t.p, machine, &options), "plan");
    ordo_machine_destroy(machine);
}

static inline ordo_call host_call(two_sided &t)
{
    ordo_call c = ORDO_CALL_INIT;
    c.q.data = t.q.data(), c.k.data = t.k.data(), c.v.data = t.v.data(), c.o.data = t.o.data();
    c.dout.data = t.dout.data(), c.dq.data = t.dq.data(), c.dk.data = t.dk.data();
    c.dv.data = t.dv.data();
    c.lse = t.lse.data(), c.dlse = or_null(t.dlse);
    c.cu_q = or_null(t.cu_q), c.cu_kv = or_null(t.cu_kv);
    c.q_lens = or_null(t.q_lens), c.kv_lens = or_null(t.kv_lens);
    c.sequence_ids = or_null(t.ids), c.keep_bits = or_null(t.words);
    c.slopes = or_null(t.slopes), c.slopes_batch_stride = t.slopes.empty() ? 0 : t.p.heads;
    c.seed = t.seed, c.offset = t.offset;
    return c;
}

/* Inputs go up, with `results` also o and lse; other outputs as NaN. */
static inline ordo_call device_call(two_sided &t, bool results)
{
    ordo_call c = host_call(t);
    c.q.data = t.up(t.q), c.k.data = t.up(t.k), c.v.data = t.up(t.v), c.dout.data = t.up(t.dout);
    c.o.data = t.up(results ? t.o : std::vector<uint16_t>(t.o.size(), 0xffff));
    c.lse = t.up(results ? t.lse : std::vector<float>(t.lse.size(), NAN));
    c.dq.data = t.up(std::vector<uint16_t>(t.dq.size(), 0xffff));
    c.dk.data = t.up(std::vector<uint16_t>(t.dk.size(), 0xffff));
    c.dv.data = t.up(std::vector<uint16_t>(t.dv.size(), 0xffff));
    c.dlse = t.up(t.dlse);
    c.cu_q = t.up(t.cu_q), c.cu_kv = t.up(t.cu_kv);
    c.q_lens = t.up(t.q_lens), c.kv_lens = t.up(t.kv_lens);
    c.sequence_ids = t.up(t.ids), c.keep_bits = t.up(t.words), c.slopes = t.up(t.slopes);
    std::vector<uint64_t> behind = { t.seed, t.offset };
    c.seed_ptr = t.up(behind);
    c.offset_ptr = c.seed_ptr + 1;
    c.seed = c.offset = 0; /* not read */
    c.workspace_bytes = ordo_plan_workspace(t.plan);
    c.workspace = t.up(std::vector<uint8_t>(c.workspace_bytes, 0xff));
    return c;
}

static inline ordo_cuda_pass make_pass(const two_sided &t, ordo_pass which, const ordo_call &call)
{
    ordo_cuda_pass pass;
    must_ordo(ordo_cuda_pass_make(t.plan, which, &call, &pass), "pass");
    return pass;
}

#endif
