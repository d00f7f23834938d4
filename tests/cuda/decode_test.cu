/* The forward kernel for few queries (sm90/forward/decode.h) writes the bits of the training
 * forward pass: o and lse of the last queries of sequences, with keys and values in shuffled pages
 * whose other bytes are NaN, or in tensors, against the same rows of the pass over all rows.
 * `--time`: also microseconds and bytes per second of long sequences.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include <algorithm>
#include <numeric>
#include <random>

#include "cuda/sm90/forward/decode.h"
#include "handmade_pass.h"

/* What a case draws beside its shape. */
struct decoding {
    std::vector<int32_t> q_lens, kv_lens, starts; /* one for each sequence */
    int page_rows = 0;                            /* 0: no pages */
    int left = -1;                                /* left side of the window; -1: open */
    bool softcap = false, slopes = false, sink = false, starts_given = false;
};

/* ---- keys and values in pages ---- */

struct paged {
    std::vector<int32_t> table; /* (sequence, column / page_rows) */
    int64_t columns, pages;
    bf16 *k, *v;
};

/* Columns start .. kv_len - 1 of each sequence; page numbers of others are far outside. */
static __global__ void scatter(bf16 *to, const bf16 *from, const int32_t *table,
                               const int32_t *starts, const int32_t *ends, int page_rows,
                               int64_t columns, int kv_len, int row_elements)
{
    const int column = blockIdx.x, b = blockIdx.y;
    if (column < starts[b] || column >= ends[b])
        return;
    const int64_t page = table[b * columns + column / page_rows];
    for (int x = threadIdx.x; x < row_elements; x += blockDim.x)
        to[(page * page_rows + column % page_rows) * row_elements + x] =
            from[((int64_t)b * kv_len + column) * row_elements + x];
}

static paged into_pages(device_case &c, const decoding &d, std::mt19937 &random)
{
    paged p;
    const int batch = c.z.batch, elements = c.z.kv_heads * c.z.head_dim;
    p.columns = (c.z.kv_len + d.page_rows - 1) / d.page_rows;
    p.pages = p.columns * batch + 3;
    std::vector<int32_t> free(p.pages);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    p.table.assign((size_t)(batch * p.columns), 1 << 30);
    for (int b = 0; b < batch; b++)
        for (int x = d.starts[b] / d.page_rows; x * d.page_rows < d.kv_lens[b]; x++) {
            p.table[b * p.columns + x] = free.back();
            free.pop_back();
        }
    const size_t count = (size_t)p.pages * d.page_rows * elements;
    p.k = c.take<bf16>(count); /* NaN */
    p.v = c.take<bf16>(count);
    const int32_t *const table = c.upload(p.table), *const starts = c.upload(d.starts),
                         *const ends = c.upload(d.kv_lens);
    const dim3 grid((unsigned)c.z.kv_len, (unsigned)batch);
    scatter<<<grid, 128>>>(p.k, c.k, table, starts, ends, d.page_rows, p.columns, c.z.kv_len,
                           elements);
    scatter<<<grid, 128>>>(p.v, c.v, table, starts, ends, d.page_rows, p.columns, c.z.kv_len,
                           elements);
    MUST(cudaDeviceSynchronize());
    return p;
}

/* ---- the kernel's arguments ---- */

struct outputs {
    std::vector<bf16> o;    /* (sequence, row of all, head, dim): NaN where nothing was written */
    std::vector<float> lse; /* (sequence, head, row) */
};

/* Rows kv_len - q_len .. kv_len - 1 of each sequence: q and o are the training pass's tensors. */
static std::vector<ordo_cuda_sequence> sequences_of(const device_case &c, const decoding &d)
{
    std::vector<ordo_cuda_sequence> table(c.z.batch + 1);
    for (int b = 0; b < c.z.batch; b++) {
        ordo_cuda_sequence &s = table[b];
        memset(&s, 0, sizeof s);
        s.q_len = d.q_lens[b];
        s.kv_len = d.kv_lens[b];
        s.q_row = s.kv_len - s.q_len;
        s.batch = b;
        s.diagonal = s.kv_len - s.q_len;
        s.high = s.diagonal;
        s.low = d.left < 0 ? -ORDO_BAND_OPEN : s.diagonal - d.left;
        s.lse = (int64_t)b * c.z.heads * c.z.q_len + s.q_row;
    }
    return table;
}

