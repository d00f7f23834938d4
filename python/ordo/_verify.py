"""Checks at import that the loaded library lays out its structs as _structs.py does.

Argument structs carry their size, so the library itself refuses one that it does not know. Some
that it writes carry none, and a library from elsewhere (ORDO_LIBRARY, the system's) could be of any
version: so each struct it writes is filled once, with a guard after it, and read back.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p, sizeof
from typing import Any

from . import _structs as s
from ._library import Error, lib, path
from ._problem import BlockLimits, Dropout, Problem, Shard, from_c, to_c

_GUARD = 256
_BYTE = 0xA5

# Nothing left to a default, no two neighbours alike.
_PROBLEM = Problem(
    dtype="f16", batch=3, heads=8, kv_heads=4, q_len=32, kv_len=256, head_dim=24, v_head_dim=40,
    scale=0.75, mask="causal", window=(100, 0), softcap=6.5, alibi=True,
    dropout=Dropout(p=0.25, rounds=10, bits=9),
    shard=Shard(batch0=5, head0=16, row0=48, col0=128, heads_total=64, q_total=1000, kv_total=2000),
    blocks=BlockLimits(entries=11, per_head=True),
)  # fmt: skip


class Mismatch(Exception):
    pass


def written(kind: type[Any], function: Any, *before: Any) -> Any:
    """`kind` as `function` writes it after its other arguments; nothing past its end."""
    room = (ctypes.c_ubyte * (sizeof(kind) + _GUARD))(*[_BYTE] * (sizeof(kind) + _GUARD))
    struct = kind.from_buffer(room)
    if hasattr(struct, "size"):
        struct.size = sizeof(kind)
    function(*before, byref(struct))
    if any(byte != _BYTE for byte in room[sizeof(kind) :]):
        raise Mismatch(f"{kind.__name__} is longer than {sizeof(kind)} bytes")
    return struct


def expect(kind: str, *pairs: tuple[Any, Any]) -> None:
    for got, expected in pairs:
        if got != expected:
            raise Mismatch(f"{kind}: {got!r} where {expected!r} was expected")


def _expect_line(plan: c_void_p) -> None:
    """The plan's line names every field: two that changed places show there."""
    room = ctypes.create_string_buffer(4096)
    lib.ordo_plan_print(plan, room, len(room), None)
    said = dict(word.split("=") for word in room.value.decode().split()[1:])
    for name, value in (vars(_PROBLEM) | vars(_PROBLEM.shard) | vars(_PROBLEM.dropout)).items():
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, (int, str)) and name in said:
            expect(f"ordo_problem.{name}", (said[name], str(value)))


def _plans() -> None:
    options, plan = s.sized(s.ordo_plan_options), c_void_p()
    options.backend, options.workers = 1, 7
    lib.ordo_plan_create(byref(plan), byref(to_c(_PROBLEM)), None, byref(options))
    try:
        problem = written(s.ordo_problem, lib.ordo_plan_problem, plan)
        expect("ordo_problem", (from_c(problem), _PROBLEM), (problem.size, sizeof(problem)))
        _expect_line(plan)
        info = written(s.ordo_plan_info, lib.ordo_plan_query, plan)
        expect(
            "ordo_plan_info",
            (info.backend, 1),
            (info.dropout_rounds, 10),
            (info.dropout_p_used, 0.25),
            (info.numeric_key[:5], b"ref.r"),
            (info.kept ^ info.not_kept, 0x3F),
        )
    finally:
        lib.ordo_plan_destroy(plan)


def _dropouts() -> None:
    call = s.sized(s.ordo_dropout_call)
    arguments = byref(to_c(_PROBLEM)), byref(call)
    info = written(s.ordo_dropout_info, lib.ordo_dropout_query, *arguments)
    expect("ordo_dropout_info", (info.bytes, 256 * info.blocks), (info.scale, 512 / 384))
    call.experiment_rounds = 99  # refused: nothing else of the call has changed
    try:
        written(s.ordo_dropout_info, lib.ordo_dropout_query, *arguments)
    except Error:
        pass
    else:
        raise Mismatch("ordo_dropout_call: experiment_rounds is elsewhere")


def _calls() -> None:
    """One element forward and backward, then refusals of the last fields."""
    options, plan = s.sized(s.ordo_plan_options), c_void_p()
    options.backend = 1
    lib.ordo_plan_create(
        byref(plan), byref(to_c(Problem(q_len=1, head_dim=1))), None, byref(options)
    )
    try:
        call, cells = s.sized(s.ordo_call), (ctypes.c_float * 9)(2, 3, 5, 0, 0, 7, 0, 0, 0)
        place = ctypes.addressof(cells)
        for index, name in enumerate(("q", "k", "v", "o", None, "dout", "dq", "dk", "dv")):
            if name:
                getattr(call, name).data = place + 4 * index
        call.lse = place + 4 * 4
        lib.ordo_attention_forward(plan, byref(call))
        lib.ordo_attention_backward(plan, byref(call))
        expect("ordo_call", (list(cells), [2, 3, 5, 5, 6, 7, 0, 0, 7]))
        for name, value in (("threads", -9), ("carry", 8)):
            setattr(call, name, value)  # refused: the rest of the call is as before
            try:
                lib.ordo_attention_backward(plan, byref(call))
            except Error as error:
                expect(f"ordo_call.{name}", (error.status, "argument"))
            else:
                raise Mismatch(f"ordo_call: {name} is elsewhere")
            setattr(call, name, 0)
    finally:
        lib.ordo_plan_destroy(plan)


def verify() -> None:
    """Raise ImportError if a struct is not what the library takes it for."""
    try:
        _plans()
        _dropouts()
        _calls()
    except (Mismatch, Error, IndexError) as error:
        raise ImportError(f"{path}: a libordo of another version? {error}") from error
