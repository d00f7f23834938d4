"""Find libordo, load it, and declare its functions. A failed call raises Error."""

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
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _structs as s


class Error(RuntimeError):
    """A call that ordo refused or that failed.

    `status` is the short name of the status ("argument", "shape", "align", "unsupported",
    "overflow", "memory", "parse", "file", "device", "internal"); the text says which argument,
    what it was and what was expected. An Error about a wrong argument is also a ValueError.
    """

    status: str
    message: str

    def __new__(cls, status: str, message: str) -> Error:
        wrong = cls is Error and status in ("argument", "shape", "align", "overflow", "parse")
        return super().__new__(ArgumentError if wrong else cls, status, message)

    def __init__(self, status: str, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message


class ArgumentError(Error, ValueError):
    """An Error about a wrong argument. Error(status, message) makes it where the status says so."""


# ---- functions ----

_HANDLE = c_void_p
_RESULT = "status"  # an ordo_status: anything but 0 raises Error

_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    # ordo/status.h
    "ordo_status_name": (c_char_p, [c_int]),
    "ordo_last_error": (c_char_p, []),
    "ordo_build_query": (s.ordo_build, []),
    # ordo/problem.h
    "ordo_problem_check": (_RESULT, [POINTER(s.ordo_problem)]),
    "ordo_dtype_name": (c_char_p, [c_int]),
    "ordo_mask_name": (c_char_p, [c_int]),
    "ordo_layout_name": (c_char_p, [c_int]),
    # ordo/machine.h
    "ordo_machine_create": (_RESULT, [POINTER(_HANDLE), c_char_p]),
    "ordo_machine_parse": (_RESULT, [POINTER(_HANDLE), c_char_p, c_size_t, c_char_p]),
    "ordo_machine_destroy": (None, [_HANDLE]),
    "ordo_machine_name": (c_char_p, [_HANDLE]),
    "ordo_machine_title": (c_char_p, [_HANDLE]),
    "ordo_machine_family_of": (c_int, [_HANDLE]),
    "ordo_machine_key_count": (c_size_t, []),
    "ordo_machine_key_at": (POINTER(s.ordo_machine_key), [c_size_t]),
    "ordo_machine_get": (_RESULT, [_HANDLE, c_char_p, POINTER(c_double)]),
    "ordo_machine_source": (c_char_p, [_HANDLE, c_char_p]),
    "ordo_machine_builtin": (c_char_p, [c_size_t]),
    # ordo/plan.h
    "ordo_plan_create": (
        _RESULT,
        [POINTER(_HANDLE), POINTER(s.ordo_problem), _HANDLE, POINTER(s.ordo_plan_options)],
    ),
    "ordo_plan_destroy": (None, [_HANDLE]),
    "ordo_plan_query": (_RESULT, [_HANDLE, POINTER(s.ordo_plan_info)]),
    "ordo_plan_problem": (_RESULT, [_HANDLE, POINTER(s.ordo_problem)]),
    "ordo_plan_workspace": (c_size_t, [_HANDLE]),
    "ordo_plan_print": (_RESULT, [_HANDLE, c_char_p, c_size_t, POINTER(c_size_t)]),
    "ordo_plan_parse": (_RESULT, [POINTER(_HANDLE), c_char_p]),
    "ordo_plan_check": (_RESULT, [_HANDLE, POINTER(c_uint64)]),
    "ordo_backend_name": (c_char_p, [c_int]),
    "ordo_order_name": (c_char_p, [c_int]),
    "ordo_issue_name": (c_char_p, [c_int]),
    "ordo_assign_name": (c_char_p, [c_int]),
    "ordo_promise_name": (c_char_p, [c_int]),
    "ordo_order_from_name": (_RESULT, [c_char_p, POINTER(c_int)]),
    # ordo/attention.h
    "ordo_attention_forward": (_RESULT, [_HANDLE, POINTER(s.ordo_call)]),
    "ordo_attention_backward": (_RESULT, [_HANDLE, POINTER(s.ordo_call)]),
    "ordo_attention_combine": (_RESULT, [_HANDLE, POINTER(s.ordo_combine)]),
    "ordo_backend_available": (c_bool, [c_int, POINTER(c_char_p)]),
    # ordo/device.h
    "ordo_device_count": (_RESULT, [POINTER(c_int), POINTER(c_char_p)]),
    "ordo_device_query": (_RESULT, [c_int, POINTER(s.ordo_device)]),
    "ordo_device_machine": (_RESULT, [c_int, POINTER(_HANDLE)]),
    "ordo_device_select": (_RESULT, [c_int]),
    "ordo_device_alloc": (_RESULT, [POINTER(c_void_p), c_size_t]),
    "ordo_device_free": (_RESULT, [c_void_p]),
    "ordo_device_copy": (_RESULT, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "ordo_device_fill": (_RESULT, [c_void_p, c_int, c_size_t, c_void_p]),
    "ordo_device_equal": (_RESULT, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_bool)]),
    "ordo_device_stream_create": (_RESULT, [POINTER(c_void_p)]),
    "ordo_device_stream_destroy": (_RESULT, [c_void_p]),
    "ordo_device_synchronise": (_RESULT, [c_void_p]),
    "ordo_device_event_create": (_RESULT, [POINTER(c_void_p)]),
    "ordo_device_event_destroy": (_RESULT, [c_void_p]),
    "ordo_device_event_record": (_RESULT, [c_void_p, c_void_p]),
    "ordo_device_event_elapsed": (_RESULT, [c_void_p, c_void_p, POINTER(c_double)]),
    # ordo/dropout.h
    "ordo_dropout_query": (
        _RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call), POINTER(s.ordo_dropout_info)],
    ),
    "ordo_dropout_keep": (
        _RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call)] + [c_int64] * 4 + [POINTER(c_bool)],
    ),
    "ordo_dropout_fill": (
        _RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call), c_uint64, c_uint64]
        + [c_void_p, c_size_t],
    ),
    "ordo_dropout_fill_device": (
        _RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call), c_void_p, c_size_t, c_void_p],
    ),
    "ordo_dropout_export": (
        _RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call), c_void_p]
        + [POINTER(s.ordo_dropout_part), c_void_p, c_size_t, POINTER(c_size_t)],
    ),
    "ordo_philox4x32": (_RESULT, [c_uint32 * 4, c_uint32 * 2, c_int, c_uint32 * 4]),
    "ordo_keying_name": (c_char_p, [c_int]),
    # ordo/sim.h
    "ordo_timeline_create": (_RESULT, [POINTER(_HANDLE), POINTER(s.ordo_schedule)]),
    "ordo_timeline_destroy": (None, [_HANDLE]),
    "ordo_timeline_query": (_RESULT, [_HANDLE, POINTER(s.ordo_timeline_info)]),
    "ordo_timeline_step_count": (c_uint64, [_HANDLE]),
    "ordo_timeline_step_at": (_RESULT, [_HANDLE, c_uint64, POINTER(s.ordo_timeline_step)]),
    "ordo_timeline_critical_count": (c_uint64, [_HANDLE]),
    "ordo_timeline_critical_at": (_RESULT, [_HANDLE, c_uint64, POINTER(s.ordo_critical)]),
    "ordo_schedule_auto": (_RESULT, [POINTER(s.ordo_schedule), POINTER(c_int)]),
    # ordo/model.h
    "ordo_model_create": (_RESULT, [POINTER(_HANDLE), _HANDLE, c_int]),
    "ordo_model_destroy": (None, [_HANDLE]),
    "ordo_model_constant_count": (c_size_t, []),
    "ordo_model_constant_at": (_RESULT, [_HANDLE, c_size_t, POINTER(s.ordo_model_constant)]),
    "ordo_model_set": (_RESULT, [_HANDLE, c_char_p, c_double]),
    "ordo_model_scale": (_RESULT, [_HANDLE, c_char_p, c_double]),
    "ordo_kernel_counts_count": (c_size_t, []),
    "ordo_kernel_counts_at": (POINTER(s.ordo_kernel_counts), [c_size_t]),
    "ordo_model_gemm": (_RESULT, [_HANDLE, POINTER(s.ordo_gemm), POINTER(s.ordo_kernel_time)]),
    "ordo_model_attention": (
        _RESULT,
        [_HANDLE, POINTER(s.ordo_attention_shape), POINTER(s.ordo_kernel_time)],
    ),
    "ordo_model_rng": (
        _RESULT,
        [_HANDLE, POINTER(s.ordo_rng), c_double, POINTER(s.ordo_kernel_time)],
    ),
    "ordo_model_memory": (_RESULT, [_HANDLE, c_double, c_double, POINTER(s.ordo_kernel_time)]),
    "ordo_model_block": (_RESULT, [_HANDLE, POINTER(s.ordo_block), POINTER(s.ordo_block_report)]),
    "ordo_model_plan": (_RESULT, [_HANDLE, _HANDLE, POINTER(s.ordo_plan_price)]),
    "ordo_calibration_name": (c_char_p, [c_int]),
    "ordo_precision_name": (c_char_p, [c_int]),
    "ordo_limiter_name": (c_char_p, [c_int]),
    "ordo_generator_name": (c_char_p, [c_int]),
    "ordo_mode_name": (c_char_p, [c_int]),
    # ordo/io.h
    "ordo_io_bound_at": (
        _RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_bound)],
    ),
    "ordo_io_bound_best": (_RESULT, [POINTER(s.ordo_io_problem), POINTER(s.ordo_io_bound)]),
    "ordo_io_sparse_form": (c_double, [POINTER(s.ordo_io_sparse)]),
    "ordo_io_choose": (
        _RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), POINTER(s.ordo_io_choice)],
    ),
    "ordo_io_predict": (
        _RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), POINTER(s.ordo_io_words)],
    ),
    "ordo_io_run": (
        _RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), POINTER(s.ordo_io_report)],
    ),
    "ordo_io_cache_run": (
        _RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), POINTER(s.ordo_io_cache)]
        + [POINTER(s.ordo_io_report), POINTER(s.ordo_io_words)],
    ),
    "ordo_io_curve": (
        _RESULT,
        [POINTER(s.ordo_io_problem), c_int, POINTER(s.ordo_io_tiles), c_int64, c_bool]
        + [POINTER(s.ordo_io_words), c_int64, POINTER(s.ordo_io_report)],
    ),
    "ordo_io_level_at": (
        _RESULT,
        [_HANDLE, c_int, c_int, POINTER(s.ordo_io_level), POINTER(c_bool)],
    ),
    "ordo_io_advise": (
        _RESULT,
        [_HANDLE, POINTER(s.ordo_problem), c_int, c_int, POINTER(s.ordo_io_advice)]
        + [POINTER(c_bool)],
    ),
    "ordo_io_hopper": (_RESULT, [_HANDLE, c_int64, POINTER(s.ordo_io_bytes)]),
    "ordo_io_has": (c_bool, [c_int, c_int]),
    "ordo_io_pass_name": (c_char_p, [c_int]),
    "ordo_io_algorithm_name": (c_char_p, [c_int]),
    "ordo_io_algorithm_from_name": (_RESULT, [c_char_p, POINTER(c_int)]),
}