template <int D>
static ordo_decode_args arguments_of(device_case &c, const decoding &d, const paged *p)
{
    using Z = decode_shape<D>;
    const ordo_cuda_pass &pass = c.pass;
    ordo_decode_args args = {};
    (ordo_pass_common &)args = ordo_pass_common_of(&pass);
    args.batch.table = c.upload(sequences_of(c, d));
    args.units = c.z.batch * c.z.kv_heads;
    const int group = c.z.heads / c.z.kv_heads;
    ordo_decode_pages &pages = args.pages;
    if (d.starts_given)
        pages.starts = c.upload(d.starts);
    pages.copy_rows = Z::COLUMNS;
    const ordo_cuda_tensor q = { pass.q.data, pass.q.sequence, pass.q.head, pass.q.row };
    must_ordo(
        ordo_cuda_map(&args.map.q, &q, { c.z.heads, c.z.q_len, c.z.batch, c.z.head_dim }, group),
        "q");
    ordo_cuda_tensor k = pass.k, v = pass.v;
    ordo_cuda_lengths lengths = { c.z.kv_len, c.z.kv_heads, c.z.batch, c.z.head_dim };
    if (p) {
        pages.table = c.upload(p->table);
        pages.table_stride = p->columns;
        pages.rows = d.page_rows;
        pages.pages = (int32_t)p->pages;
        pages.copy_rows = std::gcd(d.page_rows, (int)Z::COLUMNS);
        lengths.rows = d.page_rows;
        lengths.sequences = (int32_t)p->pages;
        k = c.tensor(p->k, d.page_rows, c.z.kv_heads);
        v = c.tensor(p->v, d.page_rows, c.z.kv_heads);
    }
    must_ordo(ordo_cuda_map(&args.map.k, &k, lengths, pages.copy_rows), "k");
    must_ordo(ordo_cuda_map(&args.map.v, &v, lengths, pages.copy_rows), "v");
    return args;
}

template <int D> static void launch(device_case &c, const ordo_decode_args &args, int blocks)
{
    using Z = decode_shape<D>;
    MUST(cudaMemsetAsync(c.pass.ticket, 0, 2 * sizeof *c.pass.ticket));
    const ordo_cuda_grid grid = { (unsigned)std::min(blocks, (int)args.units), Z::THREADS, Z::BYTES,
                                  ORDO_LAUNCH_PLAIN };
    must_ordo(ordo_cuda_launch((const void *)forward_decode_kernel<D, false>, &args, grid, NULL),
              ordo_cuda_why());
}

static void launch_bucket(device_case &c, const decoding &d, const paged *p, int blocks)
{
    if (c.z.head_dim <= 64)
        launch<64>(c, arguments_of<64>(c, d, p), blocks);
    else if (c.z.head_dim <= 128)
        launch<128>(c, arguments_of<128>(c, d, p), blocks);
    else
        launch<256>(c, arguments_of<256>(c, d, p), blocks);
}

static outputs outputs_of(const device_case &c)
{
    return { case_download(c.o, c.q_count), case_download(c.lse, c.lse_count) };
}

/* ---- one case ---- */

/* Values whose bits differ, of the rows that the sequences ask for; and of others those that were
 * written. */
static int64_t differing(const device_case &c, const decoding &d, const outputs &all,
                         const outputs &few)
{
    int64_t count = 0;
    for (int b = 0; b < c.z.batch; b++)
        for (int row = 0; row < c.z.q_len; row++)
            for (int head = 0; head < c.z.heads; head++) {
                const bool asked = row >= d.kv_lens[b] - d.q_lens[b] && row < d.kv_lens[b];
                const size_t lse = ((size_t)b * c.z.heads + head) * c.z.q_len + row;
                const size_t o = (((size_t)b * c.z.q_len + row) * c.z.heads + head) * c.z.head_dim;
                const uint32_t nothing = 0xffffffffu;
                const void *const expected = asked ? (const void *)&all.lse[lse] : &nothing;
                count += memcmp(&few.lse[lse], expected, 4) != 0;
                for (int x = 0; x < c.z.head_dim; x++)
                    count += memcmp(&few.o[o + x],
                                    asked ? (const void *)&all.o[o + x] : (const void *)&nothing,
                                    2) != 0;
            }
    return count;
}

static void set_rules(device_case &c, const decoding &d)
{
    std::vector<float> slopes, sink;
    for (int h = 0; h < c.z.heads; h++) {
        slopes.push_back(0.01f * (float)(h + 1));
        sink.push_back(h % 3 == 0 ? -INFINITY : 0.5f * (float)h);
    }
    if (d.softcap)
        c.pass.softcap = 3.0f;
    if (d.slopes)
        c.pass.slopes = c.upload(slopes);
    if (d.sink)
        c.pass.sink = c.upload(sink);
    if (d.left >= 0) {
        c.pass.run.band.low = -d.left;
        c.pass.batch.first.low = -d.left;
    }
}

