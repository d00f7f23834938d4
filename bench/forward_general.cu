/* forward_general.cu: the general forward kernel beside the plain one, and what each of its
 * features costs a key tile.
 *
 * 16384 tokens, 2048 channels. All rows of a head size take turns in one process, and the cache is
 * flushed before each; medians. A live tile is a pair of query and key tile that the mask does not
 * hide; its rate is compared with the first row's. */
#include <algorithm>

#include "../tests/cuda/general_case.h"

enum { TOKENS = 16384, CHANNELS = 2048, REPEATS = 11, FLUSH_BYTES = 256 << 20 };

struct row {
    const char *name;
    ordo_layout layout;
    general_case *c;
    std::vector<float> ms;
};

static void live(const general_case &c, double *tiles, double *pairs)
{
    const int rows = c.pass.bucket == 64 ? 192 : 128, columns = c.pass.bucket == 256 ? 64 : 128;
    *tiles = *pairs = 0;
    for (int b = 0; b < c.sequences; b++) {
        const ordo_band band = ordo_sequence_band(&c.table[b], rows, columns);
        for (int i = 0; i < ordo_band_query_tiles(&band); i++)
            *tiles += ordo_span_count(ordo_band_keys(&band, i)) * c.z.heads;
        for (int r = 0; r < band.q_len; r++) {
            const int first = std::max(0, r + band.low);
            const int last = std::min(band.kv_len - 1, r + band.high);
            *pairs += (double)std::max(0, last - first + 1) * c.z.heads;
        }
    }
}

static void compare(int head_dim, int bucket, void *flush)
{
    const int heads = CHANNELS / bucket, any = ORDO_BAND_OPEN - 1; /* open, but not plain */
    const std::vector<int> one = { TOKENS };
    const std::vector<int> mixed = { 6000, 3000, 2500, 2000, 1200, 800, 500, 300, 84 };
    general_shape z = { head_dim, heads, heads, false, one, one };
    std::vector<row> rows;
    auto add = [&](const char *name, ordo_layout layout) {
        z.quick = true;
        rows.push_back({ name, layout, new general_case(z, layout), {} });
    };
    add("full", ORDO_DENSE); /* plain, where there is one */
    z.right = 0;
    add("causal", ORDO_DENSE);
    z.left = any;
    add("causal, general", ORDO_DENSE);
    z.right = -1;
    add("full, general", ORDO_DENSE);
    z.f16 = true;
    add("full, f16", ORDO_DENSE);
    z.f16 = false;
    z.softcap = 30.0f;
    add("full, softcap", ORDO_DENSE);
    z.softcap = 0.0f;
    z.alibi = true;
    add("full, ALiBi", ORDO_DENSE);
    z.alibi = false;
    z.keep = ORDO_KEEP_MADE;
    add("full, dropout made inside", ORDO_DENSE);
    z.keep = ORDO_KEEP_NONE;
    z.right = 0;
    z.left = 1023;
    add("window 1024", ORDO_DENSE);
    z.left = 255;
    add("window 256", ORDO_DENSE);
    z.left = -1;
    z.q_lens = z.kv_lens = mixed;
    add("packed, causal", ORDO_PACKED);
    z.right = -1;
    add("packed, full", ORDO_PACKED);

    cudaEvent_t from, to;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    for (int n = 0; n < REPEATS; n++)
        for (row &r : rows) {
            MUST(cudaMemsetAsync(flush, n, FLUSH_BYTES));
            MUST(cudaEventRecord(from));
            r.c->launch();
            MUST(cudaEventRecord(to));
            MUST(cudaEventSynchronize(to));
            float ms;
            MUST(cudaEventElapsedTime(&ms, from, to));
            r.ms.push_back(ms);
        }
    double first = 0;
    for (row &r : rows) {
        double tiles, pairs;
        std::sort(r.ms.begin(), r.ms.end());
        const double ms = r.ms[REPEATS / 2];
        live(*r.c, &tiles, &pairs);
        if (first == 0)
            first = tiles / ms;
        printf("%3d %-26s %7.3f ms %5.0f TFLOP/s, a live tile at %.3f of the first's rate\n",
               head_dim, r.name, ms, 4 * pairs * head_dim / ms * 1e-9, tiles / ms / first);
        fflush(stdout);
        delete r.c;
    }
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    void *flush;
    MUST(cudaMalloc(&flush, FLUSH_BYTES));
    compare(128, 128, flush);
    compare(64, 64, flush);
    compare(256, 256, flush);
    return 0;
}
