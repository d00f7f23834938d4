"""The structs of libordo_lab in lab/include/ordo/lab/, field for field, as .._structs has libordo's."""

from __future__ import annotations

from ctypes import (
    POINTER,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
)
from typing import ClassVar

from .._structs import Struct, ordo_window

# ---- ordo/lab/sim.h ----


class ordo_schedule(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("mask", c_int),
        ("key_tiles", c_int64),
        ("query_tiles", c_int64),
        ("ratio_num", c_int64),
        ("ratio_den", c_int64),
        ("heads", c_int64),
        ("workers", c_int64),
        ("order", c_int),
        ("group", c_int64),
        ("accumulators", c_int64),
        ("issue", c_int),
        ("section", c_int64),
        ("assign", c_int),
        ("compute", c_int64),
        ("reduce", c_int64),
        ("latency", c_int64),
        ("compute_partial", c_int64),
        ("overlap", c_int64),
        ("record", c_bool),
        ("kv_heads", c_int64),
        ("window", ordo_window),
        ("blocks", c_char_p),
    ]
    _words_ = {"mask": "mask", "order": "order", "issue": "issue", "assign": "assign"}


class ordo_timeline_info(Struct):
    _fields_ = [
        ("order", c_int),
        ("order_asked", c_int),
        ("assign", c_int),
        ("issue", c_int),
        ("group", c_int64),
        ("accumulators", c_int64),
        ("key_tiles", c_int64),
        ("query_tiles", c_int64),
        ("heads", c_int64),
        ("workers", c_int64),
        ("tasks", c_uint64),
        ("makespan", c_int64),
        ("bound_work", c_int64),
        ("bound_chain", c_int64),
        ("bound_turns", c_int64),
        ("lower_bound", c_int64),
        ("closed_form", c_int64),
        ("exact", c_bool),
        ("utilization", c_double),
        ("busy", c_int64),
        ("stall", c_int64),
        ("startup", c_int64),
        ("tail", c_int64),
        ("coresident", c_int64),
        ("valid", c_bool),
        ("numeric_key", c_char * 160),
        ("note", c_char * 256),
    ]
    _words_ = {
        "order": "order",
        "order_asked": "order",
        "assign": "assign",
        "issue": "issue",
    }


class ordo_timeline_step(Struct):
    _fields_ = [
        ("worker", c_int32),
        ("head", c_int32),
        ("key", c_int32),
        ("query", c_int32),
        ("turn", c_int32),
        ("begin", c_int64),
        ("ready", c_int64),
        ("start", c_int64),
        ("end", c_int64),
        ("waited_for", c_int64),
        ("critical", c_bool),
    ]


class ordo_critical(Struct):
    _fields_ = [("step", c_uint64), ("edge", c_int)]


# ---- ordo/price.h, ordo/lab/model.h ----

LIMITERS, MODES, GEMMS = 14, 4, 4  # lengths of arrays there


class ordo_model_constant(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("unit", c_char_p),
        ("kind", c_char_p),
        ("source", c_char_p),
        ("about", c_char_p),
        ("value", c_double),
        ("changed", c_bool),
    ]


class ordo_rng(Struct):
    _fields_ = [("rounds", c_int), ("bits", c_int), ("generator", c_int)]


class ordo_kernel_counts(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("issue", c_double),
        ("alu", c_double),
        ("fma", c_double),
        ("imad", c_double),
        ("imad_wide", c_double),
        ("uniform", c_double),
        ("mufu", c_double),
        ("rf_reads", c_double),
        ("shared", c_double),
        ("shared_dim", c_double),
        ("kind", c_char_p),
        ("source", c_char_p),
    ]


class ordo_kernel_time(Struct):
    _fields_ = [("seconds", c_double), ("limiter", c_int), ("by", c_double * LIMITERS)]


class ordo_gemm(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("precision", c_int),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
    ]


