/* Dropout on a device: words of the generator against the host's, for every number of bits, grid
 * and way to give the seed. (What the passes do with them: grid_test.)
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "cuda/ops/dropout.h"
#include "handmade_pass.h"

static void check(bool ok, const char *what, const ordo_problem &p)
{
    verdict(ok, "%s: batch %d heads %d %dx%d p %g bits %d rounds %d keying %d row0 %d", what,
            (int)p.batch, (int)p.heads, (int)p.q_len, (int)p.kv_len, p.dropout.p, p.dropout.bits,
            p.dropout.rounds, (int)p.dropout.keying, (int)p.shard.row0);
}

static ordo_dropout dropout_of(double p, ordo_keying keying = ORDO_KEYING_ORDO)
{
    ordo_dropout d = {};
    d.p = p;
    d.keying = keying;
    return d;
}

static ordo_problem shape_of(int batch, int heads, int q_len, int kv_len, ordo_dropout dropout)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.batch = batch;
    p.heads = p.kv_heads = heads;
    p.q_len = q_len;
    p.kv_len = kv_len;
    p.head_dim = 64;
    p.dropout = dropout;
    return p;
}

struct word_buffers {
    enum { WORDS = 1 << 22 };
    uint32_t *device;
    uint64_t *numbers; /* seed and offset on the device */
    std::vector<uint32_t> got, want;

    word_buffers() : got(WORDS), want(WORDS)
    {
        MUST(cudaMalloc(&device, WORDS * 4));
        MUST(cudaMalloc(&numbers, 16));
    }

    ~word_buffers()
    {
        cudaFree(device);
        cudaFree(numbers);
    }

    /* One word more than asked for is looked at, too. */
    bool equal(size_t words)
    {
        MUST(cudaMemcpy(got.data(), device, (words + 1) * 4, cudaMemcpyDeviceToHost));
        return memcmp(got.data(), want.data(), words * 4) == 0 && got[words] == 0xa5a5a5a5;
    }

    void poison(size_t words)
    {
        MUST(cudaMemset(device, 0xa5, (words + 1) * 4));
    }
};

static ordo_cuda_bits launch_of(const ordo_problem &p, const ordo_dropout_call &call,
                                const ordo_dropout_info &info, uint32_t *words)
{
    const int64_t total = p.shard.heads_total ? p.shard.heads_total : p.heads;
    ordo_cuda_bits b = {};
    b.keep = {
        call.seed, call.offset, info.rounds, info.bits, (uint32_t)info.threshold, info.keying
    };
    b.bh = (uint32_t)(p.shard.batch0 * total + p.shard.head0);
    b.bh_step = (uint32_t)total;
    b.sequences = (int32_t)p.batch;
    b.heads = (int32_t)p.heads;
    b.down = (int32_t)(p.q_len + 15) / 16;
    b.across = (int32_t)(p.kv_len + 127) / 128;
    b.row = (uint32_t)p.shard.row0;
    b.block = (uint32_t)(p.shard.col0 / 128);
    b.words = words;
    return b;
}

/* Words of one problem: every way to give the seed, several grids. */
static void check_words(const ordo_problem &p, uint64_t offset, int experiment_rounds,
                        bool all_grids, word_buffers &w)
{
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    ordo_dropout_info info;
    call.seed = 0x0123456789abcdef;
    call.offset = offset;
    call.experiment_rounds = experiment_rounds;
    must_ordo(ordo_dropout_query(&p, &call, &info), "query");
    const size_t words = info.bytes / 4;
    if (words >= word_buffers::WORDS)
        exit(1);
    must_ordo(ordo_dropout_fill(&p, &call, 0, info.blocks, w.want.data(), info.bytes), "host");
    const uint64_t numbers[2] = { call.seed, call.offset };
    MUST(cudaMemcpy(w.numbers, numbers, sizeof numbers, cudaMemcpyHostToDevice));
    const uint32_t grids[][2] = { { 0, 0 }, { 1, 32 }, { 7, 64 }, { 132, 128 } };
    for (int g = 0; g < (all_grids ? 4 : 1); g++)
        for (int pointers = 0; pointers < 4; pointers++) {
            ordo_cuda_bits b = launch_of(p, call, info, w.device);
            b.grid_blocks = grids[g][0];
            b.grid_threads = grids[g][1];
            if (pointers & 1)
                b.seed_ptr = w.numbers, b.keep.seed = 1;
            if (pointers & 2)
                b.offset_ptr = w.numbers + 1, b.keep.offset = 1;
            w.poison(words);
            must_ordo(ordo_cuda_dropout(&b), ordo_cuda_why());
            check(w.equal(words), "words", p);
        }
}

