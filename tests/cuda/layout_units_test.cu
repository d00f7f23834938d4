/* The layouts on a device: every rule of layout.h used by the instruction it is for, on small
 * integers, compared exactly. What differs is printed. Without a device: compiled, and skipped. */
#define ORDO_WATCHDOG
#include "base/half.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/swizzle.h"
#include "on_device.h"

enum { ELEMENTS_MAX = 192 * 128, PRINTED = 4 };

static uint64_t state = 7;

/* A small integer: sums of 128 products of two of them are exact in f32. */
static float small(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((int)(state >> 33) % 9 - 4);
}

/* A matrix of small integers, and its tile as the kernels hold it. */
typedef struct matrix {
    int rows, columns;
    float value[ELEMENTS_MAX];
    uint16_t tile[ELEMENTS_MAX];
} matrix;

static void fill(matrix *m, int rows, int columns)
{
    m->rows = rows;
    m->columns = columns;
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            const float x = small();
            m->value[row * columns + column] = x;
            m->tile[ordo_tile_offset(rows, row, column) / 2] = ordo_bf16_from_f32(x);
        }
}

static long print_difference(long before, int row, int column, double got, double expected)
{
    if (before < PRINTED)
        printf("  (%d, %d) is %g, expected %g\n", row, column, got, expected);
    return 1;
}

/* ---- on the device ---- */

__device__ static void copy_in(uint32_t to, const uint16_t *from, int elements)
{
    for (int x = threadIdx.x; x < elements / 2; x += blockDim.x)
        store_shared(to + x * 4, ((const int32_t *)from)[x]);
    fence_shared_to_async();
}

__device__ static void copy_out(uint32_t from, uint16_t *to, int elements)
{
    for (int x = threadIdx.x; x < elements / 2; x += blockDim.x)
        ((int32_t *)to)[x] = load_shared(from + x * 4);
}

template <int N>
__device__ static void write_accumulators(const float (&d)[N], float *to, int width)
{
    const int t = threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < N; i++)
        to[ordo_accumulator_row(t, i) * width + ordo_accumulator_column(t, i)] = d[i];
}

/* ---- the copy engine ---- */

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* (sequence, row, head, dim) in memory, boxes of 64 dims x box_rows rows. */
static CUtensorMap tensor_map(void *data, int sequences, int rows, int heads, int dims,
                              int box_rows)
{
    void *function;
    cudaDriverEntryPointQueryResult found;
    TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) {
        printf("FAIL the driver has no cuTensorMapEncodeTiled\n");
        exit(1);
    }
    const cuuint64_t size[4] = { (cuuint64_t)dims, (cuuint64_t)rows, (cuuint64_t)heads,
                                 (cuuint64_t)sequences };
    const cuuint64_t row_bytes = (cuuint64_t)heads * dims * 2;
    const cuuint64_t stride[3] = { row_bytes, (cuuint64_t)dims * 2, row_bytes * rows };
    const cuuint32_t box[4] = { ORDO_PANEL_COLUMNS, (cuuint32_t)box_rows, 1, 1 };
    const cuuint32_t step[4] = { 1, 1, 1, 1 };
    CUtensorMap map;
    const CUresult result = ((encode_function)function)(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, size, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        printf("FAIL cuTensorMapEncodeTiled: error %d\n", (int)result);
        exit(1);
    }
    return map;
}

enum { HEAD = 1, SEQUENCE = 1 }; /* of the boxes that are copied */

__global__ void load_kernel(const __grid_constant__ CUtensorMap map, int rows, int panels, int row0,
                            uint16_t *out)
{
    const uint32_t tile = ORDO_SMEM_BASE, bytes = rows * panels * ORDO_LINE_BYTES;
    const uint32_t bar = tile + bytes;
    if (threadIdx.x == 0) {
        mbar_init(bar, 1);
        mbar_init_fence();
        mbar_expect(bar, bytes);
        for (int p = 0; p < panels; p++)
            tma_load(tile + p * rows * ORDO_LINE_BYTES, &map, bar, p * ORDO_PANEL_COLUMNS, row0,
                     HEAD, SEQUENCE, policy_evict_last());
    }
    __syncthreads();
    mbar_wait(bar, 0);
    copy_out(tile, out, bytes / 2);
}