class ordo_attention_shape(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("precision", c_int),
        ("batch", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("q_len", c_int64),
        ("kv_len", c_int64),
        ("head_dim", c_int64),
        ("causal", c_bool),
        ("backward", c_bool),
        ("keep", c_int),
        ("rng", ordo_rng),
        ("utilization", c_double),
    ]


class ordo_block(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("precision", c_int),
        ("batch", c_int64),
        ("seq", c_int64),
        ("embed", c_int64),
        ("head_dim", c_int64),
        ("kv_heads", c_int64),
        ("causal", c_bool),
        ("rng", ordo_rng),
        ("beside", c_int),
        ("segments", c_int64),
        ("tensor_parallel", c_int64),
        ("sequence_parallel", c_int64),
        ("utilization", c_double),
    ]


class ordo_training(Struct):
    _fields_ = [
        ("none", c_double),
        ("sequential_kept", c_double),
        ("sequential_regenerated", c_double),
        ("fused", c_double),
        ("overlapped_kept", c_double),
        ("overlapped_regenerated", c_double),
        ("pipelined", c_double),
    ]


class ordo_block_report(Struct):
    _fields_ = [
        ("heads", c_int64),
        ("elements", c_double),
        ("gemm", ordo_kernel_time * GEMMS),
        ("attention", ordo_kernel_time),
        ("attention_given", ordo_kernel_time),
        ("attention_made", ordo_kernel_time),
        ("attention_backward", ordo_kernel_time),
        ("rng", ordo_kernel_time),
        ("gemm_seconds", c_double),
        ("gemm_then_rng", c_double),
        ("gemm_beside_rng", c_double),
        ("memory_seconds", c_double),
        ("communication_seconds", c_double),
        ("none", c_double),
        ("mode", c_double * MODES),
        ("exposed", c_double),
        ("hidden_in_fused", c_double),
        ("keep_bits_bytes", c_double * MODES),
        ("segments", c_int64),
        ("keep_bits_fit", c_bool),
        ("coresident", c_bool),
        ("overlapped_over_sequential", c_double),
        ("overlapped_over_fused", c_double),
        ("fused_over_sequential", c_double),
        ("region", c_int),
        ("best", c_int),
        ("margin", c_double),
        ("training", ordo_training),
        ("training_best", c_int),
        ("training_reuses_keep_bits", c_bool),
        ("no_difference", c_bool),
    ]


RESOURCES = 4  # length of an array there


class ordo_operator(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("kind", c_int),
        ("gemm", ordo_gemm),
        ("attention", ordo_attention_shape),
        ("rng", ordo_rng),
        ("elements", c_double),
        ("read_bytes", c_double),
        ("write_bytes", c_double),
        ("ranks", c_int64),
        ("seconds", c_double),
        ("use", c_double * RESOURCES),
        ("stream", c_int64),
        ("after", POINTER(c_int64)),
        ("after_count", c_size_t),
    ]


class ordo_operator_time(Struct):
    _fields_ = [
        ("seconds", c_double),
        ("start", c_double),
        ("end", c_double),
        ("beside_seconds", c_double),
    ]


class ordo_pair_report(Struct):
    _fields_ = [
        ("first", c_double),
        ("second", c_double),
        ("in_turn", c_double),
        ("together", c_double),
        ("no_difference", c_bool),
    ]


class ordo_overlap_report(Struct):
    _fields_ = [
        ("rng", c_int64),
        ("reader", c_int64),
        ("in_line", c_double),
        ("fused", c_double),
        ("seconds", c_double),
        ("mode", c_int),
        ("beside", c_int64),
        ("no_difference", c_bool),
    ]


class ordo_plan_price(Struct):
    _fields_ = [
        ("forward", ordo_kernel_time),
        ("backward", ordo_kernel_time),
        ("rng", ordo_kernel_time),
        ("utilization", c_double),
        ("mode", c_int),
        ("mode_seconds", c_double * MODES),
        ("keep_bits_reused", c_bool),
    ]


# ---- ordo/lab/io.h ----

IO_TENSORS, IO_LOOPS, IO_KERNELS = 24, 8, 6  # lengths of arrays there


class ordo_io_problem(Struct):
    _words_: ClassVar = {"mask": "mask"}
    _fields_ = [
        ("size", c_size_t),
        ("pass", c_int),
        ("q_len", c_int64),
        ("kv_len", c_int64),
        ("head_dim", c_int64),
        ("v_head_dim", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("mask", c_int),
        ("window", ordo_window),
        ("blocks", c_void_p),
        ("block_q", c_int64),
        ("block_k", c_int64),
        ("dropout_p", c_double),
        ("seed", c_uint64),
        ("cache_words", c_int64),
        ("strip", c_int64),
        ("workspace_words", c_int64),
    ]


class ordo_io_tiles(Struct):
    _fields_ = [
        ("rows", c_int64),
        ("cols", c_int64),
        ("out_rows", c_int64),
        ("out_keys", c_int64),
        ("out_cols", c_int64),
        ("panel", c_int64),
    ]


class ordo_io_words(Struct):
    _fields_ = [
        ("loads", c_int64),
        ("stores", c_int64),
        ("cache", c_int64),
        ("workspace", c_int64),
    ]


class ordo_io_bound(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("valid", c_char_p),
        ("words", c_double),
        ("holds", c_bool),
    ]


class ordo_io_sparse(Struct):
    _fields_ = [
        ("z_in", c_double),
        ("z_qk", c_double),
        ("z_x", c_double),
        ("z_ax", c_double),
        ("m", c_double),
    ]


class ordo_io_choice(Struct):
    _fields_ = [("algorithm", c_int), ("tiles", ordo_io_tiles), ("words", ordo_io_words)]


class ordo_io_traffic(Struct):
    _fields_ = [("name", c_char_p), ("loads", c_int64), ("stores", c_int64)]


class ordo_io_report(Struct):
    _fields_ = [
        ("algorithm", c_int),
        ("tiles", ordo_io_tiles),
        ("loads", c_int64),
        ("stores", c_int64),
        ("peak", c_int64),
        ("predicted", ordo_io_words),
        ("error", c_double),
        ("accesses", c_int64),
        ("tensors", ordo_io_traffic * IO_TENSORS),
        ("loops", ordo_io_traffic * IO_LOOPS),
    ]


class ordo_io_cache(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("replacement", c_int),
        ("line", c_int64),
        ("ways", c_int64),
        ("budget", c_double),
        ("packed", c_bool),
        ("outer_words", c_int64),
        ("outer_ways", c_int64),
    ]


class ordo_io_level(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("scratchpad", c_bool),
        ("bytes", c_int64),
        ("line_bytes", c_int64),
        ("word_bytes", c_int64),
        ("bytes_per_s", c_double),
        ("budget", c_double),
        ("small_dim", c_double),
    ]


class ordo_io_advice(Struct):
    _fields_ = [
        ("level", ordo_io_level),
        ("cache_words", c_int64),
        ("strip", c_int64),
        ("fits", c_bool),
        ("choice", ordo_io_choice),
        ("bound", ordo_io_bound),
        ("bytes", c_double),
        ("ns", c_double),
    ]


class ordo_io_bytes(Struct):
    _fields_ = [
        ("tile_q", c_int64),
        ("tile_k", c_int64),
        ("flash_reduce", c_double),
        ("flash_rmw", c_double),
        ("apart", c_double),
        ("phase", c_double),
        ("flop_per_byte_flash", c_double),
        ("flop_per_byte_phase", c_double),
        ("phase_hbm", c_double),
        ("apart_rows", c_int64),
        ("flash_flops", c_double),
        ("apart_flops", c_double),
        ("phase_flops", c_double),
        ("fewest", c_int),
        ("used", c_int),
    ]


class ordo_io_hbm(Struct):
    _fields_ = [
        ("read_bytes", c_int64),
        ("written_bytes", c_int64),
        ("least_bytes", c_int64),
        ("most_bytes", c_int64),
        ("scores", c_double),
        ("chains_ns", c_double),
        ("ns", c_double),
        ("kernels", ordo_io_traffic * IO_KERNELS),
    ]


# ---- ordo/lab/block.h ----

TRACE_POINTS = 64  # ORDO_BLOCK_TRACE_POINTS


class ordo_block_job(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("precision", c_int),
        ("batch", c_int64),
        ("seq", c_int64),
        ("embed", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("mlp", c_int64),
        ("gated", c_bool),
        ("bare", c_bool),
        ("causal", c_bool),
        ("backward", c_bool),
        ("dropout", c_double),
        ("rounds", c_int),
        ("bits", c_int),
        ("generator", c_int),
        ("seed", c_uint64),
        ("offset", c_uint64),
        ("modes", c_uint),
        ("beside", c_int),
        ("regenerate", c_bool),
        ("limit_keep_bits", c_bool),
        ("keep_bits_bytes", c_uint64),
        ("segments", c_int64),
        ("threads", c_int),
        ("sm_target", c_int),
        ("small_tiles", c_bool),
        ("gemm", c_int),
        ("placement", c_int),
    ]


class ordo_block_extent(Struct):
    _fields_ = [
        ("rows", c_int64),
        ("columns", c_int64),
        ("dtype", c_int),
        ("bytes", c_size_t),
    ]


class ordo_block_info(Struct):
    _fields_ = [
        ("head_dim", c_int64),
        ("kv_heads", c_int64),
        ("mlp", c_int64),
        ("p_used", c_double),
        ("keep_bits_bytes", c_uint64),
        ("bits_bytes", c_uint64),
        ("segments", c_int64),
        ("beside", c_int),
        ("flops", c_double),
        ("numeric_key", c_char * 160),
    ]


class ordo_block_time(Struct):
    _fields_ = [
        ("seconds", c_double),
        ("fastest", c_double),
        ("slowest", c_double),
        ("samples", c_int),
        ("passes", c_int),
        ("watts", c_double),
        ("clock_ghz", c_double),
    ]


class ordo_block_interference(Struct):
    _fields_ = [
        ("product", c_double),
        ("bits", c_double),
        ("product_beside", c_double),
        ("bits_beside", c_double),
        ("then", c_double),
        ("both", c_double),
        ("attention", c_double),
        ("dropping", c_double),
        ("fused", c_double),
        ("backward", c_double),
        ("backward_dropping", c_double),
        ("room", c_double),
        ("small", c_double),
        ("algorithm", c_char * 64),
    ]


class ordo_block_trace(Struct):
    _fields_ = [
        ("product_alone", c_double),
        ("bits_alone", c_double),
        ("product_begin", c_double),
        ("product_end", c_double),
        ("bits_begin", c_double),
        ("bits_end", c_double),
        ("seconds", c_double),
        ("inside", c_double),
        ("warps", c_int),
        ("sms", c_int),
        ("shared", c_double),
        ("shared_sms", c_int),
        ("same_words", c_bool),
        ("active", c_double * TRACE_POINTS),
    ]


class ordo_rank_problem(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("ranks", c_int64),
        ("rows", c_int64),
        ("batch", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("element_bytes", c_int64),
        ("mask", c_int),
        ("zigzag", c_bool),
        ("record", c_bool),
        ("flop_per_s", c_double),
        ("link_bytes_per_s", c_double),
        ("link_ns", c_double),
    ]


class ordo_rank_info(Struct):
    _fields_ = [
        ("method", c_int),
        ("products", c_int),
        ("items", c_int64),
        ("stages", c_int64),
        ("forward_ns", c_double),
        ("backward_ns", c_double),
        ("ideal_ns", c_double),
        ("utilization", c_double),
        ("sent_bytes", c_double),
        ("memory_bytes", c_double),
    ]


class ordo_rank_span(Struct):
    _fields_ = [
        ("rank", c_int64),
        ("item", c_int64),
        ("work", c_int),
        ("begin_ns", c_double),
        ("end_ns", c_double),
    ]
