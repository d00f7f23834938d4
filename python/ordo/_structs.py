"""The structs of libordo in include/ordo/, field for field, under their C names.

A field that holds one of C's enums is an int here; `_words_` says which table of words
(see _words.py) names its values. tests/python/test_layout.py compares every size and offset
with what the C compiler says.
"""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any, ClassVar


class Struct(Structure):
    _words_: ClassVar[dict[str, str]] = {}


def sized(kind: type[Any]) -> Any:
    """A zeroed argument struct that carries its size, as ORDO_..._INIT makes it."""
    made = kind()
    made.size = sizeof(kind)
    return made


# ---- ordo/status.h ----


class ordo_build(Struct):
    _fields_ = [
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("version", c_char_p),
        ("compiler", c_char_p),
        ("target", c_char_p),
        ("flavour", c_char_p),
    ]


# ---- ordo/problem.h ----


class ordo_window(Struct):
    _fields_ = [("on", c_bool), ("left", c_int64), ("right", c_int64)]


class ordo_dropout(Struct):
    _fields_ = [("p", c_double), ("rounds", c_int), ("bits", c_int), ("keying", c_int)]
    _words_ = {"keying": "keying"}


class ordo_shard(Struct):
    _fields_ = [
        ("batch0", c_int64),
        ("head0", c_int64),
        ("row0", c_int64),
        ("col0", c_int64),
        ("heads_total", c_int64),
        ("q_total", c_int64),
        ("kv_total", c_int64),
    ]


class ordo_block_limits(Struct):
    _fields_ = [("entries", c_int64), ("per_sequence", c_bool), ("per_head", c_bool)]


class ordo_paging(Struct):
    _fields_ = [("page_rows", c_int64), ("pages", c_int64), ("table_columns", c_int64)]


class ordo_seen_limits(Struct):
    _fields_ = [("on", c_bool), ("per_sequence", c_bool), ("per_head", c_bool)]


class ordo_bias(Struct):
    _fields_ = [("on", c_bool), ("per_sequence", c_bool), ("per_head", c_bool), ("dtype", c_int)]
    _words_ = {"dtype": "dtype"}


class ordo_problem(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("layout", c_int),
        ("batch", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("q_len", c_int64),
        ("kv_len", c_int64),
        ("total_q", c_int64),
        ("total_kv", c_int64),
        ("head_dim", c_int64),
        ("v_head_dim", c_int64),
        ("scale", c_double),
        ("mask", c_int),
        ("window", ordo_window),
        ("softcap", c_double),
        ("alibi", c_bool),
        ("dropout", ordo_dropout),
        ("shard", ordo_shard),
        ("extras", c_uint32),
        ("blocks", ordo_block_limits),
        ("paging", ordo_paging),
        ("seen", ordo_seen_limits),
        ("bias", ordo_bias),
    ]
    _words_ = {"dtype": "dtype", "layout": "layout", "mask": "mask"}


# ---- ordo/machine.h ----


class ordo_machine_key(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("unit", c_char_p),
        ("kind", c_char_p),
        ("required_by", c_char_p),
        ("about", c_char_p),
    ]


# ---- ordo/plan.h ----


class ordo_tile(Struct):
    _fields_ = [("q", c_int64), ("k", c_int64)]


class ordo_plan_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("forward_tile", ordo_tile),
        ("backward_tile", ordo_tile),
        ("order", c_int),
        ("group", c_int64),
        ("split", c_int64),
        ("issue", c_int),
        ("section", c_int64),
        ("assign", c_int),
        ("workers", c_int64),
        ("segments", c_int64),
        ("keep_bits_memory", c_uint64),
        ("workspace_limit", c_int64),
    ]
    _words_ = {"backend": "backend", "order": "order", "issue": "issue", "assign": "assign"}


