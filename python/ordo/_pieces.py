"""xxh64-pieces, the digest of ordo/digest.h: many spans of bytes at once, equal on CPU and GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from . import _structs as s
from ._arrays import Array
from ._library import lib
from ._words import TABLES

Span = tuple[int, int]  # address and bytes


class Digests:
    """One call: the spans, and the workspace that they need."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._table = np.array(spans, np.uint64).reshape(-1, 2)  # the layout of ordo_bytes
        self._spans = self._table.ctypes.data_as(ctypes.POINTER(s.ordo_bytes))
        self.count = len(self._table)
        self.workspace_bytes: int = lib.ordo_digest_workspace(self._spans, self.count)

    def run(
        self, digests: int, workspace: int, *, backend: str, stream: int = 0, threads: int = 0
    ) -> None:
        """Write the digests to the address `digests`, 8 bytes each."""
        call = s.sized(s.ordo_digest_call)
        call.backend = TABLES["backend"].number("backend", backend)
        call.threads = threads
        call.count, call.spans = self.count, self._spans
        call.digests, call.workspace = digests, workspace
        call.workspace_bytes, call.stream = self.workspace_bytes, stream
        lib.ordo_digest_run(ctypes.byref(call))


def on_cpu(spans: Sequence[Span], threads: int = 0) -> Array:
    """The digests of spans of host memory, as uint64."""
    call = Digests(spans)
    digests = np.zeros(call.count, np.uint64)
    workspace = np.empty(call.workspace_bytes // 8, np.uint64)
    call.run(digests.ctypes.data, workspace.ctypes.data, backend="cpu", threads=threads)
    return digests


def of_arrays(arrays: Sequence[Array]) -> Array:
    """The digests of arrays: their elements in C order, little endian."""
    ready = [np.ascontiguousarray(x, x.dtype.newbyteorder("<")) for x in arrays]
    return on_cpu([(x.ctypes.data, x.nbytes) for x in ready])