def _raise(status: int, function: Any, arguments: Any) -> int:
    # The message belongs to this thread, and no other call of it came between.
    if status != 0:
        raise Error(lib.ordo_status_name(status).decode(), lib.ordo_last_error().decode())
    return status


def _declare(library: ctypes.CDLL, path: str) -> ctypes.CDLL:
    for name, (result, arguments) in _PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path}: a libordo of another version? no {name}()") from None
        function.argtypes = arguments
        function.restype = c_int if result is _RESULT else result
        if result is _RESULT:
            function.errcheck = _raise
    return library


# ---- where it is ----


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libordo cannot be loaded: {error}") from None


def _find() -> tuple[ctypes.CDLL, str]:
    """ORDO_LIBRARY; beside this file (a wheel); the build tree of a clone; the system's."""
    named = os.environ.get("ORDO_LIBRARY")
    if named:
        return _open(named), named
    here = Path(__file__).resolve().parent
    places = [here / "libordo.so", here.parents[1] / "build" / "lib" / "libordo.so"]
    for place in places:
        if place.exists():
            return _open(str(place)), str(place)
    try:
        return ctypes.CDLL("libordo.so.0"), "libordo.so.0"
    except OSError:
        looked = ", ".join(str(place) for place in places)
        raise ImportError(
            f"libordo not found: ORDO_LIBRARY is not set, there is none at {looked}, and the "
            "system's loader knows no libordo.so.0. Run `make` in the sources, or set "
            "ORDO_LIBRARY to the path of libordo.so."
        ) from None


_library, path = _find()
lib: Any = _declare(_library, path)


# ---- what it is ----


@dataclass(frozen=True)
class Build:
    """What the library at hand is."""

    version: str
    compiler: str
    target: str
    flavour: str
    path: str  # where it was found


def build() -> Build:
    """Version, compiler and target of the library, and where it was found."""
    b = lib.ordo_build_query()
    text = bytes.decode
    return Build(text(b.version), text(b.compiler), text(b.target), text(b.flavour), path)


def version() -> str:
    """Version of the library: "0.1.0"."""
    return build().version
