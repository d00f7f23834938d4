"""Element masks: which elements the rows of a sequence see, one by one (ordo/seen.h)."""

from __future__ import annotations

from ctypes import byref, c_int64, c_size_t
from typing import Any

import numpy as np

from . import _structs as s
from ._arrays import Array, address, matrices
from ._library import Error, lib
from ._problem import Problem, SeenLimits, from_c, to_c

_ALIGN = 16


class Seen:
    """A mask of single elements, for any number of calls of the same lengths.

    `elements` are bool, (sequences or 1, heads or 1, q_len, kv_len) or their last axes, with any
    strides: True is seen. They are copied as bits. The mask narrows the mask of the problem, whose
    `seen` is its `limits`.
    """

    def __init__(self, elements: Array) -> None:
        whole = matrices("seen", elements)
        if whole.dtype != np.bool_:
            raise Error("argument", f"seen.dtype {whole.dtype}: expected bool")
        sequences, heads, q_len, kv_len = whole.shape
        self.limits = SeenLimits(on=True, per_sequence=sequences > 1, per_head=heads > 1)
        own = to_c(
            Problem(
                q_len=q_len, kv_len=kv_len or -1, batch=sequences, heads=heads, head_dim=1,
                seen=self.limits,
            )
        )  # fmt: skip
        size = c_size_t()
        lib.ordo_seen_bytes(byref(own), byref(size))
        self._memory = np.empty(size.value + _ALIGN, np.uint8)  # at least one byte
        self._mask = s.sized(s.ordo_block_mask)
        at = -(-address(self._memory) // _ALIGN) * _ALIGN
        strides = (c_int64 * 4)(*whole.strides)
        lib.ordo_seen_make(byref(self._mask), byref(own), address(whole), strides, at, size)

    def to_c(self) -> s.ordo_block_mask:
        """The struct, whose lists and bits lie in memory of this mask."""
        return self._mask  # type: ignore[no-any-return]

    def kind(self, problem: Problem) -> tuple[Problem, Array | None, Array | None]:
        """The problem with an ordinary mask that hides the same, and the valid lengths of its
        sequences if it is padded; the problem with this mask if there is none."""
        found = s.sized(s.ordo_problem)
        lengths = np.empty((2, problem.batch), np.int32)
        places = address(lengths[0]), address(lengths[1])
        own = to_c(problem.replace(seen=self.limits))
        lib.ordo_seen_kind(byref(own), byref(self._mask), byref(found), *places)
        as_kind = from_c(found)
        if as_kind.layout == problem.layout:
            return as_kind, None, None
        return as_kind, lengths[0], lengths[1]
