/* fingerprint.cu: prints the arithmetic of a graphics card: hashes of its matrix products and of
 * its special functions, and which of ordo's models of them the card follows.
 *
 *   nvcc -O2 -arch=native tools/fingerprint.cu -o fingerprint && ./fingerprint
 *
 * (-arch=sm_90a on Hopper adds wgmma to mma.sync.) This file needs nothing else. `--record FILE`
 * writes the products with their operands; tests/data/emulator/products.bin is such a file, and
 * ordo's tests compare its models with it and with the hashes below. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

static const char help[] =
    "usage: fingerprint [--json] [--record FILE]\n"
    "\n"
    "Print hashes of a card's arithmetic, and which of ordo's models of it the card follows.\n"
    "\n"
    "  --json         print one JSON object\n"
    "  --record FILE  write the operands and results of the products to FILE\n"
    "  --help         print this\n"
    "\n"
    "Exit status: 0 all parts follow a model; 1 some part does not; 2 usage; 3 no device, or it "
    "fails.\n";

/* What tests/emulator/ computes from the models. Hopper: measured on an H200. Ampere: by a model
 * that was not verified on a device. */
#define HASH_HOPPER 0x3bada71fd2fc088dull
#define HASH_AMPERE 0x9429e01feea27a74ull

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                                \
            fprintf(stderr, "fingerprint: %s: %s\n", #call, cudaGetErrorString(error));            \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

/* A hash of words, as FNV-1a is one of bytes. */
#define HASH_START 1469598103934665603ull
static uint64_t hash_words(uint64_t hash, const uint32_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ words[i]) * 0x100000001b3ull;
    return hash;
}

/* ---- products ---- */

enum { M = 64, N = 8, K = 16, KINDS = 12, TILES = 2 * KINDS, THREADS = 128 };

/* d = c + a b: what --record writes, 24 times; little endian. */
typedef struct tile {
    uint32_t f16; /* 0: bf16 */
    uint16_t a[M][K], b[K][N];
    uint32_t c[M][N], d[M][N];
} tile;

static uint64_t state = 1;

static uint32_t draw(void) /* splitmix64 */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}

/* An element by its exponent field, which is brought into the finite range. */
static uint16_t half(int f16, int field)
{
    const int bits = f16 ? 10 : 7, top = f16 ? 31 : 255;
    field = field < 0 ? 0 : field >= top ? top - 1 : field;
    return (uint16_t)((draw() & 1) << 15 | field << bits | (draw() & ((1 << bits) - 1)));
}

static uint16_t element(int f16, int kind, int second, int middle)
{
    const int bits = f16 ? 10 : 7, top = f16 ? 31 : 255, low = f16 ? 0 : second ? 100 : 0;
    switch (kind) {
    case 0: return half(f16, top / 2 - 3 + (int)(draw() % 6)); /* around 1 */
    case 1: return half(f16, (int)(draw() % top));             /* any exponent */
    case 2: return half(f16, middle + (int)(draw() % 40) - 20);
    case 3: return half(f16, draw() % 4 ? 0 : middle);  /* subnormal numbers */
    case 4: return half(f16, low + (int)(draw() % 14)); /* products at the lower end of f32 */
    case 5: return half(f16, f16 ? 30 : (second ? 168 : 200) + (int)(draw() % 9)); /* upper end */
    case 6: /* equal largest significands */
        return (uint16_t)((draw() % 30 == 0) << 15 | (top / 2) << bits | ((1 << bits) - 1));
    case 7: /* powers of two that cancel */
        return (uint16_t)((draw() & 1) << 15 | (top / 2 + (int)(draw() % 3)) << bits);
    case 8: /* mostly zeros, and large numbers */
        return draw() % 3 ? (uint16_t)(draw() & 0x8000) : half(f16, top - 1 - (int)(draw() % 3));
    case 9: /* infinities and NaN */
        return draw() % 40 ? half(f16, middle) : (uint16_t)(draw() | (uint32_t)top << bits);
    case 10: /* one large term and others at the limit of alignment */
        return half(f16, top / 2 - 12 + (draw() % 16 ? (int)(draw() % 3) : 12 + (int)(draw() % 2)));
    default: return (uint16_t)draw(); /* any bits */
    }
}

static void make(tile *t, int f16, int kind)
{
    const int middle = (int)(draw() % (f16 ? 31 : 255)), around = 2 * middle + (f16 ? 97 : -127);
    t->f16 = (uint32_t)f16;
    for (int i = 0; i < M * K; i++)
        t->a[i / K][i % K] = element(f16, kind, 0, middle);
    for (int i = 0; i < K * N; i++)
        t->b[i / N][i % N] = element(f16, kind, 1, middle);
    for (int i = 0; i < M * N; i++) {
        const int field = around + (int)(draw() % 60) - 30;
        uint32_t c = draw();
        if (draw() % 3)
            c = (c & 0x807fffffu) | (uint32_t)(field < 0 ? 0 : field > 254 ? 254 : field) << 23;
        if (kind == 4 && !f16)
            c &= 0x80ffffffu; /* tiny */
        if (kind == 5 && !f16)
            c = (c | 0x7c000000u) & 0xff7fffffu; /* large */
        if (draw() % (kind == 4 ? 2 : 5) == 0)
            c &= 0x80000000u;
        t->c[i / N][i % N] = c;
    }
}

