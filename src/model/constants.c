/* constants.c: the constants of both calibrations as one table, and models made from it.
 *
 * A row names the machine's key that gives the value, if any, and what stands in for it: nothing
 * (the machine must give it, or the limiter does not exist there), or a constant of the
 * calibration with its kind and source. To add a constant, add a row and an index in model.h. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/status.h"

#define PHYSICAL "physical"
#define COUNTED  "counted"
#define FITTED   "fitted"
#define CHOICE   "choice"

/* Where a value comes from under one calibration. */
typedef struct origin {
    const char *key, *other_key; /* of the machine; the second if it lacks the first */
    double factor;               /* value = key * factor; 0 = 1 */
    double value;                /* without a key */
    const char *kind, *source;   /* of that; NULL: there is none */
    bool needed;                 /* by GPUs: the model cannot do without */
} origin;

typedef struct row {
    const char *name, *unit, *about;
    double low, high; /* what may be set */
    origin silicon, paper;
} row;

#define FROM(key_)                                                                                 \
    {                                                                                              \
        .key = key_, .needed = true                                                                \
    }
#define FROM2(key_, or_)                                                                           \
    {                                                                                              \
        .key = key_, .other_key = or_, .needed = true                                              \
    }
#define MAYBE(key_)                                                                                \
    {                                                                                              \
        .key = key_                                                                                \
    }
#define MAYBE2(key_, or_)                                                                          \
    {                                                                                              \
        .key = key_, .other_key = or_                                                              \
    }
#define FROM_TIMES(key_, by_)                                                                      \
    {                                                                                              \
        .key = key_, .factor = by_, .needed = true                                                 \
    }
#define MAYBE_TIMES(key_, by_)                                                                     \
    {                                                                                              \
        .key = key_, .factor = by_                                                                 \
    }
#define IS(value_, kind_, source_)                                                                 \
    {                                                                                              \
        .value = value_, .kind = kind_, .source = source_                                          \
    }
#define KEY_OR(key_, value_, kind_, source_)                                                       \
    {                                                                                              \
        .key = key_, .value = value_, .kind = kind_, .source = source_                             \
    }
#define BOTH(origin_) origin_, origin_

static const char PAPER[] = "arXiv 2410.07531, as stated there";
static const char PAPER_FIT[] = "so that the speedups of arXiv 2410.07531 come out";
static const char PAPER_TILE[] = "arXiv 2410.07531: tiles of its kernels";
static const char NOT_IN_PAPER[] = "not counted by arXiv 2410.07531";
static const char FORWARD_FIT[] =
    "least squares over 26 rows of ordo's own bf16 forward pass on an H200 (bench/attention_h200), "
    "512 "
    "to 16384 rows, head sizes 64 and 128, both masks, 2026-11-15: mean error 1.9 %";
static const char BACKWARD_FIT[] =
    "least squares over 22 rows of ordo's own bf16 backward pass on an H200 "
    "(bench/attention_h200), "
    "1024 to 16384 rows, head sizes 64 and 128, both masks, 2026-11-15: mean error 2.8 %";
static const char ASM_DROP[] = "sm_90 assembly of the step that applies a mask, nvcc 13.0";
static const char CUBLASLT[] =
    "captured launches of cuBLASLt 13.0 on an H200, all of 24 algorithms, 2026-11-15";
static const char SWITCH[] = "a switch: 0 or 1";