class ordo_plan_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("forward_tile", ordo_tile),
        ("backward_tile", ordo_tile),
        ("query_tiles", c_int64),
        ("key_tiles", c_int64),
        ("order", c_int),
        ("order_asked", c_int),
        ("group", c_int64),
        ("split", c_int64),
        ("issue", c_int),
        ("section", c_int64),
        ("assign", c_int),
        ("workers", c_int64),
        ("coresident", c_int64),
        ("forward_workspace_bytes", c_uint64),
        ("backward_workspace_bytes", c_uint64),
        ("kept", c_uint),
        ("not_kept", c_uint),
        ("dropout_rounds", c_int),
        ("dropout_bits", c_int),
        ("dropout_threshold", c_int),
        ("dropout_p_used", c_double),
        ("unused", c_double),
        ("numeric_key", c_char * 160),
        ("note", c_char * 256),
        ("dropout_mode", c_int),
        ("keep_bits_reused", c_bool),
        ("keep_bits_bytes", c_uint64),
        ("segments", c_int64),
        ("segment_bytes", c_uint64),
        ("backward_form", c_int),
        ("forward_key", c_char * 64),
    ]
    _words_ = {
        "backend": "backend",
        "order": "order",
        "order_asked": "order",
        "issue": "issue",
        "assign": "assign",
        "dropout_mode": "dropout_mode",
        "backward_form": "form",
    }


# ---- ordo/blocks.h ----


class ordo_block_mask(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("q_len", c_int64),
        ("kv_len", c_int64),
        ("sequences", c_int64),
        ("heads", c_int64),
        ("entries", c_int64),
        ("start", c_void_p),
        ("key", c_void_p),
        ("first", c_void_p),
        ("last", c_void_p),
        ("bits", c_void_p),
    ]


# ---- ordo/attention.h ----


class ordo_tensor(Struct):
    _fields_ = [("data", c_void_p), ("stride", c_int64 * 4)]


class ordo_call(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("q", ordo_tensor),
        ("k", ordo_tensor),
        ("v", ordo_tensor),
        ("o", ordo_tensor),
        ("dout", ordo_tensor),
        ("dq", ordo_tensor),
        ("dk", ordo_tensor),
        ("dv", ordo_tensor),
        ("lse", c_void_p),
        ("dlse", c_void_p),
        ("cu_q", c_void_p),
        ("cu_kv", c_void_p),
        ("q_lens", c_void_p),
        ("kv_lens", c_void_p),
        ("sequence_ids", c_void_p),
        ("slopes", c_void_p),
        ("slopes_batch_stride", c_int64),
        ("keep_bits", c_void_p),
        ("seed", c_uint64),
        ("offset", c_uint64),
        ("seed_ptr", c_void_p),
        ("offset_ptr", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("stream", c_void_p),
        ("threads", c_int),
        ("dk_sums", c_void_p),
        ("dv_sums", c_void_p),
        ("carry", c_uint),
        ("side_stream", c_void_p),
        ("sink", c_void_p),
        ("dsink", c_void_p),
        ("dsink_parts", c_void_p),
        ("block_mask", POINTER(ordo_block_mask)),
        ("page_table", c_void_p),
        ("page_table_stride", c_int64),
        ("kv_starts", c_void_p),
        ("seen", POINTER(ordo_block_mask)),
        ("bias", ordo_tensor),
        ("dbias", c_void_p),
    ]


class ordo_combine(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("parts", c_int64),
        ("o_parts", POINTER(ordo_tensor)),
        ("lse_parts", POINTER(c_void_p)),
        ("o", ordo_tensor),
        ("lse", c_void_p),
        ("threads", c_int),
        ("stream", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
    ]


class ordo_backend_limits(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("dtypes", c_uint),
        ("unequal_head_dims", c_bool),
        ("makes_fa2_bits", c_bool),
        ("head_dim_max", c_int64),
        ("head_dim_multiple", c_int64),
        ("tensor_align", c_int64),
        ("made_bits_head_dim_max", c_int64),
        ("paged", c_bool),
    ]


# ---- ordo/audit.h ----


class ordo_audit_unit(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("sequence", c_int64),
        ("head", c_int64),
        ("row", c_int64),
        ("rows", c_int64),
        ("scores", c_int64),
    ]


class ordo_audit_difference(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("differs", c_bool),
        ("tensor", c_char * 8),
        ("sequence", c_int64),
        ("row", c_int64),
        ("head", c_int64),
        ("column", c_int64),
        ("count", c_int64),
        ("found", c_uint32),
        ("expected", c_uint32),
        ("found_value", c_double),
        ("expected_value", c_double),
    ]


# ---- ordo/sum.h ----


class ordo_sum(Struct):
    _words_ = {"dtype": "dtype"}
    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("threads", c_int),
        ("count", c_int64),
        ("elements", c_int64),
        ("inputs", POINTER(c_void_p)),
        ("out", c_void_p),
    ]


# ---- ordo/gemm.h ----


class ordo_gemm_problem(Struct):
    _words_ = {"dtype": "dtype", "c_dtype": "dtype"}
    _fields_ = [
        ("size", c_size_t),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("dtype", c_int),
        ("c_dtype", c_int),
        ("a_transposed", c_bool),
        ("b_transposed", c_bool),
        ("bias", c_bool),
        ("add", c_bool),
        ("sections", c_int),
    ]


class ordo_gemm_info(Struct):
    _words_ = {"backend": "backend"}
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("kept", c_uint),
        ("workspace_bytes", c_uint64),
        ("numeric_key", c_char * 64),
    ]