static void test_load(int dims, int box_rows, int row0)
{
    enum { SEQUENCES = 2, ROWS = 200, HEADS = 3 };
    static uint16_t tensor[SEQUENCES * ROWS * HEADS * 128], got[ELEMENTS_MAX];
    const int count = SEQUENCES * ROWS * HEADS * dims, elements = box_rows * dims;
    for (int x = 0; x < count; x++)
        tensor[x] = (uint16_t)(x * 40503u + 7);
    uint16_t *there = to_device(tensor, count), *out = device_array<uint16_t>(elements, 0xa5);
    const CUtensorMap map = tensor_map(there, SEQUENCES, ROWS, HEADS, dims, box_rows);
    load_kernel<<<1, 128, elements * 2 + 16>>>(map, box_rows, dims / 64, row0, out);
    from_device(got, out, elements);
    long wrong = 0;
    for (int row = 0; row < box_rows; row++)
        for (int column = 0; column < dims; column++) {
            const int from = ((SEQUENCE * ROWS + row0 + row) * HEADS + HEAD) * dims + column;
            const uint16_t expected = row0 + row < ROWS ? tensor[from] : 0;
            const uint16_t value = got[ordo_tile_offset(box_rows, row, column) / 2];
            if (value != expected)
                wrong += print_difference(wrong, row, column, value, expected);
        }
    char name[100];
    snprintf(name, sizeof name, "load of %d rows from %d of %d, %d dims", box_rows, row0, ROWS,
             dims);
    report(name, wrong, elements);
    TRY(cudaFree(there));
    TRY(cudaFree(out));
}

/* ---- products of tiles ---- */

/* One operand: where its tile's slices start. */
typedef struct operand {
    int rows, by_rows;
    uint32_t first_bytes; /* of the 64 lines or columns that are used */
} operand;

__device__ static uint64_t slice(uint32_t tile, const operand &o, int k)
{
    const uint32_t low = ordo_descriptor_low(tile + o.first_bytes, o.rows * ORDO_LINE_BYTES);
    return o.by_rows ? wgmma_by_rows(low, k) : wgmma_by_columns(low, o.rows, k);
}

template <int N, int BY_ROWS_A, int BY_ROWS_B, int SLICES>
__global__ void product_kernel(operand a, const uint16_t *tile_a, int elements_a, operand b,
                               const uint16_t *tile_b, int elements_b, float *out)
{
    const uint32_t at_a = ORDO_SMEM_BASE, at_b = at_a + elements_a * 2;
    copy_in(at_a, tile_a, elements_a);
    copy_in(at_b, tile_b, elements_b);
    __syncthreads();
    float d[N / 2];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < SLICES; k++)
        wgmma_ss<false, BY_ROWS_A, BY_ROWS_B>(d, slice(at_a, a, k), slice(at_b, b, k), k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(d);
    write_accumulators(d, out, N);
}

/* Line x, k of an operand: a row of its matrix or a column, from the 64th * first on. */
static float element(const matrix *m, int by_rows, int first, int x, int k)
{
    const int line = first * 64 + x;
    return by_rows ? m->value[k * m->columns + line] : m->value[line * m->columns + k];
}

static long compare_product(const float *got, int n, int depth, const matrix *a, int by_rows_a,
                            int first_a, const matrix *b, int by_rows_b)
{
    long wrong = 0;
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < n; column++) {
            float expected = 0;
            for (int k = 0; k < depth; k++)
                expected +=
                    element(a, by_rows_a, first_a, row, k) * element(b, by_rows_b, 0, column, k);
            const float value = got[row * n + column];
            if (value != expected)
                wrong += print_difference(wrong, row, column, value, expected);
        }
    return wrong;
}