static bool check_case(case_shape shape, const decoding &d, uint32_t seed, int blocks)
{
    std::mt19937 random(seed);
    device_case c(shape, seed);
    set_rules(c, d);
    c.forward();
    MUST(cudaDeviceSynchronize());
    const outputs all = outputs_of(c);
    paged p;
    if (d.page_rows)
        p = into_pages(c, d, random);
    MUST(cudaMemset(c.o, 0xff, c.q_count * 2));
    MUST(cudaMemset(c.lse, 0xff, c.lse_count * 4));
    launch_bucket(c, d, d.page_rows ? &p : NULL, blocks);
    MUST(cudaDeviceSynchronize());
    const int64_t differ = differing(c, d, all, outputs_of(c));
    if (differ)
        printf("FAIL seed %u: batch %d heads %d/%d rows %d dim %d, pages of %d, window %d%s%s%s%s: "
               "%lld values differ\n",
               seed, shape.batch, shape.heads, shape.kv_heads, shape.kv_len, shape.head_dim,
               d.page_rows, d.left, d.softcap ? ", softcap" : "", d.slopes ? ", slopes" : "",
               d.sink ? ", sinks" : "", d.starts_given ? ", starts" : "", (long long)differ);
    return differ == 0;
}

static bool drawn_case(uint32_t seed)
{
    std::mt19937 random(seed);
    auto below = [&](int n) { return (int)(random() % (unsigned)n); };
    const int dims[] = { 40, 64, 80, 128, 160, 192, 256 },
              page_rows[] = { 0, 1, 7, 16, 24, 64, 256, 300 };
    case_shape shape = {};
    decoding d;
    const int group = 1 + below(12);
    shape.batch = 1 + below(5);
    shape.kv_heads = 1 + below(3);
    shape.heads = shape.kv_heads * group;
    shape.head_dim = dims[below(7)];
    shape.q_len = shape.kv_len = 1 + below(700);
    shape.mask = ORDO_MASK_CAUSAL;
    d.page_rows = page_rows[below(8)];
    d.left = below(3) == 0 ? below(shape.kv_len + 1) : -1;
    d.softcap = below(4) == 0;
    d.slopes = below(4) == 0;
    d.sink = below(3) == 0;
    for (int b = 0; b < shape.batch; b++) {
        d.kv_lens.push_back(below(shape.kv_len + 1));
        const int most = std::min(d.kv_lens[b], 64 / group);
        d.q_lens.push_back(most ? below(most + 1) : 0);
        const int seen = d.left < 0 ? 0 : std::max(0, d.kv_lens[b] - d.q_lens[b] - d.left);
        d.starts.push_back(d.page_rows && seen ? below(seen + 1) : 0);
        d.starts_given |= d.starts[b] > 0;
    }
    return check_case(shape, d, seed, 1 + below(132));
}

/* ---- time ---- */

static void time_row(int batch, int keys, int page_rows)
{
    case_shape shape = { batch, 32, 8, 1, keys, 128, ORDO_MASK_FULL };
    device_case c(shape);
    decoding d;
    d.q_lens.assign(batch, 1);
    d.kv_lens.assign(batch, keys);
    d.starts.assign(batch, 0);
    d.page_rows = page_rows;
    std::mt19937 random(1);
    paged p;
    if (page_rows)
        p = into_pages(c, d, random);
    ordo_decode_args args = arguments_of<128>(c, d, page_rows ? &p : NULL);
    std::vector<ordo_cuda_sequence> table = sequences_of(c, d);
    for (ordo_cuda_sequence &s : table)
        s.q_row = 0, s.lse = (int64_t)s.batch * c.z.heads;
    args.batch.table = c.upload(table);
    cudaEvent_t begin, end;
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    std::vector<float> times;
    for (int n = 0; n < 12; n++) {
        MUST(cudaMemsetAsync(c.dk, 0, c.kv_count * 2)); /* other bytes into L2 */
        MUST(cudaEventRecord(begin));
        launch<128>(c, args, 132);
        MUST(cudaEventRecord(end));
        MUST(cudaEventSynchronize(end));
        float ms;
        MUST(cudaEventElapsedTime(&ms, begin, end));
        times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    const double us = times[times.size() / 2] * 1e3;
    printf("batch %3d, %6d keys, pages of %3d: %8.1f us, %5.2f TB/s\n", batch, keys, page_rows, us,
           (double)c.kv_count * 4 / us * 1e-6);
}

int main(int argc, char **argv)
{
    if (device_is_missing())
        return 77;
    for (uint32_t seed = 1; seed <= 300; seed++)
        verdict(drawn_case(seed), "combination %u", seed);
    if (argc > 1 && !strcmp(argv[1], "--time"))
        for (const int page_rows : { 0, 256, 16, 1 })
            for (const int batch : { 1, 8, 64 })
                for (const int keys : { 8192, 65536 })
                    time_row(batch, keys, page_rows);
    return report_all();
}
