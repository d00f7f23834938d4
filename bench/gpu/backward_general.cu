/* backward_general.cu: what a tile of the backward pass costs under every rule, beside a dense
 * causal pass of the plain instances: tiles that the mask leaves, a second, of one to the other.
 * Head size 256 has no plain instances: all are compared with its dense causal pass.
 *
 * 16384 tokens, 2048 channels. All take turns in one process; the cache is flushed before each;
 * medians. O and lse are any numbers: what is computed has no meaning, and takes as long. */
#include "../../tests/cuda/handmade_batch.h"
#include "timing.cuh"

enum { ROUNDS = 11, TOKENS = 16384 };

struct timed {
    const char *name;
    backward_case *c;
    double tiles;
};

static double live_tiles(const backward_case &c)
{
    double tiles = 0;
    for (int b = 0; b < c.sequences; b++) {
        const ordo_band band =
            ordo_sequence_band(&c.table[b], c.pass.run.band.bq, c.pass.run.band.bk);
        for (int32_t i = 0; i < ordo_band_query_tiles(&band); i++)
            tiles += ordo_span_count(ordo_band_keys(&band, i)) * c.z.heads;
    }
    return tiles;
}

/* Numbers of a quick case are bf16: the same as f16. Their bits taken for f16 would be other
 * numbers, whose P, by an lse that is not theirs, is more than f16 holds: the repair would be
 * timed. */
static __global__ void to_f16(uint16_t *x, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        x[i] = case_half((float)case_number(x[i], false), true);
}

static timed make(const char *name, general_shape z, ordo_layout layout, bool general)
{
    z.quick = true;
    const ordo_order order = z.head_dim > 128 ? ORDO_ORDER_ASCENDING : ORDO_ORDER_SPT_TAIL;
    backward_case *c = new backward_case(z, layout, false, order);
    case_fill<<<1024, 256>>>((bf16 *)c->o, c->q_count, 9, 0.1f);
    if (z.f16)
        for (uint16_t *x : { c->q, c->o, c->dout, c->k, c->v })
            to_f16<<<1024, 256>>>(x, x == c->k || x == c->v ? c->kv_count : c->q_count);
    const std::vector<float> lse(c->lse_count, 8.0f);
    MUST(cudaMemcpy(c->pass.lse, lse.data(), 4 * lse.size(), cudaMemcpyHostToDevice));
    if (general)
        c->pass.dlse = c->upload(std::vector<float>(c->lse_count, 0.0f));
    c->pass.run.issue = ORDO_ISSUE_KEY;
    c->pass.run.section = z.heads;
    return { name, c, live_tiles(*c) };
}

/* Dropout with bits that keep all, or made inside. */
static timed drop(timed x, bool inside)
{
    ordo_cuda_pass &pass = x.c->pass;
    pass.keep = { 1, 2, 7, 8, 230, ORDO_KEYING_ORDO };
    pass.keep_scale = 256.0f / 230.0f;
    pass.heads_total = (uint32_t)x.c->z.heads;
    if (!inside)
        pass.keep_bits = x.c->take<uint32_t>((size_t)x.c->table[x.c->sequences].keep * 64);
    return x;
}

static general_shape causal(int dim, std::vector<int> lens)
{
    general_shape z = {};
    z.head_dim = dim;
    z.heads = z.kv_heads = 2048 / dim;
    z.q_lens = z.kv_lens = lens;
    z.right = 0;
    return z;
}

static void table(int dim)
{
    const std::vector<int> one = { TOKENS },
                           mixed = { 4096, 333, 1024, 2048, 700, 96, 3000, 512, 1500, 3075 };
    const general_shape dense = causal(dim, one);
    general_shape window = dense, f16 = dense, capped = dense, alibi = dense;
    window.left = 1023;
    f16.f16 = true;
    capped.softcap = 30;
    alibi.alibi = true;
    std::vector<timed> all = {
        make("dense, plain", dense, ORDO_DENSE, false),
        make("dense, general", dense, ORDO_DENSE, true),
        make("window 1024", window, ORDO_DENSE, true),
        make("packed, mixed lengths", causal(dim, mixed), ORDO_PACKED, true),
        make("padded, mixed lengths", causal(dim, mixed), ORDO_PADDED, true),
        make("f16", f16, ORDO_DENSE, true),
        make("softcap", capped, ORDO_DENSE, true),
        make("alibi", alibi, ORDO_DENSE, true),
        drop(make("bits given, plain", dense, ORDO_DENSE, false), false),
        drop(make("bits given, general", dense, ORDO_DENSE, true), false),
        drop(make("bits made inside", dense, ORDO_DENSE, true), true),
    };
    std::vector<turn> turns;
    for (const timed &x : all)
        turns.push_back({ [&x] { x.c->backward(); } });
    const std::vector<double> ms = time_in_turns(turns, ROUNDS);
    double first = 0;
    for (size_t i = 0; i < all.size(); i++) {
        const timed &x = all[i];
        const double rate = x.tiles / ms[i];
        const ordo_band &band = x.c->pass.run.band;
        first = first > 0 ? first : rate;
        printf("dim %3d  %-22s %8.3f ms  %6.1f TFLOP/s  %.3f of dense, plain, a tile\n", dim,
               x.name, ms[i], rate * band.bq * band.bk * 10 * dim * 1e-9, rate / first);
        fflush(stdout);
        delete x.c;
    }
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    table(128);
    table(64);
    table(256);
    return 0;
}