static const row rows[ORDO_CONSTANTS] = {
    [ORDO_C_WORKERS] = { "workers", "count", "multiprocessors, or cores", 1, 1e6,
                         BOTH(FROM("workers")) },
    [ORDO_C_CLOCK_TENSOR] = { "clock_tensor", "GHz", "clock while tensor cores are busy", 0.01, 20,
                              FROM2("clock_burst_ghz", "clock_ghz"),
                              FROM2("clock_datasheet_ghz", "clock_ghz") },
    [ORDO_C_CLOCK_BACKWARD] = { "clock_backward", "GHz", "clock in backward attention", 0.01, 20,
                                FROM("clock_ghz"), FROM2("clock_datasheet_ghz", "clock_ghz") },
    [ORDO_C_CLOCK_ORDINARY] = { "clock_ordinary", "GHz", "clock while tensor cores idle", 0.01, 20,
                                FROM2("clock_max_ghz", "clock_ghz"),
                                FROM2("clock_datasheet_ghz", "clock_ghz") },
    [ORDO_C_TENSOR_BF16] = { "tensor_bf16", "flop/clk", "bf16 products of a worker", 1, 1e8,
                             BOTH(MAYBE("mma_flop_per_clk_bf16")) },
    [ORDO_C_TENSOR_FP8] = { "tensor_fp8", "flop/clk", "fp8 products of a worker", 1, 1e8,
                            BOTH(MAYBE("mma_flop_per_clk_fp8")) },
    [ORDO_C_TENSOR_F16] = { "tensor_f16", "flop/clk", "f16 products of a worker", 1, 1e8,
                            BOTH(MAYBE("mma_flop_per_clk_f16")) },
    [ORDO_C_TENSOR_F32] = { "tensor_f32", "flop/clk", "f32 multiply-adds of a worker", 1, 1e8,
                            BOTH(MAYBE("mma_flop_per_clk_f32")) },
    [ORDO_C_HBM_READ] = { "hbm_read", "B/s", "main memory, reads", 1e6, 1e17,
                          MAYBE2("hbm_read_bytes_per_s", "hbm_bytes_per_s"),
                          MAYBE("hbm_bytes_per_s") },
    [ORDO_C_HBM_WRITE] = { "hbm_write", "B/s", "main memory, writes", 1e6, 1e17,
                           MAYBE2("hbm_write_bytes_per_s", "hbm_bytes_per_s"),
                           MAYBE("hbm_bytes_per_s") },
    [ORDO_C_HBM_COPY] = { "hbm_copy", "B/s", "main memory, reads and writes in turn", 1e6, 1e17,
                          MAYBE2("hbm_copy_bytes_per_s", "hbm_bytes_per_s"),
                          MAYBE("hbm_bytes_per_s") },
    [ORDO_C_LINK] = { "link", "B/s", "link between devices, one direction", 1e3, 1e17,
                      BOTH(MAYBE_TIMES("nvlink_bytes_per_s", 0.5)) },
    [ORDO_C_L2_READ] = { "l2_read", "B/clk", "L2 to one worker", 0.001, 1e6,
                         MAYBE2("l2_read_bytes_per_s", "l2_port_bytes_per_clk"),
                         MAYBE("l2_port_bytes_per_clk") },
    [ORDO_C_L2_ADD] = { "l2_add", "B/clk", "additions of one worker into L2", 0.001, 1e6,
                        BOTH(MAYBE("reduce_bytes_per_clk")) },
    [ORDO_C_ISSUE] = { "issue", "lane/clk", "instructions issued", 0.1, 1e6,
                       BOTH(FROM_TIMES("issue_per_clk", 32)) },
    [ORDO_C_ALU] = { "alu", "lane/clk", "integer and logic operations", 1, 1e6,
                     BOTH(FROM("alu_lanes")) },
    [ORDO_C_FMA] = { "fma", "lane/clk", "f32 multiply-adds", 1, 1e6, BOTH(FROM("fma_lanes")) },
    [ORDO_C_IMAD] = { "imad", "lane/clk", "integer multiply-adds", 1, 1e6,
                      BOTH(FROM("imad_lanes")) },
    [ORDO_C_IMAD_WIDE] = { "imad_wide", "lane/clk", "32 x 32 to 64-bit multiply-adds", 1, 1e6,
                           FROM("imad_wide_lanes"), FROM("imad_lanes") },
    [ORDO_C_MUFU] = { "mufu", "lane/clk", "exp2", 1, 1e6, BOTH(FROM("mufu_lanes")) },
    [ORDO_C_RF] = { "rf", "lane/clk", "register operands read", 1, 1e6,
                    BOTH(FROM("rf_reads_per_clk")) },
    [ORDO_C_SHARED] = { "shared", "B/clk", "shared memory", 1, 1e6,
                        BOTH(MAYBE("shared_bytes_per_clk")) },
    [ORDO_C_REGISTERS] = { "registers", "count", "registers of a worker", 1, 1e8,
                           BOTH(MAYBE("registers_per_worker")) },
    [ORDO_C_MEMORY] = { "memory", "B", "main memory", 1, 1e17, BOTH(MAYBE("memory_bytes")) },
    [ORDO_C_POWER] = { "power", "W", "power limit of the board", 1, 1e6, MAYBE("board_power_w"),
                       IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_LAUNCH] = { "launch", "ns", "from one kernel to the next", 0, 1e9,
                        MAYBE("launch_graph_ns"), IS(0, FITTED, NOT_IN_PAPER) },

    [ORDO_C_GEMM_EFFICIENCY_16] = { "gemm_efficiency", "", "GEMM rate over peak, 16 bits", 0.001, 1,
                                    KEY_OR("mma_active_gemm_bf16", 0.946, FITTED,
                                           "assumed equal to H200"),
                                    KEY_OR("gemm_efficiency", 0.895, FITTED, PAPER_FIT) },
    [ORDO_C_GEMM_EFFICIENCY_FP8] = { "gemm_efficiency_fp8", "", "GEMM rate over peak, fp8", 0.001,
                                     1,
                                     KEY_OR("mma_active_gemm_fp8", 0.906, FITTED,
                                            "assumed equal to H200"),
                                     KEY_OR("gemm_efficiency", 0.895, FITTED, PAPER_FIT) },
    [ORDO_C_GEMM_EFFICIENCY_F32] = { "gemm_efficiency_f32", "", "GEMM rate over peak, f32", 0.001,
                                     1, BOTH(IS(0.9, FITTED, "assumed: a good library's")) },
    [ORDO_C_GEMM_TILE_M] = { "gemm_tile_m", "", "rows of a GEMM's tile", 1, 4096,
                             IS(128, COUNTED, CUBLASLT), IS(128, COUNTED, PAPER_TILE) },
    [ORDO_C_GEMM_TILE_N] = { "gemm_tile_n", "", "columns of a GEMM's tile", 1, 4096,
                             IS(256, COUNTED, CUBLASLT), IS(128, COUNTED, PAPER_TILE) },
    [ORDO_C_GEMM_TILE_K] = { "gemm_tile_k", "", "depth of a GEMM's step", 1, 4096,
                             BOTH(IS(128, COUNTED, PAPER_TILE)) },
    [ORDO_C_GEMM_ISSUE_STEP] = { "gemm_issue_step", "", "warp instructions of a step", 0, 1e6,
                                 BOTH(IS(100, FITTED, "assumed: never binds")) },
    [ORDO_C_GEMM_ISSUE_OUTPUT] = { "gemm_issue_output", "", "instructions an output element", 0,
                                   1e6, BOTH(IS(8, FITTED, "assumed: never binds")) },
    [ORDO_C_GEMM_MULTICAST] = { "gemm_multicast", "", "workers that share a read of L2", 1, 64,
                                BOTH(IS(2, FITTED, "assumed: clusters of two")) },
    [ORDO_C_GEMM_REGISTERS] = { "gemm_registers", "count", "of a GEMM's thread", 1, 255,
                                IS(168, COUNTED, CUBLASLT), IS(160, COUNTED, PAPER) },
    [ORDO_C_GEMM_THREADS] = { "gemm_threads", "count", "of a GEMM's block", 1, 2048,
                              BOTH(IS(384, COUNTED, CUBLASLT)) },

    [ORDO_C_ATTENTION_EFFICIENCY] = { "attention_efficiency", "", "product rate over peak", 0.001,
                                      1, IS(0.984, FITTED, FORWARD_FIT),
                                      IS(0.75, FITTED, "FlashAttention-3: 740 of 989 TFLOP/s") },
    [ORDO_C_ATTENTION_EXPOSED] = { "attention_exposed", "clk",
                                   "of a score that products do not hide", 0, 100,
                                   IS(0.0352, FITTED, FORWARD_FIT), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_ATTENTION_TILE_CLK] = { "attention_tile_clk", "clk", "start and end of a tile of rows",
                                    0, 1e7, IS(3620, FITTED, FORWARD_FIT),
                                    IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_ATTENTION_TILE_Q] = { "attention_tile_q", "", "rows of a tile", 1, 4096,
                                  IS(128, COUNTED, "ordo's tile at head size 128"),
                                  IS(64, COUNTED, PAPER_TILE) },
    [ORDO_C_ATTENTION_TILE_K] = { "attention_tile_k", "", "columns of a tile", 1, 4096,
                                  BOTH(IS(128, COUNTED, PAPER_TILE)) },
    [ORDO_C_ATTENTION_SCALE] = { "attention_scale", "", "factor on attention's instructions", 0.001,
                                 1000, BOTH(IS(1, CHOICE, "as counted")) },
    [ORDO_C_BACKWARD_EFFICIENCY] = { "backward_efficiency", "", "product rate over peak", 0.001, 1,
                                     IS(0.72, FITTED, BACKWARD_FIT),
                                     IS(0.75, FITTED, "assumed equal to forward") },
    [ORDO_C_BACKWARD_EXPOSED] = { "backward_exposed", "clk", "of a score that products do not hide",
                                  0, 100, IS(0.0279, FITTED, BACKWARD_FIT),
                                  IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_BACKWARD_TILE_CLK] = { "backward_tile_clk", "clk", "start and end of a tile of keys", 0,
                                   1e7, IS(9879, FITTED, BACKWARD_FIT),
                                   IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_BACKWARD_TILE_Q] = { "backward_tile_q", "", "rows of a backward tile", 1, 4096,
                                 BOTH(IS(64, COUNTED, "ordo's backward tile at head size 128")) },
    [ORDO_C_BACKWARD_TILE_K] = { "backward_tile_k", "", "columns of a backward tile", 1, 4096,
                                 BOTH(IS(128, COUNTED, "ordo's backward tile")) },
    [ORDO_C_BACKWARD_FACTOR] = { "backward_factor", "", "backward over forward; 0: by its limiters",
                                 0, 1000, IS(0, CHOICE, "by its limiters"),
                                 IS(2.5, COUNTED, "five products instead of two") },
    [ORDO_C_DROP] = { "drop", "", "cost of applying a mask, of attention", 0, 10,
                      IS(0, FITTED, "by its instructions instead"), IS(0.12, FITTED, PAPER) },
    [ORDO_C_DROP_ALU_16] = { "drop_alu", "", "instructions to apply a mask, 16 bits", 0, 100,
                             IS(1.25, COUNTED, ASM_DROP), IS(0, COUNTED, "in `drop`") },
    [ORDO_C_DROP_ALU_FP8] = { "drop_alu_fp8", "", "instructions to apply a mask, fp8", 0, 100,
                              IS(0.75, COUNTED, ASM_DROP), IS(0, COUNTED, "in `drop`") },
    [ORDO_C_FUSED_EXPOSED] = { "fused_exposed", "", "share of fused generation not hidden", 0, 1,
                               IS(0.5, FITTED,
                                  "assumed: half; FlashAttention-2 with dropout on an H200 exposes "
                                  "all of it, a max() over limiters none"),
                               IS(0, FITTED, "arXiv 2410.07531 takes the maximum") },

    [ORDO_C_RNG_SCALE] = { "rng_scale", "", "factor on the generator's instructions", 0.001, 1000,
                           BOTH(IS(1, CHOICE, "as counted")) },
    [ORDO_C_RNG_RF] = { "rng_rf", "", "register operands an instruction", 0, 4,
                        BOTH(IS(2.2, FITTED, "assumed: never binds")) },
    [ORDO_C_RNG_REGISTERS] = { "rng_registers", "count", "of a generator's thread", 1, 255,
                               BOTH(IS(32, COUNTED, "compiler's report, sm_90")) },
    [ORDO_C_RNG_CPU_CLK] = { "rng_cpu_clk", "clk", "of a CPU core for one sliced draw of 8 bits", 0,
                             1000,
                             KEY_OR("mask_clk", 0.37, FITTED,
                                    "7.07e9 elements a second on one Neoverse V1 core at 2.6 GHz, "
                                    "bench/RESULTS.md"),
                             IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_ISSUE_EFFICIENCY] = { "issue_efficiency", "", "usable share of issue slots", 0.001, 1,
                                  IS(1, FITTED, "the shared slot binds first"),
                                  KEY_OR("issue_efficiency", 0.883, FITTED, PAPER_FIT) },
    [ORDO_C_SLOT_EFFICIENCY] = { "slot_efficiency", "", "usable share of the shared slot", 0.001, 1,
                                 IS(0.98, FITTED,
                                    "eight generators of 2^31 elements on an H200, 2026-11-15"),
                                 IS(1, FITTED, NOT_IN_PAPER) },
    [ORDO_C_WIDE_STEAL] = { "wide_steal", "clk",
                            "tensor cycles a wide multiplication takes beside it", 0, 1000,
                            MAYBE("mma_clk_per_imad_wide"), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_GEMM_SLOW] = { "gemm_slow", "", "slowdown of a GEMM beside generation", 0, 10,
                           IS(0, FITTED, "by stolen cycles instead"), IS(0.04, FITTED, PAPER) },
    [ORDO_C_CARVE_OUT] = { "carve_out", "", "slowdown of a GEMM that leaves it room", 0, 10,
                           IS(0, FITTED, "a GEMM at 160 registers ran as fast, 2026-11-15"),
                           IS(0.005, FITTED, PAPER) },
    [ORDO_C_RNG_SLOW] = { "rng_slow", "", "time factor of generation beside a GEMM", 1, 1000,
                          IS(5.1, FITTED, "1270 us beside wgmma, 247 us alone, H200, 2026-11-15"),
                          IS(2, FITTED,
                             "arXiv 2410.07531: \"50% slowdown\", read as half the speed") },
    [ORDO_C_SEGMENT_LAUNCH] = { "segment_launch", "ns", "added by a segment of the pipeline", 0,
                                1e9, BOTH(IS(4000, FITTED, "assumed: a few launches")) },

    [ORDO_C_ENERGY_16] = { "energy", "pJ", "energy of a 16-bit flop, at the power limit", 0, 1e6,
                           MAYBE("mma_pj_per_flop_bf16"), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_ENERGY_FP8] = { "energy_fp8", "pJ", "energy of an fp8 flop, at the power limit", 0, 1e6,
                            MAYBE("mma_pj_per_flop_fp8"), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_ORDINARY_POWER] = { "ordinary_power", "W", "drawn while tensor cores idle", 0, 1e6,
                                MAYBE("ordinary_power_w"), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_POWER_CREDIT] = { "power_credit", "", "share of unused power that comes back as clock",
                              0, 1,
                              IS(0.6, FITTED,
                                 "masks between GEMMs for seconds on an H200, 2026-11-15: 0.39 in "
                                 "bf16, 0.85 in fp8"),
                              IS(0, FITTED, NOT_IN_PAPER) },

    [ORDO_C_STEADY] = { "steady", "", "the power limit acts: seconds of load, not milliseconds", 0,
                        1, IS(1, CHOICE, SWITCH), IS(0, CHOICE, SWITCH) },
    [ORDO_C_WHOLE_WAVES] = { "whole_waves", "", "count whole waves of tiles", 0, 1,
                             BOTH(IS(0, CHOICE, SWITCH)) },
    [ORDO_C_REFINED] = { "refined", "", "a GEMM is slowed only while generation runs", 0, 1,
                         BOTH(IS(0, CHOICE, SWITCH)) },
    [ORDO_C_SHARED_SLOT] = { "shared_slot", "", "ALU, wide multiplies, uniform share a slot", 0, 1,
                             IS(1, FITTED, "instruction mixtures on an H200, 2026-11-15"),
                             IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_COUNT_WRITES] = { "count_writes", "", "count what a GEMM and attention write", 0, 1,
                              IS(1, CHOICE, SWITCH), IS(0, CHOICE, SWITCH) },
    [ORDO_C_COUNT_MEMORY] = { "count_memory", "", "count layer norms, residuals, activation", 0, 1,
                              IS(1, CHOICE, SWITCH), IS(0, CHOICE, SWITCH) },
    [ORDO_C_TAILS_COUNTED] = { "tails_counted", "", "gemm_efficiency has part-filled waves in it",
                               0, 1, IS(1, FITTED, "tensor activity over whole GEMMs"),
                               IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_CORESIDENT] = { "coresident", "", "1 always, 0 never, -1 by registers", -1, 1,
                            IS(-1, CHOICE, "registers decide"), IS(1, FITTED, PAPER) },
};

