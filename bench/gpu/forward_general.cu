/* forward_general.cu: the general forward kernel beside the plain one, and what each of its
 * features costs a key tile.
 *
 * 16384 tokens, 2048 channels. All rows of a head size take turns in one process, and the cache is
 * flushed before each; medians. A live tile is a pair of query and key tile that the mask does not
 * hide; its rate is compared with the first row's. --quick: dense, softcap and ALiBi only, at head
 * sizes 128 and 64, in a few seconds. */
#include <string.h>

#include "../../tests/cuda/handmade_batch.h"
#include "timing.cuh"

enum { TOKENS = 16384, CHANNELS = 2048, ROUNDS = 11 };

struct row {
    const char *name;
    general_case *c;
};

static void live(const general_case &c, double *tiles, double *pairs)
{
    const int bucket = ordo_pass_bucket(&c.pass);
    const int rows = bucket == 64 ? 192 : 128, columns = bucket == 256 ? 64 : 128;
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

static void compare(int head_dim, bool quick)
{
    const int heads = CHANNELS / head_dim, any = ORDO_BAND_OPEN - 1; /* open, but not plain */
    const std::vector<int> one = { TOKENS };
    const std::vector<int> mixed = { 6000, 3000, 2500, 2000, 1200, 800, 500, 300, 84 };
    general_shape z = { head_dim, heads, heads, false, one, one };
    std::vector<row> rows;
    auto add = [&](const char *name, ordo_layout layout, bool always = false) {
        z.quick = true;
        if (always || !quick)
            rows.push_back({ name, new general_case(z, layout) });
    };
    add("full", ORDO_DENSE, true); /* plain, where there is one */
    z.right = 0;
    add("causal", ORDO_DENSE);
    z.left = any;
    add("causal, general", ORDO_DENSE);
    z.right = -1;
    add("full, general", ORDO_DENSE, true);
    z.f16 = true;
    add("full, f16", ORDO_DENSE);
    z.f16 = false;
    z.softcap = 30.0f;
    add("full, softcap", ORDO_DENSE, true);
    z.softcap = 0.25f; /* most scores are beyond half of it */
    add("full, softcap reached", ORDO_DENSE, true);
    z.softcap = 0.0f;
    z.alibi = true;
    add("full, ALiBi", ORDO_DENSE, true);
    z.softcap = 30.0f;
    add("full, softcap and ALiBi", ORDO_DENSE, true);
    z.softcap = 0.0f;
    z.right = 0;
    add("causal, ALiBi", ORDO_DENSE);
    z.right = -1;
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

    std::vector<turn> turns;
    for (const row &r : rows)
        turns.push_back({ [&r] { r.c->launch(); } });
    const std::vector<double> ms = time_in_turns(turns, ROUNDS);
    double first = 0;
    for (size_t i = 0; i < rows.size(); i++) {
        const row &r = rows[i];
        double tiles, pairs;
        live(*r.c, &tiles, &pairs);
        if (first == 0)
            first = tiles / ms[i];
        printf("%3d %-26s %7.3f ms %5.0f TFLOP/s, a live tile at %.3f of the first's rate\n",
               head_dim, r.name, ms[i], 4 * pairs * head_dim / ms[i] * 1e-9, tiles / ms[i] / first);
        fflush(stdout);
        delete r.c;
    }
}

int main(int count, char **given)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    const bool quick = count > 1 && strcmp(given[1], "--quick") == 0;
    for (const int dim : { 128, 64, 256 })
        if (dim < 256 || !quick)
            compare(dim, quick);
    return 0;
}