class ordo_matrix(Struct):
    _fields_ = [("data", c_void_p), ("stride", c_int64)]


class ordo_gemm_call(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("a", ordo_matrix),
        ("b", ordo_matrix),
        ("c", ordo_matrix),
        ("bias", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("stream", c_void_p),
        ("threads", c_int),
        ("scale", c_void_p),
    ]


class ordo_gemm_limits(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("dtypes", c_uint),
        ("align", c_int64),
        ("size_max", c_int64),
    ]


# ---- ordo/device.h ----


class ordo_device(Struct):
    _fields_ = [
        ("name", c_char * 256),
        ("major", c_int),
        ("minor", c_int),
        ("workers", c_int),
        ("memory_bytes", c_uint64),
        ("l2_bytes", c_uint64),
        ("shared_bytes_per_block", c_uint64),
        ("clock_ghz", c_double),
        ("driver", c_int),
        ("runtime", c_int),
    ]


# ---- ordo/dropout.h ----


class ordo_dropout_call(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("seed", c_uint64),
        ("offset", c_uint64),
        ("cu_q", c_void_p),
        ("cu_kv", c_void_p),
        ("sequence_ids", c_void_p),
        ("threads", c_int),
        ("experiment_rounds", c_int),
        ("seed_ptr", c_void_p),
        ("offset_ptr", c_void_p),
        ("on_device", c_bool),
        ("visible_only", c_int64),
    ]


class ordo_dropout_info(Struct):
    _fields_ = [
        ("blocks", c_uint64),
        ("bytes", c_uint64),
        ("elements", c_uint64),
        ("keying", c_int),
        ("rounds", c_int),
        ("bits", c_int),
        ("threshold", c_int),
        ("p_used", c_double),
        ("scale", c_double),
    ]
    _words_ = {"keying": "keying"}


class ordo_dropout_part(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("sequence", c_int64),
        ("head", c_int64),
        ("row", c_int64),
        ("rows", c_int64),
        ("col", c_int64),
        ("cols", c_int64),
        ("format", c_int),
    ]


# ---- ordo/digest.h ----


class ordo_bytes(Struct):
    _fields_ = [("data", c_void_p), ("bytes", c_uint64)]


class ordo_digest_call(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_int),
        ("threads", c_int),
        ("count", c_int64),
        ("spans", POINTER(ordo_bytes)),
        ("digests", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("stream", c_void_p),
    ]
    _words_ = {"backend": "backend"}


# ---- ordo/record.h ----


class ordo_comparison_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("equal", c_bool),
        ("causes", c_uint),
        ("text", c_char_p),
        ("hint", c_char_p),
        ("steps", c_int64),
        ("first", c_int64),
        ("last", c_int64),
        ("tensors", c_int64),
        ("equal_steps", c_int64),
        ("step", c_int64),
        ("different", c_char_p),
        ("gradient", c_char_p),
        ("weights", c_int64),
        ("other_weights", c_int64),
        ("gradients", c_int64),
        ("other_gradients", c_int64),
        ("steps_a", c_int64),
        ("steps_b", c_int64),
        ("ignored_a", c_int64),
        ("ignored_b", c_int64),
        ("incomplete_a", c_bool),
        ("incomplete_b", c_bool),
    ]


class ordo_comparison_step(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("loss_a", c_double),
        ("loss_b", c_double),
        ("equal", c_bool),
    ]