/* Names that stand for several constants, in ordo_model_scale(). */
static const struct group {
    const char *name;
    ordo_constant member[4];
    int count;
} groups[] = {
    { "tensor",
      { ORDO_C_TENSOR_BF16, ORDO_C_TENSOR_FP8, ORDO_C_TENSOR_F16, ORDO_C_TENSOR_F32 },
      4 },
    { "hbm", { ORDO_C_HBM_READ, ORDO_C_HBM_WRITE, ORDO_C_HBM_COPY }, 3 },
    { "l2", { ORDO_C_L2_READ, ORDO_C_L2_ADD }, 2 },
    { "clock", { ORDO_C_CLOCK_TENSOR, ORDO_C_CLOCK_BACKWARD, ORDO_C_CLOCK_ORDINARY }, 3 },
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

static const origin *origin_of(ordo_calibration calibration, size_t index)
{
    return calibration == ORDO_CALIBRATION_PAPER ? &rows[index].paper : &rows[index].silicon;
}

/* What the kind of a machine's key is called here: a measured rate is a property of the part. */
static const char *kind_of(const ordo_machine_rule *rule)
{
    return strcmp(rule->key.kind, FITTED) == 0 ? FITTED : PHYSICAL;
}

/* Take the value from a key of the machine; false if it does not give it. */
static bool take_key(ordo_model *model, size_t index, const char *key, double factor)
{
    if (!key)
        return false;
    const ordo_machine_rule *rule = ordo_machine_rule_at(ordo_machine_rule_find(key, strlen(key)));
    const char *source = ordo_machine_source(model->machine, key);
    double value;
    if (!rule || !source || ordo_machine_get(model->machine, key, &value) != ORDO_OK)
        return false;
    value *= factor != 0 ? factor : 1;
    /* A device's rate a second as one worker's rate a clock: workers and clock stand above. */
    if (strcmp(rule->key.unit, "B/s") == 0 && strcmp(rows[index].unit, "B/clk") == 0)
        value /= model->value[ORDO_C_WORKERS] * model->value[ORDO_C_CLOCK_TENSOR] * 1e9;
    model->value[index] = value;
    model->source[index] = source;
    model->kind[index] = kind_of(rule);
    return true;
}

/* Value of one constant; false if the machine should have given it and does not. */
static bool resolve(ordo_model *model, size_t index)
{
    const origin *from = origin_of(model->calibration, index);
    if (take_key(model, index, from->key, from->factor) ||
        take_key(model, index, from->other_key, from->factor))
        return true;
    if (from->source) {
        model->value[index] = from->value;
        model->source[index] = from->source;
        model->kind[index] = from->kind;
        return true;
    }
    model->source[index] = "the machine does not say";
    model->kind[index] = PHYSICAL;
    return !from->needed;
}

/* CPUs have one clock, no lanes to count, and main memory under another name. */
static void resolve_cpu(ordo_model *model)
{
    const char *memory = "dram_bytes_per_s";
    if (!take_key(model, ORDO_C_HBM_READ, "dram_read_bytes_per_s", 1))
        (void)take_key(model, ORDO_C_HBM_READ, memory, 1);
    (void)take_key(model, ORDO_C_HBM_WRITE, memory, 1);
    (void)take_key(model, ORDO_C_HBM_COPY, memory, 1);
    model->value[ORDO_C_ATTENTION_EXPOSED] = model->value[ORDO_C_BACKWARD_EXPOSED] = 0;
    model->value[ORDO_C_ATTENTION_TILE_CLK] = model->value[ORDO_C_BACKWARD_TILE_CLK] = 0;
    for (int i = ORDO_C_ATTENTION_EXPOSED; i <= ORDO_C_BACKWARD_TILE_CLK; i++)
        if (model->value[i] == 0)
            model->source[i] = "none on a CPU: in the efficiency";
    static const struct {
        ordo_constant constant;
        const char *key;
        double value;
        const char *source;
    } own[] = {
        { ORDO_C_ATTENTION_EFFICIENCY, "cpu_forward_efficiency", 0.63,
          "assumed equal to NEON on Neoverse V1, bench/RESULTS.md" },
        { ORDO_C_BACKWARD_EFFICIENCY, "cpu_backward_efficiency", 0.67,
          "assumed equal to NEON on Neoverse V1, bench/RESULTS.md" },
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!take_key(model, own[i].constant, own[i].key, 1)) {
            model->value[own[i].constant] = own[i].value;
            model->source[own[i].constant] = own[i].source;
            model->kind[own[i].constant] = FITTED;
        }
}

ordo_status ordo_model_create(ordo_model **model, const ordo_machine *machine,
                              ordo_calibration calibration)
{
    if (!model || !machine)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s: expected a pointer, got NULL",
                         model ? "machine" : "model");
    *model = NULL;
    if ((unsigned)calibration >= ORDO_CALIBRATIONS)
        return ordo_fail(ORDO_ERR_ARGUMENT, "calibration %d: expected silicon or paper",
                         (int)calibration);
    const bool cpu = ordo_machine_family_of(machine) == ORDO_MACHINE_CPU;
    if (cpu && calibration == ORDO_CALIBRATION_PAPER)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "calibration paper: describes GPUs, and machine \"%s\" is a CPU",
                         ordo_machine_name(machine));
    ordo_model *made = calloc(1, sizeof *made);
    if (!made)
        return ordo_fail(ORDO_ERR_MEMORY, "model: out of memory");
    made->machine = machine;
    made->calibration = calibration;
    char missing[320] = "";
    size_t used = 0;
    for (size_t i = 0; i < ORDO_CONSTANTS; i++)
        if (!resolve(made, i) && !cpu && used < sizeof missing) {
            const int n = snprintf(missing + used, sizeof missing - used, "%s%s",
                                   used > 0 ? ", " : "", origin_of(calibration, i)->key);
            used += n > 0 ? (size_t)n : 0;
        }
    if (used > 0) {
        free(made);
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "machine \"%s\" does not give %s",
                         ordo_machine_name(machine), missing);
    }
    if (cpu)
        resolve_cpu(made);
    *model = made;
    return ORDO_OK;
}

