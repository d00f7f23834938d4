"""Find libordo, load it, and declare its functions. A failed call raises Error."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
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

HANDLE = c_void_p
RESULT = "status"  # an ordo_status: anything but 0 raises Error
Prototype = tuple[Any, list[Any]]  # result, arguments
MASK = POINTER(POINTER(s.ordo_block_mask))
BLOCK_RULE = CFUNCTYPE(c_bool, c_void_p, c_int64, c_int64)

PROTOTYPES: dict[str, Prototype] = {
    # ordo/status.h
    "ordo_status_name": (c_char_p, [c_int]),
    "ordo_last_error": (c_char_p, []),
    "ordo_build_query": (s.ordo_build, []),
    # ordo/problem.h
    "ordo_problem_check": (RESULT, [POINTER(s.ordo_problem)]),
    "ordo_dtype_name": (c_char_p, [c_int]),
    "ordo_mask_name": (c_char_p, [c_int]),
    "ordo_mask_diagonal": (c_int64, [c_int, c_int64, c_int64]),
    "ordo_layout_name": (c_char_p, [c_int]),
    # ordo/machine.h
    "ordo_machine_create": (RESULT, [POINTER(HANDLE), c_char_p]),
    "ordo_machine_parse": (RESULT, [POINTER(HANDLE), c_char_p, c_size_t, c_char_p]),
    "ordo_machine_destroy": (None, [HANDLE]),
    "ordo_machine_name": (c_char_p, [HANDLE]),
    "ordo_machine_title": (c_char_p, [HANDLE]),
    "ordo_machine_family_of": (c_int, [HANDLE]),
    "ordo_machine_key_count": (c_size_t, []),
    "ordo_machine_key_at": (POINTER(s.ordo_machine_key), [c_size_t]),
    "ordo_machine_get": (RESULT, [HANDLE, c_char_p, POINTER(c_double)]),
    "ordo_machine_source": (c_char_p, [HANDLE, c_char_p]),
    "ordo_machine_builtin": (c_char_p, [c_size_t]),
    # ordo/plan.h
    "ordo_plan_create": (
        RESULT,
        [POINTER(HANDLE), POINTER(s.ordo_problem), HANDLE, POINTER(s.ordo_plan_options)],
    ),
    "ordo_plan_destroy": (None, [HANDLE]),
    "ordo_plan_query": (RESULT, [HANDLE, POINTER(s.ordo_plan_info)]),
    "ordo_plan_problem": (RESULT, [HANDLE, POINTER(s.ordo_problem)]),
    "ordo_plan_workspace": (c_size_t, [HANDLE]),
    "ordo_plan_print": (RESULT, [HANDLE, c_char_p, c_size_t, POINTER(c_size_t)]),
    "ordo_plan_parse": (RESULT, [POINTER(HANDLE), c_char_p]),
    "ordo_plan_check": (RESULT, [HANDLE, POINTER(c_uint64)]),
    "ordo_backend_name": (c_char_p, [c_int]),
    "ordo_order_name": (c_char_p, [c_int]),
    "ordo_form_name": (c_char_p, [c_int]),
    "ordo_issue_name": (c_char_p, [c_int]),
    "ordo_assign_name": (c_char_p, [c_int]),
    "ordo_promise_name": (c_char_p, [c_int]),
    "ordo_order_from_name": (RESULT, [c_char_p, POINTER(c_int)]),
    # ordo/blocks.h
    "ordo_block_mask_from_intervals": (RESULT, [MASK, c_int64, c_int64, c_void_p, c_void_p]),
    "ordo_block_mask_from_function": (RESULT, [MASK, c_int64, c_int64, BLOCK_RULE, c_void_p]),
    "ordo_block_mask_from_documents": (RESULT, [MASK, c_int64, c_void_p]),
    "ordo_block_mask_from_chunks": (RESULT, [MASK, c_int64, c_int64, c_int64, c_int64]),
    "ordo_block_mask_from_band": (
        RESULT,
        [MASK, c_int64, c_int64, c_int, POINTER(s.ordo_window)],
    ),
    "ordo_block_mask_join": (RESULT, [MASK, MASK, c_int64, c_int64]),
    "ordo_block_mask_destroy": (None, [POINTER(s.ordo_block_mask)]),
    "ordo_block_mask_check_lists": (RESULT, [HANDLE, POINTER(s.ordo_block_mask)]),
    "ordo_block_mask_check": (
        RESULT,
        [HANDLE, POINTER(s.ordo_block_mask), POINTER(c_uint64)],
    ),
    # ordo/seen.h
    "ordo_seen_bytes": (RESULT, [POINTER(s.ordo_problem), POINTER(c_size_t)]),
    "ordo_seen_make": (
        RESULT,
        [POINTER(s.ordo_block_mask), POINTER(s.ordo_problem), c_void_p, c_void_p]
        + [c_void_p, c_size_t],
    ),
    "ordo_seen_make_device": (
        RESULT,
        [POINTER(s.ordo_block_mask), POINTER(s.ordo_problem), c_void_p, c_void_p]
        + [c_void_p, c_size_t, c_void_p],
    ),
    "ordo_seen_kind": (
        RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_block_mask), POINTER(s.ordo_problem)]
        + [c_void_p, c_void_p],
    ),
    # ordo/attention.h
    "ordo_attention_forward": (RESULT, [HANDLE, POINTER(s.ordo_call)]),
    "ordo_attention_backward": (RESULT, [HANDLE, POINTER(s.ordo_call)]),
    "ordo_attention_combine": (RESULT, [HANDLE, POINTER(s.ordo_combine)]),
    "ordo_delay_turns": (None, [c_int64]),
    "ordo_backend_available": (c_bool, [c_int, POINTER(c_char_p)]),
    "ordo_backend_query": (RESULT, [c_int, POINTER(s.ordo_backend_limits)]),
    # ordo/audit.h
    "ordo_audit_unit_count": (RESULT, [HANDLE, POINTER(s.ordo_call), c_int, POINTER(c_int64)]),
    "ordo_audit_unit_describe": (
        RESULT,
        [HANDLE, POINTER(s.ordo_call), c_int, c_int64, POINTER(s.ordo_audit_unit)],
    ),
    "ordo_audit_check": (
        RESULT,
        [
            HANDLE,
            POINTER(s.ordo_call),
            c_int,
            c_int64,
            c_int64,
            POINTER(s.ordo_audit_difference),
        ],
    ),
    # ordo/sum.h
    "ordo_sum_tree": (RESULT, [POINTER(s.ordo_sum)]),
    "ordo_sum_tree_device": (RESULT, [POINTER(s.ordo_sum), c_void_p]),
    # ordo/gemm.h
    "ordo_gemm_plan_create": (RESULT, [POINTER(HANDLE), POINTER(s.ordo_gemm_problem), c_int]),
    "ordo_gemm_plan_destroy": (None, [HANDLE]),
    "ordo_gemm_plan_query": (RESULT, [HANDLE, POINTER(s.ordo_gemm_info)]),
    "ordo_gemm_run": (RESULT, [HANDLE, POINTER(s.ordo_gemm_call)]),
    "ordo_gemm_query": (RESULT, [c_int, POINTER(s.ordo_gemm_limits)]),
    # ordo/device.h
    "ordo_device_count": (RESULT, [POINTER(c_int), POINTER(c_char_p)]),
    "ordo_device_query": (RESULT, [c_int, POINTER(s.ordo_device)]),
    "ordo_device_machine": (RESULT, [c_int, POINTER(HANDLE)]),
    "ordo_device_select": (RESULT, [c_int]),
    "ordo_device_alloc": (RESULT, [POINTER(c_void_p), c_size_t]),
    "ordo_device_free": (RESULT, [c_void_p]),
    "ordo_device_copy": (RESULT, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "ordo_device_fill": (RESULT, [c_void_p, c_int, c_size_t, c_void_p]),
    "ordo_device_equal": (RESULT, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_bool)]),
    "ordo_device_stream_create": (RESULT, [POINTER(c_void_p)]),
    "ordo_device_stream_destroy": (RESULT, [c_void_p]),
    "ordo_device_synchronise": (RESULT, [c_void_p]),
    "ordo_device_event_create": (RESULT, [POINTER(c_void_p)]),
    "ordo_device_event_destroy": (RESULT, [c_void_p]),
    "ordo_device_event_record": (RESULT, [c_void_p, c_void_p]),
    "ordo_device_event_elapsed": (RESULT, [c_void_p, c_void_p, POINTER(c_double)]),
    # ordo/dropout.h
    "ordo_dropout_query": (
        RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call), POINTER(s.ordo_dropout_info)],
    ),
    "ordo_dropout_keep": (
        RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call)] + [c_int64] * 4 + [POINTER(c_bool)],
    ),
    "ordo_dropout_fill": (
        RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call), c_uint64, c_uint64]
        + [c_void_p, c_size_t],
    ),
    "ordo_dropout_fill_device": (
        RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call), c_void_p, c_size_t, c_void_p],
    ),
    "ordo_dropout_export": (
        RESULT,
        [POINTER(s.ordo_problem), POINTER(s.ordo_dropout_call), c_void_p]
        + [POINTER(s.ordo_dropout_part), c_void_p, c_size_t, POINTER(c_size_t)],
    ),
    "ordo_philox4x32": (RESULT, [c_uint32 * 4, c_uint32 * 2, c_int, c_uint32 * 4]),
    "ordo_keying_name": (c_char_p, [c_int]),
    "ordo_dropout_mode_name": (c_char_p, [c_int]),
    # ordo/digest.h
    "ordo_digest_workspace": (c_size_t, [POINTER(s.ordo_bytes), c_int64]),
    "ordo_digest_run": (RESULT, [POINTER(s.ordo_digest_call)]),
    # ordo/record.h
    "ordo_comparison_create": (RESULT, [POINTER(HANDLE), c_char_p, c_char_p]),
    "ordo_comparison_destroy": (None, [HANDLE]),
    "ordo_comparison_query": (RESULT, [HANDLE, POINTER(s.ordo_comparison_info)]),
    "ordo_comparison_step_at": (RESULT, [HANDLE, c_int64, POINTER(s.ordo_comparison_step)]),
    "ordo_comparison_tensor": (c_char_p, [HANDLE, c_int64, POINTER(c_bool)]),
    "ordo_comparison_cell": (c_int, [HANDLE, c_int64, c_int64]),
    "ordo_cause_name": (c_char_p, [c_uint]),
}


def _raise(status: int, function: Any, arguments: Any) -> int:
    # The message belongs to this thread, and no other call of it came between.
    if status != 0:
        raise Error(lib.ordo_status_name(status).decode(), lib.ordo_last_error().decode())
    return status


def declare(library: Any, path: str, prototypes: dict[str, Prototype]) -> Any:
    """Give the functions of a library their types; `path` is for the message if one is missing."""
    for name, (result, arguments) in prototypes.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path}: a libordo of another version? no {name}()") from None
        function.argtypes = arguments
        function.restype = c_int if result is RESULT else result
        if result is RESULT:
            function.errcheck = _raise
    return library


# ---- where it is ----


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libordo cannot be loaded: {error}") from None


def _find() -> tuple[ctypes.CDLL, str]:
    """ORDO_LIBRARY; the folder of this file (a wheel); the build tree of a clone; the system's."""
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
lib: Any = declare(_library, path, PROTOTYPES)


# ---- what it is ----


@dataclass(frozen=True)
class Build:
    """Version and build of the loaded library."""

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
    """Version of the library: "0.2.0"."""
    return build().version
