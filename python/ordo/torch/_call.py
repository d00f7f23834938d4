"""One call of the C API: the bytes of an ordo_call, its workspace, and the launch.

The arguments of a pass are packed into the bytes of an ordo_call at once: setting the fields of a
ctypes struct one by one would cost more than the rest of the call.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_char_p, c_int, c_void_p
from typing import Any

import torch
from torch import Tensor

from .. import _structs as s
from .._library import _raise, path
from .._plan import WORKSPACE_ALIGN
from . import _segments
from ._bits import make_bits
from ._inputs import ONLY_RNG, Lists
from ._layout import round_up
from ._plans import Ready
from ._segments import Segmented

# ---- an ordo_call as bytes: its size and tensors, then the rest ----

CALL_BYTES = s.ordo_call.dk_sums.offset  # without carried sums
PART_BYTES = s.ordo_call.side_stream.offset  # without a second stream
STRIDED = struct.Struct("@Q" + 8 * "Q4q")  # eight tensors: address, strides
DENSE = struct.Struct("@Q" + 8 * "Q32x")  # all contiguous: addresses, strides 0
_REST = struct.Struct("@17Qi4x")  # lse ... stream, threads
_BARE = struct.Struct("@2Q96x3Qi4x")  # the same without lists
_DROP = struct.Struct("@2Q56xQ16x5Qi4x")  # with mask_bits, seed and offset only
SUMS = struct.Struct("@2QI4x")  # dk_sums, dv_sums, carry
SINK_BYTES = s.ordo_call.block_mask.offset  # without a block mask
SINK = struct.Struct("@32x3Q")  # no carried sums, no side stream; sink, dsink, dsink_parts
_STREAM_BYTES = struct.pack("@Q", s.ordo_call.sink.offset)  # without sinks
_NO_SUMS = SUMS.pack(0, 0, 0)
assert STRIDED.size == DENSE.size == s.ordo_call.lse.offset
assert _REST.size == _BARE.size == _DROP.size == CALL_BYTES - s.ordo_call.lse.offset
assert SUMS.size == PART_BYTES - CALL_BYTES
assert SINK.size == SINK_BYTES - CALL_BYTES
assert s.ordo_call.mask_bits.offset == s.ordo_call.lse.offset + 9 * 8
assert s.ordo_call.seed_ptr.offset == s.ordo_call.lse.offset + 12 * 8
assert s.ordo_call.workspace.offset == s.ordo_call.lse.offset + 14 * 8
NO_TENSOR = (0, 0, 0, 0, 0)


def run_forward(
    made: Ready,
    head: bytes,
    ends: tuple[int, int],
    lists: Lists,
    bits: Tensor | None,
    more: bytes = b"",
) -> None:
    """Run a forward pass. `head` holds the size and the tensors, `ends` where lse and dlse are,
    `bits` the keep bits if they have been made, `more` the fields after `threads`: SUMS where the
    size is PART_BYTES, SINK where it is SINK_BYTES.

    Raises Error before anything is written if the library refuses the call.
    """
    _run(_forward, made, made.forward_bytes, head, ends, lists, bits, more)


def run_backward(
    made: Ready,
    head: bytes,
    ends: tuple[int, int],
    lists: Lists,
    bits: Tensor | None,
    more: bytes = b"",
) -> None:
    """The same for a backward pass."""
    _run(_backward, made, made.backward_bytes, head, ends, lists, bits, more)


def _declare(name: str) -> Any:
    function = getattr(_library, name)
    function.argtypes, function.restype = (c_void_p, c_char_p), c_int
    return function


_library = ctypes.CDLL(path)  # beside _library.lib, whose functions take structs
_forward = _declare("ordo_attention_forward")
_backward = _declare("ordo_attention_backward")


def _rest(
    made: Ready, ends: tuple[int, int], lists: Lists, bits: int, where: tuple[int, int, int, int]
) -> bytes:
    """`ends` are lse and dlse, `where` workspace, its size, stream and threads."""
    if not made.lists:
        return _BARE.pack(*ends, *where)
    if made.lists == ONLY_RNG:
        rng = lists[0].data_ptr()  # type: ignore[union-attr]
        return _DROP.pack(*ends, bits, rng, rng + 8, *where)
    rng, *lengths, slopes = [0 if x is None else x.data_ptr() for x in lists]
    stride = 0
    if lists.slopes is not None and lists.slopes.dim() == 2:
        stride = lists.slopes.shape[-1]
    return _REST.pack(
        *ends, *lengths, slopes, stride, bits, 0, 0, rng, rng + 8 if rng else 0, *where
    )  # fmt: skip


# ---- workspace, stream and launch ----


class _Pool:
    """Workspaces of CPU passes: one per pass in flight, kept for the next pass, growing as needed.

    list.pop() and list.append() are atomic: no lock. Not from torch.empty(), which strict
    determinism would make fill them first.
    """

    def __init__(self) -> None:
        self._idle: list[tuple[int, int, Any]] = []

    def take(self, size: int) -> tuple[int, int, Any]:
        """(address, room, what holds it)."""
        try:
            found = self._idle.pop()
            if found[1] >= size:
                return found
        except IndexError:
            pass
        storage = torch.UntypedStorage(size + WORKSPACE_ALIGN)
        return round_up(storage.data_ptr(), WORKSPACE_ALIGN), size, storage

    def give(self, taken: tuple[int, int, Any]) -> None:
        self._idle.append(taken)


_pool = _Pool()


def _run(
    function: Any,
    made: Ready,
    size: int,
    head: bytes,
    ends: tuple[int, int],
    lists: Lists,
    bits: Tensor | None,
    more: bytes = b"",
) -> None:
    given = 0 if bits is None else bits.data_ptr()
    if made.cuda:
        if made.device == torch._C._cuda_getDevice():
            _launch(function, made, size, head, ends, lists, given, more)
        else:
            with torch.cuda.device(made.device):
                _launch(function, made, size, head, ends, lists, given, more)
        return
    whole, parts = (False, None) if given else _bits_of(made, lists, more)
    if parts is not None and _run_segments(function, made, parts, head, ends, lists, more):
        return
    work = _pool.take(size) if size else None
    made_here = None
    if whole:
        try:
            made_here = torch.UntypedStorage(made.bits_bytes)
        except RuntimeError:  # no memory: the pass makes its bits
            pass
        else:
            given = made_here.data_ptr()
            make_bits(False, made.problem, lists, given, made.bits_bytes, 0)
    where = (work[0] if work else 0, size, 0, torch.get_num_threads())
    status = function(made.handle, head + _rest(made, ends, lists, given, where) + more)
    if work is not None:
        _pool.give(work)
    if status:
        _raise(status, function, ())


def _bits_of(made: Ready, lists: Lists, more: bytes) -> tuple[bool, Segmented | None]:
    """As whole_or_segmented(), but no segments with sinks: their gradient is a sum over all rows."""
    whole, parts = _segments.whole_or_segmented(made, lists)
    if parts is not None and len(more) == SINK.size:
        return made.bits_needed, None
    return whole, parts


def _run_segments(
    function: Any,
    made: Ready,
    parts: Segmented,
    head: bytes,
    ends: tuple[int, int],
    lists: Lists,
    sums: bytes,
) -> bool:
    """Run a CPU pass in segments; False, with nothing done, if there is no memory for them. Their
    workspace is not kept for the next pass."""
    size = parts.forward_bytes if function is _forward else parts.backward_bytes
    try:
        storage = torch.UntypedStorage(size + WORKSPACE_ALIGN)
    except RuntimeError:
        return False
    place = round_up(storage.data_ptr(), WORKSPACE_ALIGN)
    where = (place, size, 0, torch.get_num_threads())
    status = function(parts.handle, head + _rest(made, ends, lists, 0, where) + sums)
    if status:
        _raise(status, function, ())
    return True


def _launch(
    function: Any,
    made: Ready,
    size: int,
    head: bytes,
    ends: tuple[int, int],
    lists: Lists,
    bits: int,
    more: bytes,
) -> None:
    # The caching allocator reuses memory in the order of the stream, so that it may be released as
    # soon as the pass is launched; inside a graph the memory is the graph's own. Only the address
    # is handled, because a tensor or a storage around it would cost more than the launch.
    stream = torch._C._cuda_getCurrentRawStream(made.device)
    whole, parts = (False, None) if bits else _bits_of(made, lists, more)
    if parts is not None:
        try:
            _launch_segments(function, made, parts, head, ends, lists, more, stream)
            return
        except torch.OutOfMemoryError:  # of the allocation, before anything is launched
            if made.bits_needed:
                raise
    ahead = made.bits_bytes if whole else 0
    room = round_up(size, WORKSPACE_ALIGN)
    work = 0
    if ahead:
        try:
            work = _allocate(room + ahead, stream)
            bits = work + room
        except torch.OutOfMemoryError:
            if made.bits_needed:
                raise
            ahead = 0  # the pass makes its bits
    if not work and size:
        work = _allocate(room, stream)
    status = 0
    try:
        if ahead:
            status = make_bits(True, made.problem, lists, bits, ahead, stream)
        if not status:
            where = (work if size else 0, size, stream, 0)
            status = function(made.handle, head + _rest(made, ends, lists, bits, where) + more)
    finally:
        if work:
            torch._C._cuda_cudaCachingAllocator_raw_delete(work)
    if status:
        _raise(status, function, ())


def _launch_segments(
    function: Any,
    made: Ready,
    parts: Segmented,
    head: bytes,
    ends: tuple[int, int],
    lists: Lists,
    sums: bytes,
    stream: int,
) -> None:
    # The stream of the pass waits for the second one, so that memory is released in its order.
    size = parts.forward_bytes if function is _forward else parts.backward_bytes
    second = _segments.side(lists[0].device).cuda_stream  # type: ignore[union-attr]
    work = _allocate(size, stream)
    try:
        where = (work, size, stream, 0)
        call = _STREAM_BYTES + head[8:] + _rest(made, ends, lists, 0, where)
        status = function(parts.handle, call + (sums or _NO_SUMS) + struct.pack("@Q", second))
    finally:
        torch._C._cuda_cudaCachingAllocator_raw_delete(work)
    if status:
        _raise(status, function, ())


def _allocate(size: int, stream: int) -> int:
    place: int = torch._C._cuda_cudaCachingAllocator_raw_alloc(size, stream)
    return place
