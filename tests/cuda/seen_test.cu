/* Element masks packed by the device: the bits and the whole blocks of the host, for any lengths
 * and strides. With --time: nanoseconds per element of a large one.
 *
 * Without a device: compiled, and skipped. */
#include "handmade_pass.h"

#include "base/philox.h"
#include "on_device.h"
#include "ordo/seen.h"

/* Bytes in the order (sequence, head, row, column), or columns before rows; each a byte apart. */
typedef struct seen_case {
    int64_t sequences, heads, rows, columns;
    bool transposed;
    uint32_t share; /* of 256 are seen in the tiles that are neither empty nor whole */
} seen_case;

static std::vector<unsigned char> draw(const seen_case &c, int64_t *strides)
{
    const int64_t head = c.rows * c.columns, shared = c.heads > 1 ? head : 0;
    std::vector<unsigned char> bytes((size_t)(c.sequences * c.heads * head) + 1);
    strides[0] = c.sequences > 1 ? c.heads * head : 0;
    strides[1] = shared;
    strides[2] = c.transposed ? 1 : c.columns;
    strides[3] = c.transposed ? c.rows : 1;
    for (int64_t x = 0; x < c.sequences * c.heads; x++)
        for (int64_t i = 0; i < c.rows; i++)
            for (int64_t j = 0; j < c.columns; j++) {
                const ordo_philox_words at = { { (uint32_t)x, (uint32_t)i, (uint32_t)j, 0 } };
                const uint32_t drawn = ordo_philox(at, 1, 2, 7).w[0] % 256;
                const int64_t tile = (i / ORDO_BLOCK + 3 * (j / ORDO_BLOCK) + x) % 4;
                const bool seen = tile == 0 || (tile > 1 && drawn < c.share);
                bytes[(size_t)(x * head + i * strides[2] + j * strides[3])] = seen ? drawn | 1 : 0;
            }
    return bytes;
}

static ordo_problem problem_of(const seen_case &c)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.batch = c.sequences;
    p.heads = p.kv_heads = c.heads;
    p.q_len = c.rows;
    p.kv_len = c.columns;
    p.head_dim = 64;
    p.seen.on = true;
    p.seen.per_sequence = c.sequences > 1;
    p.seen.per_head = c.heads > 1;
    return p;
}

/* Arrays of a mask on the device, in the memory that it was made in. */
static std::vector<unsigned char> fetch(ordo_block_mask *m, const unsigned char *from, size_t bytes)
{
    std::vector<unsigned char> all(bytes);
    from_device(all.data(), from, bytes);
    m->start = (const int32_t *)(all.data() + ((const unsigned char *)m->start - from));
    m->key = (const int32_t *)(all.data() + ((const unsigned char *)m->key - from));
    m->bits = (const uint32_t *)all.data();
    return all;
}

static void check(const char *name, const seen_case &c)
{
    const ordo_problem p = problem_of(c);
    ordo_block_mask host = ORDO_BLOCK_MASK_INIT, there = ORDO_BLOCK_MASK_INIT;
    int64_t strides[4];
    size_t bytes = 0;
    long wrong = 0;
    const std::vector<unsigned char> elements = draw(c, strides);
    must_ordo(ordo_seen_bytes(&p, &bytes), "bytes");
    std::vector<uint64_t> memory(bytes / 8 + 3);
    void *const aligned = (void *)(((uintptr_t)memory.data() + 15) / 16 * 16);
    must_ordo(ordo_seen_make(&host, &p, elements.data(), strides, aligned, bytes), "host");
    unsigned char *const to = device_array<unsigned char>(bytes, 0x55);
    unsigned char *const from = to_device(elements.data(), elements.size());
    must_ordo(ordo_seen_make_device(&there, &p, from, strides, to, bytes, NULL), "device");
    const std::vector<unsigned char> all = fetch(&there, to, bytes);
    wrong += memcmp(host.bits, there.bits,
                    (size_t)((const char *)host.start - (const char *)host.bits)) != 0;
    const int64_t down = (c.rows + ORDO_BLOCK - 1) / ORDO_BLOCK;
    const int64_t across = (c.columns + ORDO_BLOCK - 1) / ORDO_BLOCK;
    for (int64_t line = 0, next = 0; line < c.sequences * c.heads * down; line++) {
        const int64_t at = line + line / down;
        wrong += there.start[at] != line * across || there.start[at + 1] != (line + 1) * across;
        for (int64_t j = 0; j < across; j++) {
            const bool listed = next < host.start[at + 1] && (host.key[next] & ORDO_BLOCK_KEY) == j;
            wrong += there.key[line * across + j] != (listed ? host.key[next++] : (int32_t)j);
        }
    }
    report(name, wrong, 1);
    MUST(cudaFree(to));
    MUST(cudaFree(from));
}

static void time_large(void)
{
    const ordo_problem p = problem_of({ 1, 1, 16384, 16384, false, 128 });
    const int64_t strides[] = { 0, 0, 16384, 1 };
    ordo_block_mask m = ORDO_BLOCK_MASK_INIT;
    size_t bytes = 0;
    float time = 0;
    cudaEvent_t begin, end;
    must_ordo(ordo_seen_bytes(&p, &bytes), "bytes");
    unsigned char *const to = device_array<unsigned char>(bytes, 0);
    unsigned char *const from = device_array<unsigned char>(16384 * 16384, 1);
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    for (int x = 0; x < 5; x++) {
        MUST(cudaEventRecord(begin));
        must_ordo(ordo_seen_make_device(&m, &p, from, strides, to, bytes, NULL), "device");
        MUST(cudaEventRecord(end));
        MUST(cudaEventSynchronize(end));
        MUST(cudaEventElapsedTime(&time, begin, end));
    }
    printf("16384 x 16384 elements: %.1f us\n", time * 1e3);
    MUST(cudaFree(to));
    MUST(cudaFree(from));
}

int main(int argc, char **argv)
{
    if (device_is_missing())
        return 77;
    check("one element", { 1, 1, 1, 1, false, 128 });
    check("ragged", { 1, 1, 300, 1000, false, 128 });
    check("per sequence", { 3, 1, 129, 257, false, 16 });
    check("per head, columns first", { 1, 5, 200, 130, true, 240 });
    check("both", { 2, 3, 128, 384, false, 255 });
    check("no row", { 2, 1, 0, 5, false, 1 });
    if (argc > 1 && strcmp(argv[1], "--time") == 0)
        time_large();
    return report_all();
}
