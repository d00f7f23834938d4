/* price_constants.c: the constants of both calibrations as one table.
 *
 * A row names the machine's key that gives the value, if any, and what stands in for it: nothing
 * (the machine must give it, or the limiter does not exist there), or a constant of the
 * calibration with its kind and source. To add a constant, add a row and an index in price.h. */
#include "price/price.h"

#define COUNTED "counted"
#define FITTED  "fitted"
#define CHOICE  "choice"

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
static const char BY_F64[] = "sliced bits by f64 beside a GEMM that leaves room, H200, 2026-11-19";
static const char PAPER_FIT[] = "so that the speedups of arXiv 2410.07531 come out";
static const char PAPER_TILE[] = "arXiv 2410.07531: tiles of its kernels";
static const char NOT_IN_PAPER[] = "not counted by arXiv 2410.07531";
static const char FORWARD_FIT[] =
    "least squares over 26 rows of ordo's own bf16 forward pass on an H200 "
    "(bench/gpu/run attention_h200), 512 to 16384 rows, head sizes 64 and 128, both masks, "
    "2026-11-15: mean error 1.9 %";
static const char BACKWARD_FIT[] =
    "least squares over 22 rows of ordo's own bf16 backward pass on an H200 "
    "(bench/gpu/run attention_h200), 1024 to 16384 rows, head sizes 64 and 128, both masks, "
    "2026-11-15: mean error 2.8 %";
static const char FUSED_FIT[] = "rows without keep bits of lab/bench/measured/h200-dropout.json, "
                                "earlier kernels; rescaled with the count of the generator's "
                                "instructions; in proportion to the head size";
static const char TIME_FIT[] = "half of the rows of its kind in "
                               "lab/bench/measured/h200-prices.json, by lab/bench/fit_prices; keep "
                               "bits made inside above 256 do not exist";
static const char BESIDE[] =
    "rows gemm-then-rng and gemm-beside-rng of h200-calibrate.json, where each block starts its "
    "generator and waits for it: 21 and 34 us slower beside; generators that never wait for a "
    "block "
    "filled the tails in h200.json";
static const char GAPS[] =
    "half of the blocks of h200-block.json and h200-block-paper.json, overlapped and "
    "sequential, by lab/bench/fit_overlap";
static const char ASM_DROP[] = "sm_90 assembly of the step that applies keep bits, nvcc 13.0";
static const char CUBLASLT[] =
    "captured launches of cuBLASLt 13.0 on an H200, all of 24 algorithms, 2026-11-15";
static const char SWITCH[] = "a switch: 0 or 1";

/* Measured over priced time of a pass at a head size, the at-th class of
 * ordo_price_time_constant(): without dropout, with keep bits given, and with keep bits made
 * inside. */
#define TIME(pass_, dim_, keep_, index_, value_)                                                   \
    [ORDO_C_TIME + (index_)] = { pass_ "_" dim_ "_" keep_,                                         \
                                 "",                                                               \
                                 "time over the price by limiters, head size " dim_,               \
                                 0.05,                                                             \
                                 20,                                                               \
                                 IS(value_, FITTED, TIME_FIT),                                     \
                                 IS(1, CHOICE, NOT_IN_PAPER) }
#define START(pass_, dim_, keep_, index_, value_)                                                  \
    [ORDO_C_START + (index_)] = { pass_ "_" dim_ "_" keep_ "_start",                               \
                                  "ns",                                                            \
                                  "time beside that for 128 rows of a head, head size " dim_,      \
                                  0,                                                               \
                                  1e6,                                                             \
                                  IS(value_, FITTED, TIME_FIT),                                    \
                                  IS(0, CHOICE, NOT_IN_PAPER) }
#define TIMES(pass_, dim_, at_, plain_, given_, made_)                                             \
    TIME(pass_, dim_, "plain", 3 * (at_), plain_),                                                 \
        TIME(pass_, dim_, "given", 3 * (at_) + 1, given_),                                         \
        TIME(pass_, dim_, "made", 3 * (at_) + 2, made_)
#define STARTS(pass_, dim_, at_, plain_, given_, made_)                                            \
    START(pass_, dim_, "plain", 3 * (at_), plain_),                                                \
        START(pass_, dim_, "given", 3 * (at_) + 1, given_),                                        \
        START(pass_, dim_, "made", 3 * (at_) + 2, made_)

