"""Compare the records of two training runs: `ordo compare` as a function."""

from __future__ import annotations

import os
from ctypes import byref, c_void_p
from dataclasses import dataclass

from . import _structs as s
from ._library import Error, lib

_CAUSES = 10  # bits of ordo_comparison_info.causes


@dataclass(frozen=True)
class Comparison:
    """What compare() found. True if everything that both runs recorded is equal."""

    equal: bool
    step: int | None  # the first that differs
    different: str | None  # what differs there first: "batch", "loss", "weight NAME", ...
    gradient: str | None  # the first gradient that differs there, in backward order
    causes: tuple[str, ...]  # "batch", "seeds", "plan", "version", ..., "numerics"
    hint: str  # the causes for people
    steps: int  # compared: recorded in both files
    equal_steps: int  # compared steps before the first that differs
    weights: tuple[int, int]  # at that step: different ones, and all
    gradients: tuple[int, int]
    ignored: tuple[int, int]  # lines of A and of B that cannot be read
    incomplete: tuple[bool, bool]  # the last line of A, of B is truncated
    text: str  # the verdict for people

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        return self.text


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Comparison:
    """Compare two records that ordo.Recorder wrote; either may still be growing.

    Steps that both files have are compared in order: batch ids, seeds, weights, loss, gradients in
    backward order. Raises Error if a file is no record or they have no step in common.
    """
    handle = c_void_p()
    lib.ordo_comparison_create(byref(handle), _path("a", a), _path("b", b))
    try:
        info = s.sized(s.ordo_comparison_info)
        lib.ordo_comparison_query(handle, byref(info))
        bits = [1 << bit for bit in range(_CAUSES) if info.causes >> bit & 1]
        return Comparison(
            equal=info.equal,
            step=None if info.equal else info.step,
            different=_text(info.different) or None,
            gradient=_text(info.gradient) or None,
            causes=tuple(lib.ordo_cause_name(bit).decode() for bit in bits),
            hint=_text(info.hint),
            steps=info.steps,
            equal_steps=info.equal_steps,
            weights=(info.other_weights, info.weights),
            gradients=(info.other_gradients, info.gradients),
            ignored=(info.ignored_a, info.ignored_b),
            incomplete=(info.incomplete_a, info.incomplete_b),
            text=_text(info.text).rstrip("\n"),
        )
    finally:
        lib.ordo_comparison_destroy(handle)


def _path(name: str, given: str | os.PathLike[str]) -> bytes:
    try:
        path = os.fsencode(given)
    except (TypeError, UnicodeEncodeError):
        path = b"\0"
    if b"\0" in path:  # C would read the name up to it
        raise Error("argument", f"{name} {given!r}: expected the path of a record")
    return path


def _text(given: bytes) -> str:
    return given.decode(errors="replace")
