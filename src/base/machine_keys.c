/* machine_keys.c: the one table of keys. To add a key, add a row: the reader, the command
 * and the tests take names, units and ranges from here and need no other change.
 *
 * Rates of a worker are per clock, because one clock serves all of them and moves with the
 * load; rates of the whole device (HBM, L2) are per second, as they were measured. */
#include "base/machine.h"

#include <string.h>

#define PHYSICAL "physical" /* a property of the part: documented, or counted */
#define MEASURED "measured" /* the result of a run, or assumed equal to one */
#define FITTED   "fitted"   /* chosen so that a model meets measurements */

#define KEY(name, unit, kind, required_by, min, max, about)                                        \
    {                                                                                              \
        { name, unit, kind, required_by, about }, min, max, false                                  \
    }
#define COUNT(name, unit, kind, required_by, min, max, about)                                      \
    {                                                                                              \
        { name, unit, kind, required_by, about }, min, max, true                                   \
    }

static const ordo_machine_range ranges[] = {
    /* Workers and clocks. */
    COUNT("workers", "count", PHYSICAL, "all", 1, 1e6, "streaming multiprocessors, or cores"),
    KEY("clock_ghz", "GHz", MEASURED, "all", 0.01, 20, "clock held under load; turns clk into ns"),
    KEY("clock_max_ghz", "GHz", PHYSICAL, "none", 0.01, 20, "highest clock without load"),
    KEY("clock_datasheet_ghz", "GHz", PHYSICAL, "none", 0.01, 20,
        "clock that the datasheet's tensor rate implies"),
    KEY("clock_steady_ghz", "GHz", MEASURED, "none", 0.01, 20,
        "clock after seconds of matrix products at the power limit"),
    KEY("clock_burst_ghz", "GHz", MEASURED, "none", 0.01, 20,
        "clock during milliseconds of matrix products"),
    COUNT("cuda_arch", "", PHYSICAL, "cuda", 50, 999, "compute capability, 90 for 9.0"),

    /* Matrix products, one worker. */
    KEY("mma_flop_per_clk_bf16", "flop/clk", PHYSICAL, "all", 1, 1e7, "dense bf16 products"),
    KEY("mma_flop_per_clk_f16", "flop/clk", PHYSICAL, "all", 1, 1e7, "dense fp16 products"),
    KEY("mma_flop_per_clk_f32", "flop/clk", PHYSICAL, "cpu", 1, 1e7,
        "true f32 multiply-adds; on a GPU those of the ordinary lanes"),
    KEY("mma_flop_per_clk_fp8", "flop/clk", PHYSICAL, "none", 1, 1e7, "dense fp8 products"),
    COUNT("mma_rows", "count", PHYSICAL, "none", 1, 4096,
          "rows of one product out of shared memory: B is read once for so many"),
    KEY("mma_efficiency", "", MEASURED, "all", 0.001, 1,
        "fraction of that rate the backward kernel reaches when nothing waits"),
    KEY("mma_active_gemm_bf16", "", MEASURED, "none", 0.001, 1,
        "fraction of cycles a bf16 GEMM keeps the tensor pipe busy"),
    KEY("mma_active_gemm_fp8", "", MEASURED, "none", 0.001, 1,
        "fraction of cycles an fp8 GEMM keeps the tensor pipe busy"),
    KEY("gemm_bf16_flop_per_s", "flop/s", MEASURED, "none", 1e6, 1e18,
        "bf16 GEMM of the whole device, after seconds of load"),
    KEY("gemm_fp8_flop_per_s", "flop/s", MEASURED, "none", 1e6, 1e18,
        "fp8 GEMM of the whole device, after seconds of load"),
    KEY("gemm_efficiency", "", FITTED, "none", 0.001, 1,
        "GEMM rate over datasheet rate in the limiter model"),
    KEY("issue_efficiency", "", FITTED, "none", 0.001, 1,
        "usable fraction of the issue slots in the limiter model"),
    KEY("mma_clk_per_imad_wide", "clk", MEASURED, "none", 0, 1000,
        "tensor cycles lost to each wide-multiply warp instruction that runs meanwhile"),

    /* Ordered sums. */
    KEY("reduce_bytes_per_clk", "B/clk", MEASURED, "all", 0.001, 1e5,
        "bytes one worker adds into L2 while all workers add"),
    KEY("reduce_alone_bytes_per_clk", "B/clk", MEASURED, "none", 0.001, 1e5,
        "the same while the others are quiet"),
    KEY("reduce_latency_clk", "clk", MEASURED, "none", 0, 1e7,
        "fixed part of one reduction, before bytes / reduce_alone_bytes_per_clk"),
    KEY("flag_latency_clk", "clk", MEASURED, "all", 0, 1e7,
        "from the end of a reduction to the start of the next contributor's"),
    KEY("grid_barrier_clk", "clk", MEASURED, "none", 0, 1e7, "barrier over all workers"),

    /* Second level of cache: a GPU's is shared by all workers, a CPU's is what one core sees. */
    COUNT("l2_bytes", "B", PHYSICAL, "all", 1024, 1e12, "size of the L2 cache"),
    COUNT("l2_budget_bytes", "B", FITTED, "all", 1024, 1e12,
          "cache that Q, dO and dQ of the heads in flight may fill"),
    COUNT("l2_parts", "count", PHYSICAL, "none", 1, 16,
          "parts of L2, each of which also keeps what its workers read of the others"),
    COUNT("l2_ways", "count", PHYSICAL, "none", 1, 4096, "associativity of the L2 cache"),
    KEY("l2_port_bytes_per_clk", "B/clk", PHYSICAL, "none", 0.001, 1e5,
        "width of one worker's port to L2"),
    KEY("l2_read_bytes_per_s", "B/s", MEASURED, "none", 1e6, 1e17, "L2 reads, whole device"),
    KEY("l2_store_bytes_per_s", "B/s", MEASURED, "none", 1e6, 1e17, "L2 stores, whole device"),
    KEY("l2_add_bytes_per_s", "B/s", MEASURED, "none", 1e6, 1e17,
        "f32 additions performed in L2, whole device"),

    /* Main memory and links. */
    COUNT("memory_bytes", "B", PHYSICAL, "none", 1 << 20, 1e16, "main memory"),
    KEY("hbm_bytes_per_s", "B/s", PHYSICAL, "cuda", 1e6, 1e16, "datasheet bandwidth of HBM"),
    KEY("hbm_read_bytes_per_s", "B/s", MEASURED, "none", 1e6, 1e16, "reads from HBM"),
    KEY("hbm_write_bytes_per_s", "B/s", MEASURED, "none", 1e6, 1e16, "writes to HBM"),
    KEY("hbm_copy_bytes_per_s", "B/s", MEASURED, "none", 1e6, 1e16, "reads plus writes of a copy"),
    KEY("dram_bytes_per_s", "B/s", MEASURED, "none", 1e6, 1e16, "CPU memory bandwidth, all cores"),
    KEY("nvlink_bytes_per_s", "B/s", PHYSICAL, "none", 1e6, 1e16, "NVLink, both directions added"),

    /* One streaming multiprocessor. */
    COUNT("registers_per_worker", "count", PHYSICAL, "cuda", 1, 1e8,
          "32-bit registers; of a CPU core, words of its vector registers"),
    COUNT("shared_bytes_per_block", "B", PHYSICAL, "cuda", 1024, 1e9,
          "shared memory one block may ask for"),
    COUNT("shared_bytes_per_worker", "B", PHYSICAL, "none", 1024, 1e9,
          "shared memory of a multiprocessor"),
    KEY("shared_bytes_per_clk", "B/clk", PHYSICAL, "none", 1, 1e6, "shared memory, read or write"),
    KEY("issue_per_clk", "warp/clk", PHYSICAL, "none", 0.1, 1000, "warp instructions issued"),
    KEY("alu_lanes", "lane/clk", PHYSICAL, "none", 1, 1e5, "integer and logic operations"),
    KEY("imad_lanes", "lane/clk", PHYSICAL, "none", 1, 1e5, "32-bit integer multiply-adds"),
    KEY("imad_wide_lanes", "lane/clk", PHYSICAL, "none", 1, 1e5,
        "32x32 to 64-bit multiply-adds; each takes an ALU slot too"),
    KEY("fma_lanes", "lane/clk", PHYSICAL, "none", 1, 1e5, "f32 multiply-adds"),
    KEY("mufu_lanes", "lane/clk", PHYSICAL, "none", 1, 1e5, "exp2 and other special functions"),
    KEY("rf_reads_per_clk", "lane/clk", PHYSICAL, "none", 1, 1e6, "register operands read"),

    COUNT("matrix_buffer_bytes", "B", PHYSICAL, "npu", 1024, 1e9,
          "buffer of one operand in front of a matrix unit"),

    /* Host side, power. */
    KEY("board_power_w", "W", PHYSICAL, "none", 1, 1e5, "power limit"),
    KEY("ordinary_power_w", "W", MEASURED, "none", 0, 1e5,
        "power drawn by kernels that leave the tensor cores idle"),
    KEY("mma_pj_per_flop_bf16", "pJ/flop", MEASURED, "none", 0, 1e6,
        "energy of the whole board over bf16 flop, GEMMs at the power limit"),
    KEY("mma_pj_per_flop_fp8", "pJ/flop", MEASURED, "none", 0, 1e6,
        "energy of the whole board over fp8 flop, GEMMs at the power limit"),
    KEY("launch_ns", "ns", MEASURED, "none", 0, 1e9, "from one kernel to the next, host launches"),
    KEY("launch_graph_ns", "ns", MEASURED, "none", 0, 1e9,
        "from one kernel to the next that depends on it, in a graph"),

    /* A CPU core: what kernels reach of it, and its caches. */
    KEY("cpu_forward_efficiency", "", MEASURED, "none", 0.001, 1,
        "share of the multiply-add rate the forward pass reaches"),
    KEY("cpu_backward_efficiency", "", MEASURED, "none", 0.001, 1,
        "share of the multiply-add rate the backward pass reaches"),
    KEY("keep_bit_clk", "clk", MEASURED, "none", 1e-6, 1e6,
        "clocks of a core for one keep bit, 8 random bits, 7 rounds"),
    KEY("l1_read_bytes_per_clk", "B/clk", MEASURED, "none", 0.001, 1e5, "loads of a core from L1"),
    KEY("l2_read_bytes_per_clk", "B/clk", MEASURED, "none", 0.001, 1e5, "loads of a core from L2"),
    KEY("l3_read_bytes_per_clk", "B/clk", MEASURED, "none", 0.001, 1e5, "loads of a core from L3"),
    KEY("dram_read_bytes_per_s", "B/s", MEASURED, "none", 1e6, 1e16,
        "CPU memory, reads, all cores"),
    KEY("dram_latency_ns", "ns", MEASURED, "none", 0, 1e7, "one load that no cache holds"),
    COUNT("line_bytes", "B", PHYSICAL, "cpu", 8, 4096, "cache line"),
    COUNT("l1_bytes", "B", PHYSICAL, "cpu", 1024, 1e9, "L1 data cache of a core"),
    COUNT("l1_ways", "count", PHYSICAL, "none", 1, 4096, "associativity of the L1 data cache"),
    COUNT("l2_sharers", "count", PHYSICAL, "none", 1, 1e6, "hardware threads that share an L2"),
    COUNT("l3_bytes", "B", PHYSICAL, "none", 1024, 1e12, "L3 cache that a core sees"),
    COUNT("l3_ways", "count", PHYSICAL, "none", 1, 4096, "associativity of the L3 cache"),
    COUNT("l3_sharers", "count", PHYSICAL, "none", 1, 1e6, "hardware threads that share an L3"),
};