const ordo_constant_row ordo_constant_rows[ORDO_CONSTANTS] = {
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
    [ORDO_C_SHARED] = { "shared", "B/clk", "shared memory", 1, 1e6, MAYBE("shared_bytes_per_clk"),
                        IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_MMA_ROWS] = { "mma_rows", "count", "rows of a product that share a read of B", 1, 4096,
                          MAYBE("mma_rows"), IS(0, FITTED, NOT_IN_PAPER) },
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
                                IS(2, FITTED, "assumed: clusters of two"),
                                IS(1, COUNTED, "its table of limiters has no multicast") },
    [ORDO_C_GEMM_REGISTERS] = { "gemm_registers", "count", "of a GEMM's thread", 1, 255,
                                IS(168, COUNTED, CUBLASLT),
                                IS(160, FITTED,
                                   "derived: the most that leaves the generator the 6 % which it "
                                   "states") },
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
    [ORDO_C_DROP] = { "drop", "", "cost of applying keep bits, of attention", 0, 10,
                      IS(0, FITTED, "by its instructions instead"), IS(0.12, FITTED, PAPER) },
    [ORDO_C_DROP_ALU_16] = { "drop_alu", "", "instructions to apply keep bits, 16 bits", 0, 100,
                             IS(1.25, COUNTED, ASM_DROP), IS(0, COUNTED, "in `drop`") },
    [ORDO_C_DROP_ALU_FP8] = { "drop_alu_fp8", "", "instructions to apply keep bits, fp8", 0, 100,
                              IS(0.75, COUNTED, ASM_DROP), IS(0, COUNTED, "in `drop`") },
    [ORDO_C_DROP_SHARED] = { "drop_shared", "B", "of shared memory to apply keep bits, backward", 0,
                             1000,
                             IS(1.125, COUNTED,
                                "backward kernel: bits of a tile copied in once, read by 8 warps"),
                             IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_FUSED_EXPOSED] = { "fused_exposed", "",
                               "slots of fused generation that show, forward, head size 128", 0,
                               100, IS(1.87, FITTED, FUSED_FIT),
                               IS(0, FITTED, "arXiv 2410.07531 takes the maximum") },
    [ORDO_C_FUSED_EXPOSED_BACKWARD] = { "fused_exposed_backward", "",
                                        "the same in the backward pass", 0, 100,
                                        IS(3.22, FITTED, FUSED_FIT),
                                        IS(0, FITTED, "arXiv 2410.07531 takes the maximum") },

    TIMES("forward", "64", 0, 0.983, 0.998, 0.937),
    TIMES("forward", "96", 1, 1.267, 1.16, 1.203),
    TIMES("forward", "128", 2, 1.013, 0.979, 0.892),
    TIMES("forward", "192", 3, 1.139, 1.108, 0.988),
    TIMES("forward", "256", 4, 1.183, 1.181, 0.955),
    TIMES("forward", "576", 5, 1.359, 1.417, 1),
    TIMES("backward", "64", 6, 0.979, 1.044, 0.918),
    TIMES("backward", "96", 7, 1.268, 1.265, 1.197),
    TIMES("backward", "128", 8, 0.968, 0.976, 0.921),
    TIMES("backward", "192", 9, 1.008, 1.047, 1.216),
    TIMES("backward", "256", 10, 0.993, 1.01, 1.06),
    TIMES("backward", "576", 11, 1.089, 1.077, 1),
    STARTS("forward", "64", 0, 3.1, 0, 0),
    STARTS("forward", "96", 1, 0, 0, 2.2),
    STARTS("forward", "128", 2, 3.8, 0, 1.9),
    STARTS("forward", "192", 3, 10.2, 15.8, 11.4),
    STARTS("forward", "256", 4, 29.7, 32.5, 30.7),
    STARTS("forward", "576", 5, 103.3, 133.5, 0),
    STARTS("backward", "64", 6, 0, 0, 0),
    STARTS("backward", "96", 7, 18.7, 28.2, 1.4),
    STARTS("backward", "128", 8, 28.1, 35.7, 30.7),
    STARTS("backward", "192", 9, 60.8, 103.7, 48),
    STARTS("backward", "256", 10, 91, 97.3, 70.4),
    STARTS("backward", "576", 11, 106.1, 180.5, 0),

    [ORDO_C_RNG_SCALE] = { "rng_scale", "", "factor on the generator's instructions", 0.001, 1000,
                           BOTH(IS(1, CHOICE, "as counted")) },
    [ORDO_C_RNG_RF] = { "rng_rf", "", "register operands an instruction", 0, 4,
                        BOTH(IS(2.2, FITTED, "assumed: never binds")) },
    [ORDO_C_RNG_REGISTERS] = { "rng_registers", "count", "of a generator's thread", 1, 255,
                               BOTH(IS(32, COUNTED, "compiler's report, sm_90")) },
    [ORDO_C_RNG_CPU_CLK] = { "rng_cpu_clk", "clk", "of a CPU core for one sliced draw of 8 bits", 0,
                             1000,
                             KEY_OR("keep_bit_clk", 0.37, FITTED,
                                    "7.07e9 elements a second on one Neoverse V1 core at 2.6 GHz, "
                                    "docs/results/cpu.md"),
                             IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_RNG_START] = { "rng_start", "ns", "start and end of a kernel that makes keep bits", 0,
                           1e9,
                           IS(5640, FITTED,
                              "two of five rows of lab/bench/measured/h200-prices.json, by "
                              "lab/bench/fit_prices"),
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
    [ORDO_C_STEAL_MOST] = { "steal_most", "",
                            "share of tensor cycles that generation beside takes at most", 0.001, 1,
                            BOTH(IS(0.218, FITTED,
                                    "four warps of sliced-any beside wgmma leave 78.2 %, H200, "
                                    "2026-11-15")) },
    [ORDO_C_GEMM_SLOW] = { "gemm_slow", "", "slowdown of a GEMM beside generation", 0, 10,
                           IS(0.046, FITTED, BY_F64), IS(0.04, FITTED, PAPER) },
    [ORDO_C_CARVE_OUT] = { "carve_out", "", "slowdown of a GEMM that leaves it room", 0, 10,
                           IS(0, FITTED, "a GEMM at 160 registers ran as fast, 2026-11-15"),
                           IS(0.005, FITTED, PAPER) },
    [ORDO_C_RNG_SLOW] = { "rng_slow", "",
                          "time factor of generation that steals nothing, beside a GEMM", 1, 1000,
                          IS(15, FITTED, BY_F64),
                          IS(2, FITTED,
                             "arXiv 2410.07531: \"50% slowdown\", read as half the speed") },
    [ORDO_C_TAIL_SHARE] = { "tail_share", "", "idle part of a GEMM's last wave that is used", 0, 1,
                            IS(0, FITTED, BESIDE), IS(1, FITTED, NOT_IN_PAPER) },
    [ORDO_C_FORK_JOIN] = { "fork_join", "ns",
                           "added by starting a second stream and awaiting it at once", 0, 1e9,
                           IS(27200, FITTED, BESIDE), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_GAP_SHARE] = { "gap_share", "",
                           "share of making the bits that is hidden in a block whose GEMMs leave "
                           "no room",
                           0, 1, IS(0.13, FITTED, GAPS), IS(1, CHOICE, NOT_IN_PAPER) },
    [ORDO_C_SEGMENT_LAUNCH] = { "segment_launch", "ns", "added by a segment of the pipeline", 0,
                                1e9, BOTH(IS(4000, FITTED, "assumed: a few launches")) },
    [ORDO_C_CALL] = { "call", "ns", "host time of one more call, where the host is the limit", 0,
                      1e9,
                      IS(60000, FITTED,
                         "PyTorch, attention of GPT-2's size, H200: 0.50 ms with keep bits made "
                         "before both passes, 0.38 ms with bits made inside"),
                      IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_NOISE] = { "noise", "", "difference of two times that says nothing", 0, 1,
                       IS(0.02, FITTED,
                          "ratios of two modes of a block, a second each: predicted ones are off "
                          "by 0.8 % over sequential and 1.5 % over fused"),
                       IS(0, CHOICE, "formulas have none") },

    [ORDO_C_ENERGY_16] = { "energy", "pJ", "energy of a 16-bit flop, at the power limit", 0, 1e6,
                           MAYBE("mma_pj_per_flop_bf16"), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_ENERGY_FP8] = { "energy_fp8", "pJ", "energy of an fp8 flop, at the power limit", 0, 1e6,
                            MAYBE("mma_pj_per_flop_fp8"), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_ORDINARY_POWER] = { "ordinary_power", "W", "drawn while tensor cores idle", 0, 1e6,
                                MAYBE("ordinary_power_w"), IS(0, FITTED, NOT_IN_PAPER) },
    [ORDO_C_POWER_CREDIT] = { "power_credit", "", "share of unused power that comes back as clock",
                              0, 1,
                              IS(0.6, FITTED,
                                 "keep bits between GEMMs for seconds on an H200, 2026-11-15: 0.39 "
                                 "in "
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