void ordo_model_destroy(ordo_model *model)
{
    free(model);
}

size_t ordo_model_constant_count(void)
{
    return ORDO_CONSTANTS;
}

ordo_status ordo_model_constant_at(const ordo_model *model, size_t index,
                                   ordo_model_constant *constant)
{
    if (!model || !constant)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s: expected a pointer, got NULL",
                         model ? "constant" : "model");
    if (index >= ORDO_CONSTANTS)
        return ordo_fail(ORDO_ERR_ARGUMENT, "index %zu: expected less than %d", index,
                         ORDO_CONSTANTS);
    *constant = (ordo_model_constant) {
        .name = rows[index].name,
        .unit = rows[index].unit,
        .kind = model->kind[index],
        .source = model->source[index],
        .about = rows[index].about,
        .value = model->value[index],
        .changed = model->changed[index],
    };
    return ORDO_OK;
}

static size_t find(const char *name)
{
    size_t i = 0;
    while (i < ORDO_CONSTANTS && strcmp(rows[i].name, name) != 0)
        i++;
    return i;
}

static const struct group *find_group(const char *name)
{
    for (size_t i = 0; i < GROUPS; i++)
        if (strcmp(groups[i].name, name) == 0)
            return &groups[i];
    return NULL;
}

/* Length of what two words begin with alike: enough to guess what was meant. */
static size_t alike(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] != '\0' && a[n] == b[n])
        n++;
    return n;
}