/* A: `first_a` picks 64 of its lines, rows or columns. B: its first N; it may be taller. */
template <int N, int BY_ROWS_A, int BY_ROWS_B, int SLICES>
static void test_product(int lines_a, int first_a, int lines_b)
{
    enum { DEPTH = SLICES * 16 };
    static matrix a, b;
    static float got[64 * N];
    if (BY_ROWS_A)
        fill(&a, DEPTH, lines_a);
    else
        fill(&a, lines_a, DEPTH);
    if (BY_ROWS_B)
        fill(&b, DEPTH, lines_b);
    else
        fill(&b, lines_b, DEPTH);
    const int panel_a = a.rows * ORDO_LINE_BYTES, slice_a = 64 * ORDO_LINE_BYTES;
    const operand oa = { a.rows, BY_ROWS_A, (uint32_t)(first_a * (BY_ROWS_A ? panel_a : slice_a)) };
    const operand ob = { b.rows, BY_ROWS_B, 0 };
    const int elements_a = a.rows * a.columns, elements_b = b.rows * b.columns;
    uint16_t *tile_a = to_device(a.tile, elements_a), *tile_b = to_device(b.tile, elements_b);
    float *out = device_array<float>(64 * N, 0xff);
    const int bytes = (elements_a + elements_b) * 2;
    TRY(cudaFuncSetAttribute(product_kernel<N, BY_ROWS_A, BY_ROWS_B, SLICES>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    product_kernel<N, BY_ROWS_A, BY_ROWS_B, SLICES>
        <<<1, 128, bytes>>>(oa, tile_a, elements_a, ob, tile_b, elements_b, out);
    from_device(got, out, 64 * N);
    char name[120];
    snprintf(name, sizeof name, "n%d, k %d: A by %s, 64 from %d of %d; B by %s, %d of %d", N, DEPTH,
             BY_ROWS_A ? "rows" : "columns", first_a * 64, lines_a, BY_ROWS_B ? "rows" : "columns",
             N, lines_b);
    report(name, compare_product(got, N, DEPTH, &a, BY_ROWS_A, first_a, &b, BY_ROWS_B), 64 * N);
    TRY(cudaFree(tile_a));
    TRY(cudaFree(tile_b));
    TRY(cudaFree(out));
}

/* ---- accumulators as register operands: S = Q K^T, then O = S V; Q 64 x 64, K and V 128 rows ---
 */

template <int N>
__global__ void chain_kernel(const uint16_t *q, const uint16_t *k, const uint16_t *v, float *out)
{
    const uint32_t at_q = ORDO_SMEM_BASE, at_k = at_q + 64 * 128, at_v = at_k + 128 * 128;
    copy_in(at_q, q, 64 * 64);
    copy_in(at_k, k, 128 * 64);
    copy_in(at_v, v, 128 * N);
    __syncthreads();
    const uint32_t low_q = ordo_descriptor_low(at_q, 64 * 128);
    const uint32_t low_k = ordo_descriptor_low(at_k, 128 * 128);
    const uint32_t low_v = ordo_descriptor_low(at_v, 128 * 128);
    float s[64], o[N / 2];
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < 4; x++)
        wgmma_ss<false, 0, 0>(s, wgmma_by_columns(low_q, 64, x), wgmma_by_columns(low_k, 128, x),
                              x > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(s);
    uint32_t p[32];
#pragma unroll
    for (int x = 0; x < 32; x++)
        p[x] = pack_pair<false>(s[2 * x], s[2 * x + 1]);
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < 8; x++)
        wgmma_rs<false, 1>(o, p + 4 * x, wgmma_by_rows(low_v, x), x > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(o);
    write_accumulators(o, out, N);
}

/* To -1, 0 and 1: the scores, at most 64, are then exact in bf16. */
static void make_tiny(matrix *m)
{
    for (int row = 0; row < m->rows; row++)
        for (int column = 0; column < m->columns; column++) {
            float *x = &m->value[row * m->columns + column];
            *x = *x > 1 ? 1 : *x < -1 ? -1 : *x;
            m->tile[ordo_tile_offset(m->rows, row, column) / 2] = ordo_bf16_from_f32(*x);
        }
}

template <int N> static void test_chain()
{
    static matrix q, k, v;
    static float got[64 * N];
    fill(&q, 64, 64);
    fill(&k, 128, 64);
    fill(&v, 128, N);
    make_tiny(&q);
    make_tiny(&k);
    uint16_t *there[3] = { to_device(q.tile, 64 * 64), to_device(k.tile, 128 * 64),
                           to_device(v.tile, 128 * N) };
    float *out = device_array<float>(64 * N, 0xff);
    const int bytes = (64 * 64 + 128 * 64 + 128 * N) * 2;
    TRY(cudaFuncSetAttribute(chain_kernel<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    chain_kernel<N><<<1, 128, bytes>>>(there[0], there[1], there[2], out);
    from_device(got, out, 64 * N);
    long wrong = 0;
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < N; column++) {
            float expected = 0;
            for (int j = 0; j < 128; j++) {
                float score = 0;
                for (int x = 0; x < 64; x++)
                    score += q.value[row * 64 + x] * k.value[j * 64 + x];
                expected += score * v.value[j * N + column];
            }
            if (got[row * N + column] != expected)
                wrong += print_difference(wrong, row, column, got[row * N + column], expected);
        }
    char name[80];
    snprintf(name, sizeof name, "accumulators as register operands, n%d", N);
    report(name, wrong, 64 * N);
    for (int x = 0; x < 3; x++)
        TRY(cudaFree(there[x]));
    TRY(cudaFree(out));
}

/* ---- dS through shared memory, then dQ = dS K in the order of the registers ---- */

/* Two warpgroups hold dS transposed, 128 keys x Q queries. With D = 128 each computes 64 of dQ's
 * columns, with D = 64 half of its rows. */
template <int D>
__global__ void dq_kernel(const uint16_t *ds, const uint16_t *k, uint16_t *tile, float *partial)
{
    enum { Q = 8192 / D };
    const uint32_t at_k = ORDO_SMEM_BASE, at_ds = at_k + 128 * D * 2, at_dq = at_ds + Q * 128 * 2;
    const int group = threadIdx.x / 128, t = threadIdx.x % 128, warp = threadIdx.x / 32;
    copy_in(at_k, k, 128 * D);
#pragma unroll
    for (int x = 0; x < Q / 16; x++) {
        uint32_t r[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = 8 * x + 2 * j;
            r[j] = *(const uint32_t *)&ds[(group * 64 + ordo_accumulator_row(t, i)) * Q +
                                          ordo_accumulator_column(t, i)];
        }
        store_matrix4_transposed(at_ds + ordo_store_transposed_offset(Q, warp, t % 32, x), r[0],
                                 r[1], r[2], r[3]);
    }
    fence_shared_to_async();
    __syncthreads();
    copy_out(at_ds, tile, Q * 128);
    const uint32_t rows = at_ds + (D == 64 ? group * 64 * ORDO_LINE_BYTES : 0);
    const uint32_t columns = at_k + (D == 128 ? group * 128 * ORDO_LINE_BYTES : 0);
    const uint32_t low_ds = ordo_descriptor_low(rows, Q * 128);
    const uint32_t low_k = ordo_descriptor_low(columns, 128 * 128);
    float dq[32];
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < 8; x++)
        wgmma_ss<false, 0, 1>(dq, wgmma_by_columns(low_ds, Q, x), wgmma_by_rows(low_k, x), x > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(dq);
#pragma unroll
    for (int i = 0; i < 32; i += 4)
        store_shared4(at_dq + (group * 4096 + ordo_partial_offset(t, i)) * 4, dq[i], dq[i + 1],
                      dq[i + 2], dq[i + 3]);
    fence_shared_to_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(partial, at_dq, 32768);
        bulk_commit();
        bulk_wait();
    }
}

template <int D> static long compare_dq(const float *partial, const float *ds, const matrix *k)
{
    enum { Q = 8192 / D };
    long wrong = 0;
    for (int x = 0; x < 256 * 32; x++) {
        const int group = x / 4096, t = x / 32 % 128, i = x % 32;
        const int row = ordo_accumulator_row(t, i) + (D == 64 ? group * 64 : 0);
        const int column = ordo_accumulator_column(t, i) + (D == 128 ? group * 64 : 0);
        float expected = 0;
        for (int key = 0; key < 128; key++)
            expected += ds[key * Q + row] * k->value[key * D + column];
        const float got = partial[group * 4096 + ordo_partial_offset(t, i)];
        if (got != expected)
            wrong += print_difference(wrong, row, column, got, expected);
    }
    return wrong;
}

template <int D> static void test_dq()
{
    enum { Q = 8192 / D, BYTES = (128 * D + Q * 128) * 2 + 32768 };
    static matrix k;
    static float ds[128 * Q], partial[8192];
    static uint16_t bits[128 * Q], tile[128 * Q];
    fill(&k, 128, D);
    for (int x = 0; x < 128 * Q; x++) {
        ds[x] = small();
        bits[x] = ordo_bf16_from_f32(ds[x]);
    }
    uint16_t *there_ds = to_device(bits, 128 * Q), *there_k = to_device(k.tile, 128 * D);
    uint16_t *out = device_array<uint16_t>(128 * Q, 0xa5);
    float *dq = device_array<float>(8192, 0xff);
    TRY(cudaFuncSetAttribute(dq_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    dq_kernel<D><<<1, 256, BYTES>>>(there_ds, there_k, out, dq);
    from_device(tile, out, 128 * Q);
    from_device(partial, dq, 8192);
    long wrong = 0;
    for (int query = 0; query < Q; query++)
        for (int key = 0; key < 128; key++) {
            const uint16_t got = tile[ordo_tile_offset(Q, query, key) / 2];
            if (got != bits[key * Q + query])
                wrong += print_difference(wrong, query, key, got, bits[key * Q + query]);
        }
    char name[80];
    snprintf(name, sizeof name, "transposed stores, %d queries x 128 keys", Q);
    report(name, wrong, 128 * Q);
    snprintf(name, sizeof name, "dQ of %d x %d from them, in the order of the registers", Q, D);
    report(name, compare_dq<D>(partial, ds, &k), 8192);
    TRY(cudaFree(there_ds));
    TRY(cudaFree(there_k));
    TRY(cudaFree(out));
    TRY(cudaFree(dq));
}

/* ---- plain stores of accumulators, then a copy that leaves rows past the end alone ---- */

__global__ void store_kernel(const __grid_constant__ CUtensorMap map, const uint16_t *from,
                             uint16_t *tile, int row0)
{
    const int t = threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t r[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = 8 * k + 2 * j;
            r[j] = *(const uint32_t
                         *)&from[ordo_accumulator_row(t, i) * 128 + ordo_accumulator_column(t, i)];
        }
        store_matrix4(ORDO_SMEM_BASE + ordo_store_offset(64, t / 32, t % 32, k), r[0], r[1], r[2],
                      r[3]);
    }
    fence_shared_to_async();
    __syncthreads();
    copy_out(ORDO_SMEM_BASE, tile, 64 * 128);
    if (t == 0) {
        for (int p = 0; p < 2; p++)
            tma_store(&map, ORDO_SMEM_BASE + p * 64 * ORDO_LINE_BYTES, p * ORDO_PANEL_COLUMNS, row0,
                      HEAD, SEQUENCE);
        bulk_commit();
        bulk_wait();
    }
}

static void test_store(int row0)
{
    enum {
        SEQUENCES = 2,
        ROWS = 100,
        HEADS = 3,
        DIMS = 128,
        COUNT = SEQUENCES * ROWS * HEADS * DIMS
    };
    static uint16_t from[64 * DIMS], tile[64 * DIMS], tensor[COUNT];
    for (int x = 0; x < 64 * DIMS; x++)
        from[x] = (uint16_t)(x * 40503u + 11);
    uint16_t *there = to_device(from, 64 * DIMS), *out = device_array<uint16_t>(64 * DIMS, 0xa5);
    uint16_t *to = device_array<uint16_t>(COUNT, 0xee);
    const CUtensorMap map = tensor_map(to, SEQUENCES, ROWS, HEADS, DIMS, 64);
    store_kernel<<<1, 128, 64 * DIMS * 2>>>(map, there, out, row0);
    from_device(tile, out, 64 * DIMS);
    from_device(tensor, to, COUNT);
    long wrong = 0;
    for (int x = 0; x < 64 * DIMS; x++) {
        const uint16_t got = tile[ordo_tile_offset(64, x / DIMS, x % DIMS) / 2];
        if (got != from[x])
            wrong += print_difference(wrong, x / DIMS, x % DIMS, got, from[x]);
    }
    report("plain stores, 64 x 128", wrong, 64 * DIMS);
    wrong = 0;
    for (int x = 0; x < COUNT; x++) {
        const int dim = x % DIMS, head = x / DIMS % HEADS, row = x / DIMS / HEADS % ROWS;
        const bool inside =
            x / DIMS / HEADS / ROWS == SEQUENCE && head == HEAD && row >= row0 && row < row0 + 64;
        const uint16_t expected = inside ? from[(row - row0) * DIMS + dim] : 0xeeee;
        if (tensor[x] != expected)
            wrong += print_difference(wrong, row, dim, tensor[x], expected);
    }
    char name[80];
    snprintf(name, sizeof name, "store of 64 rows from %d of %d, nothing else touched", row0, ROWS);
    report(name, wrong, COUNT);
    TRY(cudaFree(there));
    TRY(cudaFree(out));
    TRY(cudaFree(to));
}

/* ---- row statistics: a thread's four of each sixteen by one load ---- */

__global__ void statistics_kernel(const float *permuted, float *out)
{
    const uint32_t at = ORDO_SMEM_BASE, bar = at + 128 * 4;
    const int t = threadIdx.x;
    if (t == 0) {
        mbar_init(bar, 1);
        mbar_init_fence();
        mbar_expect(bar, 128 * 4);
        bulk_load(at, permuted, 128 * 4, bar);
    }
    __syncthreads();
    mbar_wait(bar, 0);
    for (int k = 0; k < 8; k++) {
        float v[4];
        load_shared4(at + (16 * k + t % 4 * 4) * 4, v[0], v[1], v[2], v[3]);
        for (int e = 0; e < 4; e++)
            out[(t * 8 + k) * 4 + e] = v[e];
    }
}

static void test_statistics()
{
    static float permuted[128], got[128 * 32];
    for (int row = 0; row < 128; row++)
        permuted[ordo_stat_place(row)] = (float)row;
    float *there = to_device(permuted, 128), *out = device_array<float>(128 * 32, 0xff);
    statistics_kernel<<<1, 128, 128 * 4 + 16>>>(there, out);
    from_device(got, out, 128 * 32);
    long wrong = 0;
    for (int x = 0; x < 128 * 32; x++) {
        const int t = x / 32, k = x / 4 % 8, e = x % 4;
        const float expected = (float)ordo_accumulator_column(t, 8 * k + e / 2 * 4 + e % 2);
        if (got[x] != expected)
            wrong += print_difference(wrong, t, 4 * k + e, got[x], expected);
    }
    report("row statistics by four", wrong, 128 * 32);
    TRY(cudaFree(there));
    TRY(cudaFree(out));
}

int main()
{
    if (device_is_missing())
        return 77;
    TRY(cudaFuncSetAttribute(load_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    for (int dims = 64; dims <= 128; dims += 64)
        for (int rows = 64; rows <= 192; rows += 64)
            for (int row0 = 0; row0 <= 64; row0 += 64)
                test_load(dims, rows, row0);

    test_product<64, 0, 0, 4>(64, 0, 64);
    test_product<64, 0, 0, 8>(128, 0, 64);
    test_product<64, 0, 0, 8>(128, 1, 64);
    test_product<128, 0, 0, 8>(128, 1, 128);
    test_product<128, 0, 0, 4>(192, 2, 128);
    test_product<128, 0, 0, 8>(192, 1, 192);
    test_product<64, 0, 1, 8>(64, 0, 64);
    test_product<64, 0, 1, 8>(64, 0, 128);
    test_product<128, 0, 1, 4>(64, 0, 128);
    test_product<128, 0, 1, 8>(128, 1, 128);
    test_product<64, 1, 0, 8>(128, 0, 64);
    test_product<64, 1, 0, 8>(128, 1, 64);
    test_product<128, 1, 1, 8>(128, 1, 128);
    test_product<128, 1, 1, 4>(128, 0, 128);

    test_chain<64>();
    test_chain<128>();
    test_dq<64>();
    test_dq<128>();
    test_store(0);
    test_store(64);
    test_statistics();
    return report_all();
}