static void check_all_words(word_buffers &w)
{
    const double chances[] = { 0.05, 0.1, 0.15, 0.17, 0.2, 0.25, 0.3, 0.37, 0.5, 0.9 };
    const int shapes[][4] = { { 1, 2, 1, 1 },     { 2, 3, 100, 300 }, { 1, 1, 16, 128 },
                              { 1, 2, 33, 8300 }, { 3, 1, 257, 129 }, { 1, 1, 17, 16500 },
                              { 4, 5, 64, 512 },  { 1, 3, 2000, 100 } };
    const ordo_shard shards[] = { {},
                                  { .batch0 = 9,
                                    .head0 = 5,
                                    .row0 = 48,
                                    .col0 = 384,
                                    .heads_total = 64,
                                    .q_total = 1 << 20,
                                    .kv_total = 1 << 20 } };
    ordo_dropout drop = {};
    for (const double p : chances)
        for (const int rounds : { 7, 10 })
            for (int bits = 1; bits <= 16; bits++) {
                const uint32_t threshold = ordo_keep_threshold(p, bits);
                drop.p = p, drop.rounds = rounds, drop.bits = bits;
                if (threshold > 0 && threshold < 1u << bits) /* else refused: too few bits */
                    check_words(shape_of(2, 2, 40, 200, drop), 7, 0, false, w);
            }
    for (const auto &s : shapes)
        for (const ordo_shard &shard : shards)
            for (const int rounds : { 7, 10 })
                for (const int bits : { 8, 4, 11 })
                    for (const double p : { 0.1, 0.17 }) {
                        drop.p = p, drop.rounds = rounds, drop.bits = bits;
                        ordo_problem problem = shape_of(s[0], s[1], s[2], s[3], drop);
                        problem.shard = shard;
                        check_words(problem, 0xfffffff0u, 0, true, w);
                        if (rounds == 7 && bits == 8) {
                            check_words(problem, 3, 3, true, w);
                            check_words(problem, 3, 5, true, w);
                            problem.dropout = dropout_of(p, ORDO_KEYING_FA2);
                            check_words(problem, 0x1fffffff0, 0, true, w);
                        }
                    }
    drop = {};
    check_words(shape_of(2, 2, 40, 200, drop), 0, 0, true, w); /* keeps all */
}

/* Captured once; each replay draws other bits, because the offset has moved. */
static void check_graph(word_buffers &w)
{
    const ordo_problem p = shape_of(1, 2, 64, 256, dropout_of(0.1));
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    ordo_dropout_info info;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    must_ordo(ordo_dropout_query(&p, &call, &info), "query");
    ordo_cuda_bits b = launch_of(p, call, info, w.device);
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    b.seed_ptr = w.numbers;
    b.offset_ptr = w.numbers + 1;
    b.stream = stream;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    must_ordo(ordo_cuda_dropout(&b), ordo_cuda_why());
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&ready, graph, 0));
    for (uint64_t n = 0; n < 5; n++) {
        const uint64_t numbers[2] = { 11, 100 + n };
        call.seed = numbers[0], call.offset = numbers[1];
        must_ordo(ordo_dropout_fill(&p, &call, 0, info.blocks, w.want.data(), info.bytes), "host");
        w.poison(info.bytes / 4);
        MUST(cudaMemcpy(w.numbers, numbers, sizeof numbers, cudaMemcpyHostToDevice));
        MUST(cudaDeviceSynchronize());
        MUST(cudaGraphLaunch(ready, stream));
        MUST(cudaStreamSynchronize(stream));
        check(w.equal(info.bytes / 4), "a replay with another offset", p);
    }
    MUST(cudaGraphExecDestroy(ready));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaStreamDestroy(stream));
}

int main(void)
{
    if (device_is_missing())
        return 77;
    word_buffers w;
    check_all_words(w);
    check_graph(w);
    return report_all();
}