enum { RANGES = sizeof ranges / sizeof ranges[0], LONGEST = 40 };

size_t ordo_machine_key_count(void)
{
    return RANGES;
}

const ordo_machine_key *ordo_machine_key_at(size_t index)
{
    return index < RANGES ? &ranges[index].key : NULL;
}

const ordo_machine_range *ordo_machine_range_at(size_t index)
{
    return index < RANGES ? &ranges[index] : NULL;
}

size_t ordo_machine_range_find(const char *name, size_t length)
{
    size_t i = 0;
    if (length == strlen("mask_clk") && memcmp(name, "mask_clk", length) == 0) {
        name = "keep_bit_clk"; /* its name until version 0.1.0; the next version removes this */
        length = strlen(name);
    }
    while (i < RANGES &&
           (strlen(ranges[i].key.name) != length || memcmp(ranges[i].key.name, name, length) != 0))
        i++;
    return i;
}

/* Levenshtein distance, one row of the matrix at a time. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            const size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[b_length];
}

const char *ordo_machine_nearest(const char *name, size_t length)
{
    if (length == 0 || length > LONGEST)
        return NULL;
    const char *nearest = NULL;
    size_t least = length / 3 + 1; /* further than that and the hint would mislead */
    for (size_t i = 0; i < RANGES; i++) {
        const char *key = ranges[i].key.name;
        const size_t d = distance(name, length, key, strlen(key));
        if (d <= least && (nearest == NULL || d < least)) {
            nearest = key;
            least = d;
        }
    }
    return nearest;
}
