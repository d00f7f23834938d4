"""Find libordo_lab, load it, and declare its functions, as .._library does for libordo."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any

from .._library import HANDLE, RESULT, Prototype, declare
from .._library import path as libordo
from .._structs import ordo_problem
from . import _structs as s

PROTOTYPES: dict[str, Prototype] = {
    # ordo/lab/sim.h
    "ordo_timeline_create": (RESULT, [POINTER(HANDLE), POINTER(s.ordo_schedule)]),
    "ordo_timeline_destroy": (None, [HANDLE]),
    "ordo_timeline_query": (RESULT, [HANDLE, POINTER(s.ordo_timeline_info)]),
    "ordo_timeline_step_count": (c_uint64, [HANDLE]),
    "ordo_timeline_step_at": (RESULT, [HANDLE, c_uint64, POINTER(s.ordo_timeline_step)]),
    "ordo_timeline_critical_count": (c_uint64, [HANDLE]),
    "ordo_timeline_critical_at": (RESULT, [HANDLE, c_uint64, POINTER(s.ordo_critical)]),
    "ordo_schedule_auto": (RESULT, [POINTER(s.ordo_schedule), POINTER(c_int)]),
    # ordo/lab/model.h
    "ordo_model_create": (RESULT, [POINTER(HANDLE), HANDLE, c_int]),
    "ordo_model_destroy": (None, [HANDLE]),
    "ordo_model_constant_count": (c_size_t, []),
    "ordo_model_constant_at": (RESULT, [HANDLE, c_size_t, POINTER(s.ordo_model_constant)]),
    "ordo_model_set": (RESULT, [HANDLE, c_char_p, c_double]),
    "ordo_model_scale": (RESULT, [HANDLE, c_char_p, c_double]),
    "ordo_kernel_counts_count": (c_size_t, []),
    "ordo_kernel_counts_at": (POINTER(s.ordo_kernel_counts), [c_size_t]),
    "ordo_model_gemm": (RESULT, [HANDLE, POINTER(s.ordo_gemm), POINTER(s.ordo_kernel_time)]),
    "ordo_model_attention": (
        RESULT,
        [HANDLE, POINTER(s.ordo_attention_shape), POINTER(s.ordo_kernel_time)],
    ),
    "ordo_model_attention_constant": (
        RESULT,
        [HANDLE, POINTER(s.ordo_attention_shape), POINTER(c_char_p)],
    ),
    "ordo_model_rng": (
        RESULT,
        [HANDLE, POINTER(s.ordo_rng), c_double, POINTER(s.ordo_kernel_time)],
    ),
    "ordo_model_memory": (RESULT, [HANDLE, c_double, c_double, POINTER(s.ordo_kernel_time)]),
    "ordo_model_block": (RESULT, [HANDLE, POINTER(s.ordo_block), POINTER(s.ordo_block_report)]),
    "ordo_model_overlap": (
        RESULT,
        [
            HANDLE,
            POINTER(s.ordo_operator),
            c_size_t,
            POINTER(s.ordo_operator_time),
            POINTER(s.ordo_overlap_report),
        ],
    ),
    "ordo_model_pair": (
        RESULT,
        [
            HANDLE,
            POINTER(s.ordo_operator),
            POINTER(s.ordo_operator),
            POINTER(s.ordo_pair_report),
        ],
    ),
    "ordo_model_plan": (RESULT, [HANDLE, HANDLE, POINTER(s.ordo_plan_price)]),
    "ordo_calibration_name": (c_char_p, [c_int]),
    "ordo_precision_name": (c_char_p, [c_int]),
    "ordo_limiter_name": (c_char_p, [c_int]),
    "ordo_generator_name": (c_char_p, [c_int]),
    # ordo/lab/block.h
    "ordo_block_runner_create": (RESULT, [POINTER(HANDLE), POINTER(s.ordo_block_job)]),
    "ordo_block_runner_destroy": (None, [HANDLE]),
    "ordo_block_extent_of": (RESULT, [HANDLE, c_int, POINTER(s.ordo_block_extent)]),
    "ordo_block_read": (RESULT, [HANDLE, c_int, c_void_p, c_size_t]),
    "ordo_block_write": (RESULT, [HANDLE, c_int, c_void_p, c_size_t]),
    "ordo_block_forward": (RESULT, [HANDLE, c_int]),
    "ordo_block_backward": (RESULT, [HANDLE]),
    "ordo_block_query": (RESULT, [HANDLE, POINTER(s.ordo_block_info)]),
    "ordo_block_measure": (
        RESULT,
        [HANDLE, POINTER(c_int), c_int, c_double, POINTER(s.ordo_block_time)],
    ),
    "ordo_block_interfere": (RESULT, [HANDLE, c_double, POINTER(s.ordo_block_interference)]),
    "ordo_block_trace_run": (RESULT, [HANDLE, POINTER(s.ordo_block_trace)]),
    "ordo_block_mode_name": (c_char_p, [c_int]),
    "ordo_block_beside_name": (c_char_p, [c_int]),
    "ordo_block_placement_name": (c_char_p, [c_int]),
    # ordo/lab/ranks.h
    "ordo_rank_timeline_create": (RESULT, [POINTER(HANDLE), POINTER(s.ordo_rank_problem), c_int]),
    "ordo_rank_timeline_destroy": (None, [HANDLE]),
    "ordo_rank_timeline_query": (RESULT, [HANDLE, POINTER(s.ordo_rank_info)]),
    "ordo_rank_span_count": (c_uint64, [HANDLE]),
    "ordo_rank_span_at": (RESULT, [HANDLE, c_uint64, POINTER(s.ordo_rank_span)]),
    "ordo_rank_method_name": (c_char_p, [c_int]),
    # ordo/lab/io.h
    "ordo_io_bound_at": (
        RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_bound)],
    ),
    "ordo_io_bound_best": (RESULT, [POINTER(s.ordo_io_problem), POINTER(s.ordo_io_bound)]),
    "ordo_io_sparse_form": (c_double, [POINTER(s.ordo_io_sparse)]),
    "ordo_io_sparse_of": (RESULT, [POINTER(s.ordo_io_problem), POINTER(s.ordo_io_sparse)]),
    "ordo_io_choose": (
        RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), POINTER(s.ordo_io_choice)],
    ),
    "ordo_io_predict": (
        RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), POINTER(s.ordo_io_words)],
    ),
    "ordo_io_run": (
        RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), POINTER(s.ordo_io_report)],
    ),
    "ordo_io_cache_run": (
        RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), POINTER(s.ordo_io_cache)]
        + [POINTER(s.ordo_io_report), POINTER(s.ordo_io_words)],
    ),
    "ordo_io_curve": (
        RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), c_int64, c_bool]
        + [POINTER(s.ordo_io_words), c_int64, POINTER(s.ordo_io_report)],
    ),
    "ordo_io_level_at": (
        RESULT,
        [HANDLE, c_int, c_int, POINTER(s.ordo_io_level), POINTER(c_bool)],
    ),
    "ordo_io_advise": (
        RESULT,
        [HANDLE, POINTER(ordo_problem), c_int, c_int, POINTER(s.ordo_io_advice)]
        + [POINTER(c_bool)],
    ),
    "ordo_io_hopper": (RESULT, [HANDLE, c_int64, POINTER(s.ordo_io_bytes)]),
    "ordo_io_hopper_pair": (RESULT, [HANDLE, c_int64, c_int64, POINTER(s.ordo_io_bytes)]),
    "ordo_io_chained": (c_bool, [c_int64, c_int64]),
    "ordo_io_replay": (
        RESULT,
        [HANDLE, POINTER(ordo_problem), c_int, c_int, c_int64, POINTER(s.ordo_io_hbm)],
    ),
    "ordo_io_replay_plan": (RESULT, [HANDLE, HANDLE, c_int64, POINTER(s.ordo_io_hbm)]),
    "ordo_io_has": (c_bool, [c_int, c_int]),
    "ordo_io_pass_name": (c_char_p, [c_int]),
    "ordo_io_algorithm_name": (c_char_p, [c_int]),
    "ordo_io_algorithm_from_name": (RESULT, [c_char_p, POINTER(c_int)]),
}


def _find() -> tuple[ctypes.CDLL, str]:
    """In the folder of libordo; where that came by its bare name, the system's."""
    folder = os.path.dirname(libordo)
    places = [os.path.join(folder, name) for name in ("libordo_lab.so", "libordo_lab.so.0")]
    found = [place for place in places if os.path.exists(place)] if folder else places[1:]
    try:
        return ctypes.CDLL(found[0]), found[0]
    except IndexError:
        raise ImportError(
            f"libordo_lab not found: expected {places[0]}, with libordo; ordo.lab needs it"
        ) from None
    except OSError as error:
        raise ImportError(f"libordo_lab cannot be loaded: {error}") from None


_library, path = _find()
lib: Any = declare(_library, path, PROTOTYPES)