/* Four warps, 16 rows each. A thread of a warp has rows r = lane / 4 and r + 8, and of c and d the
 * columns 2 (lane % 4) and the next; of a also those + 8, and of b those as rows of column r. */
template <bool F16> __device__ void multiply(const tile &t, uint32_t (&d)[4], bool warpgroup)
{
    const int lane = threadIdx.x % 32, r = lane / 4, p = lane % 4 * 2, row = threadIdx.x / 32 * 16;
    uint32_t a[4], b[2];
    for (int x = 0; x < 4; x++) {
        const uint16_t *from = &t.a[row + r + x % 2 * 8][p + x / 2 * 8];
        a[x] = (uint32_t)from[1] << 16 | from[0];
        d[x] = t.c[row + r + x / 2 * 8][p + x % 2];
    }
    for (int x = 0; x < 2; x++)
        b[x] = (uint32_t)t.b[p + x * 8 + 1][r] << 16 | t.b[p + x * 8][r];
    float(&f)[4] = reinterpret_cast<float(&)[4]>(d);
#define MMA(type)                                                                                  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                            \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if (!warpgroup) {
        if (F16)
            MMA("f16");
        else
            MMA("bf16");
    }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    /* b in shared memory: 8 columns of 16 bytes, k 0 .. 7, then the same for k 8 .. 15 */
    __shared__ __align__(128) uint16_t shared[2][N][8];
    if (warpgroup) {
        shared[threadIdx.x / 64][threadIdx.x / 8 % 8][threadIdx.x % 8] =
            t.b[threadIdx.x / 64 * 8 + threadIdx.x % 8][threadIdx.x / 8 % 8];
        __syncthreads();
        asm volatile("fence.proxy.async;" ::: "memory");
        const uint64_t at = (uint64_t)__cvta_generic_to_shared(shared);
        const uint64_t descriptor = (at & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
#define WGMMA(type)                                                                                \
    asm volatile("wgmma.fence.sync.aligned;\n"                                                     \
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type                        \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;\n"                          \
                 "wgmma.commit_group.sync.aligned;\n"                                              \
                 "wgmma.wait_group.sync.aligned 0;"                                                \
                 : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor)                     \
                 : "memory")
        if (F16)
            WGMMA("f16");
        else
            WGMMA("bf16");
    }
#endif
}

__global__ void products(tile *tiles, bool warpgroup)
{
    tile &t = tiles[blockIdx.x];
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    uint32_t d[4];
    if (t.f16)
        multiply<true>(t, d, warpgroup);
    else
        multiply<false>(t, d, warpgroup);
    for (int x = 0; x < 4; x++)
        t.d[row + x / 2 * 8][lane % 4 * 2 + x % 2] = d[x];
}

__global__ void ask_wgmma(int *there)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    *there = 1;
#else
    *there = 0;
#endif
}

/* Run all tiles; a hash of the results. */
static uint64_t run_products(tile *tiles, bool warpgroup)
{
    tile *device;
    uint64_t hash = HASH_START;
    TRY(cudaMalloc(&device, TILES * sizeof *tiles));
    TRY(cudaMemcpy(device, tiles, TILES * sizeof *tiles, cudaMemcpyHostToDevice));
    products<<<TILES, THREADS>>>(device, warpgroup);
    TRY(cudaMemcpy(tiles, device, TILES * sizeof *tiles, cudaMemcpyDeviceToHost));
    TRY(cudaFree(device));
    for (int i = 0; i < TILES; i++)
        hash = hash_words(hash, &tiles[i].d[0][0], M * N);
    return hash;
}

static const char *model_of(uint64_t hash)
{
    return hash == HASH_HOPPER ? "hopper" : hash == HASH_AMPERE ? "ampere" : "none";
}

/* ---- special functions ---- */

typedef enum function { EX2, LG2, RCP, LOG, FUNCTIONS } function;

/* The hashes of an H200: over 2^23 fractions from the argument `first` on, and over all arguments
 * without and with a sign (below). */
typedef struct hashes {
    const char *name;
    uint32_t first;
    uint64_t fractions, positive, negative;
} hashes;

static const hashes known[FUNCTIONS] = {
    { "ex2", 0x3f800000u, 0xc4d16eed541febedull, 0xc80f603af41448b7ull, 0xceff66d56172f07dull },
    { "lg2", 0x3f000000u, 0xa0f1d45b5bce069bull, 0xc3bb12a43e67ad93ull, 0x3f5fdaceff800000ull },
    { "rcp", 0x3f800000u, 0x3e91d9060e14dc36ull, 0x9a177596e3d2ea65ull, 0xb8daf985e79e26b5ull },
    /* logf() of CUDA 13.0, which built this; no property of the card */
    { "log", 0x3f800000u, 0xdabce1ad43b9747full, 0x9261d4c9b004efcbull, 0x05fe459b707d773cull },
};