static ordo_status unknown(const char *name)
{
    const char *nearest = groups[0].name;
    for (size_t i = 0; i < GROUPS; i++)
        if (alike(groups[i].name, name) > alike(nearest, name))
            nearest = groups[i].name;
    for (size_t i = 0; i < ORDO_CONSTANTS; i++)
        if (alike(rows[i].name, name) > alike(nearest, name))
            nearest = rows[i].name;
    if (alike(nearest, name) >= 2)
        return ordo_fail(ORDO_ERR_ARGUMENT, "constant \"%.60s\" is unknown, did you mean \"%s\"?",
                         name, nearest);
    return ordo_fail(ORDO_ERR_ARGUMENT,
                     "constant \"%.60s\" is unknown; `ordo model constants` lists them", name);
}

static ordo_status change(ordo_model *model, size_t index, double value)
{
    const row *r = &rows[index];
    if (!(value >= r->low && value <= r->high))
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s = %g: expected %g to %g%s%s", r->name, value,
                         r->low, r->high, r->unit[0] != '\0' ? " " : "", r->unit);
    model->value[index] = value;
    model->changed[index] = true;
    return ORDO_OK;
}

ordo_status ordo_model_set(ordo_model *model, const char *name, double value)
{
    if (!model || !name)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s: expected a pointer, got NULL",
                         model ? "name" : "model");
    const size_t index = find(name);
    if (index < ORDO_CONSTANTS)
        return change(model, index, value);
    if (find_group(name))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s = %g: stands for several constants, expected a factor", name, value);
    return unknown(name);
}