__device__ uint32_t value_of(function f, uint32_t argument)
{
    const float x = __uint_as_float(argument);
    float y = 0;
    if (f == EX2)
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    else if (f == LG2)
        asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    else if (f == RCP)
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    else
        y = logf(x);
    return y != y ? 0x7fffffffu : __float_as_uint(y);
}

__global__ void fractions_of(function f, uint32_t first, uint32_t *to)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = value_of(f, first + i);
}

/* The sum over 2^31 arguments of (argument, result) times an odd number, mixed and multiplied once
 * more, modulo 2^64: the order does not matter. */
__global__ void sum_of(function f, uint32_t sign, unsigned long long *to)
{
    unsigned long long sum = 0;
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < 1ull << 31;
         i += gridDim.x * blockDim.x) {
        const uint32_t argument = (uint32_t)i | sign;
        unsigned long long z =
            ((unsigned long long)argument << 32 | value_of(f, argument)) * 0x9e3779b97f4a7c15ull;
        sum += (z ^ z >> 32) * 0xbf58476d1ce4e5b9ull;
    }
    atomicAdd(to, sum);
}

static hashes measure(function f)
{
    const size_t bytes = sizeof(uint32_t) << 23;
    hashes k = known[f];
    uint32_t *device, *values = (uint32_t *)malloc(bytes);
    unsigned long long *sums, host[2];
    if (!values)
        exit(3);
    TRY(cudaMalloc(&device, bytes));
    TRY(cudaMalloc(&sums, sizeof host));
    TRY(cudaMemset(sums, 0, sizeof host));
    fractions_of<<<1 << 15, 256>>>(f, k.first, device);
    TRY(cudaMemcpy(values, device, bytes, cudaMemcpyDeviceToHost));
    sum_of<<<1024, 256>>>(f, 0, sums);
    sum_of<<<1024, 256>>>(f, 0x80000000u, sums + 1);
    TRY(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost));
    TRY(cudaFree(device));
    TRY(cudaFree(sums));
    k.fractions = hash_words(HASH_START, values, 1 << 23);
    k.positive = host[0];
    k.negative = host[1];
    free(values);
    return k;
}

/* ---- the program ---- */

int main(int argc, char **argv)
{
    const char *record = NULL;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            fputs(help, stdout);
            return 0;
        } else if (!strcmp(argv[i], "--json")) {
            json = true;
        } else if (!strcmp(argv[i], "--record") && i + 1 < argc) {
            record = argv[++i];
        } else {
            fputs(help, stderr);
            return 2;
        }
    }
    cudaDeviceProp card;
    int *there, wgmma = 0, runtime = 0;
    TRY(cudaGetDeviceProperties(&card, 0));
    TRY(cudaRuntimeGetVersion(&runtime));
    TRY(cudaMalloc(&there, sizeof *there));
    ask_wgmma<<<1, 1>>>(there);
    TRY(cudaMemcpy(&wgmma, there, sizeof wgmma, cudaMemcpyDeviceToHost));

    static tile tiles[TILES];
    for (int i = 0; i < TILES; i++)
        make(&tiles[i], i % 2, i / 2);
    const uint64_t hash = run_products(tiles, false);
    if (record) {
        FILE *file = fopen(record, "wb");
        if (!file || fwrite(tiles, sizeof tiles, 1, file) != 1 || fclose(file)) {
            perror(record);
            return 3;
        }
    }
    const uint64_t group_hash = wgmma ? run_products(tiles, true) : hash;
    bool follows = strcmp(model_of(hash), "none") && strcmp(model_of(group_hash), "none");
    printf(json ? "{\"card\": \"%s\", \"capability\": \"%d.%d\", \"cuda\": %d"
                : "%s, %d.%d, CUDA %d\n",
           card.name, card.major, card.minor, runtime);
    for (int i = 0; i <= wgmma; i++) {
        const uint64_t h = i ? group_hash : hash;
        printf(json ? ", \"%s\": {\"hash\": \"%016llx\", \"model\": \"%s\"}"
                    : "%-9s %016llx                                    %s\n",
               i ? "wgmma" : "mma.sync", (unsigned long long)h, model_of(h));
    }
    for (int f = 0; f < FUNCTIONS; f++) {
        const hashes k = measure((function)f);
        const bool equal = k.fractions == known[f].fractions && k.positive == known[f].positive &&
                           k.negative == known[f].negative;
        follows &= equal;
        printf(json ? ", \"%s\": {\"fractions\": \"%016llx\", \"positive\": \"%016llx\", "
                      "\"negative\": \"%016llx\", \"model\": \"%s\"}"
                    : "%-9s %016llx %016llx %016llx  %s\n",
               k.name, (unsigned long long)k.fractions, (unsigned long long)k.positive,
               (unsigned long long)k.negative, equal ? "hopper" : "none");
    }
    if (json)
        printf("}\n");
    return !follows;
}