ordo_status ordo_model_scale(ordo_model *model, const char *name, double factor)
{
    if (!model || !name)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s: expected a pointer, got NULL",
                         model ? "name" : "model");
    if (!(factor > 0 && factor <= 1e6))
        return ordo_fail(ORDO_ERR_ARGUMENT, "%.60s: factor %g, expected more than 0, at most 1e6",
                         name, factor);
    const struct group *group = find_group(name);
    const size_t index = find(name);
    if (!group && index == ORDO_CONSTANTS)
        return unknown(name);
    if (!group)
        return change(model, index, model->value[index] * factor);
    for (int i = 0; i < group->count; i++)
        if (model->value[group->member[i]] > 0)
            ORDO_TRY(
                change(model, (size_t)group->member[i], model->value[group->member[i]] * factor));
    return ORDO_OK;
}

double ordo_model_tensor(const ordo_model *model, ordo_precision precision)
{
    static const ordo_constant of[ORDO_PRECISIONS] = { ORDO_C_TENSOR_BF16, ORDO_C_TENSOR_FP8,
                                                       ORDO_C_TENSOR_F16, ORDO_C_TENSOR_F32 };
    return model->value[of[precision]];
}

double ordo_model_flop_energy(const ordo_model *model, ordo_precision precision)
{
    const double pj = precision == ORDO_PRECISION_FP8   ? model->value[ORDO_C_ENERGY_FP8]
                      : precision == ORDO_PRECISION_F32 ? 0
                                                        : model->value[ORDO_C_ENERGY_16];
    return pj * 1e-12;
}

int ordo_precision_bytes(ordo_precision precision)
{
    static const int bytes[ORDO_PRECISIONS] = { 2, 1, 2, 4 };
    return bytes[precision];
}
