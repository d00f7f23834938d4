"""Passes on real tensors, below autograd, through the C API.

The arguments of a pass are packed into the bytes of an ordo_call at once: setting the fields of a
ctypes struct one by one would cost more than the rest of the call.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import struct
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from typing import Any

import torch
from torch import Tensor

from .. import _structs as s
from .._library import Error, _raise, path
from .._plan import WORKSPACE_ALIGN
from ._lengths import check as check_lengths
from ._lengths import checked
from ._plans import COPY_BYTES, ONLY_RNG, Lists, Ready, adapt, fill_call, ready, strides, taken

# ---- an ordo_call as bytes: its size and tensors, then the rest ----

_CALL_BYTES = ctypes.sizeof(s.ordo_call)
_STRIDED = struct.Struct("@Q" + 8 * "Q4q")  # eight tensors: address, strides
_DENSE = struct.Struct("@Q" + 8 * "Q32x")  # all contiguous: addresses, strides 0
_REST = struct.Struct("@17Qi4x")  # lse ... stream, threads
_BARE = struct.Struct("@2Q96x3Qi4x")  # the same without lists
_DROP = struct.Struct("@2Q56xQ16x5Qi4x")  # with mask_bits, seed and offset only
assert _STRIDED.size == _DENSE.size == s.ordo_call.lse.offset
assert _REST.size == _BARE.size == _DROP.size == _CALL_BYTES - s.ordo_call.lse.offset
assert s.ordo_call.mask_bits.offset == s.ordo_call.lse.offset + 9 * 8
assert s.ordo_call.seed_ptr.offset == s.ordo_call.lse.offset + 12 * 8
assert s.ordo_call.workspace.offset == s.ordo_call.lse.offset + 14 * 8


def _declare(name: str, *arguments: Any) -> Any:
    function = getattr(_library, name)
    function.argtypes, function.restype = arguments, c_int
    return function


_library = ctypes.CDLL(path)  # beside _library.lib, whose functions take structs
_forward = _declare("ordo_attention_forward", c_void_p, c_char_p)
_backward = _declare("ordo_attention_backward", c_void_p, c_char_p)
_fill_device = _declare(
    "ordo_dropout_fill_device", c_char_p, c_char_p, c_void_p, c_size_t, c_void_p
)
_NOTHING = (0, 0, 0, 0, 0)


def _tensor(x: Tensor) -> tuple[int, ...]:
    return (x.data_ptr(), *strides(x))


def _readable(x: Tensor) -> Tensor:
    """The tensor itself if the library takes it; else a copy."""
    if taken(x) and not (x.is_cuda and x.data_ptr() % COPY_BYTES):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _place(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


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
    """Workspaces of CPU passes: one a pass in flight, kept for the next, growing as asked.

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
        return -(-storage.data_ptr() // WORKSPACE_ALIGN) * WORKSPACE_ALIGN, size, storage

    def give(self, taken: tuple[int, int, Any]) -> None:
        self._idle.append(taken)


_pool = _Pool()


def _run(
    function: Any, made: Ready, size: int, head: bytes, ends: tuple[int, int], lists: Lists
) -> None:
    """`head` holds the tensors, `ends` lse and dlse."""
    if made.cuda:
        if made.device == torch._C._cuda_getDevice():
            _launch(function, made, size, head, ends, lists)
        else:
            with torch.cuda.device(made.device):
                _launch(function, made, size, head, ends, lists)
        return
    work = _pool.take(size) if size else None
    where = (work[0] if work else 0, size, 0, torch.get_num_threads())
    status = function(made.handle, head + _rest(made, ends, lists, 0, where))
    if work is not None:
        _pool.give(work)
    if status:
        _raise(status, function, ())


def _launch(
    function: Any, made: Ready, size: int, head: bytes, ends: tuple[int, int], lists: Lists
) -> None:
    # The caching allocator hands memory out in the order of the stream, so that it may be given
    # back as soon as the pass is launched; inside a graph it is the graph's own. By its address
    # alone, because a tensor or a storage around it would cost more than the launch.
    stream = torch._C._cuda_getCurrentRawStream(made.device)
    ahead = made.bits_bytes
    room = -(-size // WORKSPACE_ALIGN) * WORKSPACE_ALIGN + ahead
    work = torch._C._cuda_cudaCachingAllocator_raw_alloc(room, stream) if room else 0
    try:
        bits = work + room - ahead if ahead else 0
        status = _make_bits(made, lists, bits, stream) if ahead else 0
        if not status:
            where = (work if size else 0, size, stream, 0)
            status = function(made.handle, head + _rest(made, ends, lists, bits, where))
    finally:
        if work:
            torch._C._cuda_cudaCachingAllocator_raw_delete(work)
    if status:
        _raise(status, function, ())


def _make_bits(made: Ready, lists: Lists, bits: int, stream: int) -> int:
    """Keep bits on the device, from the seed and offset, ends and ids there."""
    status: int = _fill_device(made.problem, fill_call(lists), bits, made.bits_bytes, stream)
    return status


# ---- passes ----


def forward(
    made: Ready, q: Tensor, k: Tensor, v: Tensor, lists: Lists, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(o, lse). `out` is overwritten if given, with any strides; else o is contiguous."""
    if made.empty:
        o = q.new_empty_strided(*made.o) if out is None else out
        return o.zero_(), q.new_full(made.lse.sizes, -math.inf, dtype=torch.float32)
    if checked() and made.lists:
        check_lengths(made.plan.problem, lists)
    if made.width:
        return _filled_forward(made, q, k, v, lists, out)
    places = q.data_ptr(), k.data_ptr(), v.data_ptr()
    if made.copied or (made.cuda and functools.reduce(operator.or_, places) % COPY_BYTES):
        q, k, v = _readable(q), _readable(k), _readable(v)
        return forward(ready(q, k, v, lists, made.rules), q, k, v, lists, out)
    o = q.new_empty_strided(*made.o) if out is None else out
    lse = q.new_empty_strided(*made.lse, dtype=torch.float32)
    if made.dense and out is None:
        head = _DENSE.pack(_CALL_BYTES, *places, o.data_ptr(), 0, 0, 0, 0)
    else:
        head = _STRIDED.pack(
            _CALL_BYTES, places[0], *made.q_strides, places[1], *made.k_strides, places[2],
            *made.v_strides, *_tensor(o), *_NOTHING, *_NOTHING, *_NOTHING, *_NOTHING,
        )  # fmt: skip
    try:
        _run(_forward, made, made.forward_bytes, head, (lse.data_ptr(), 0), lists)
    except Error as error:
        if not adapt(made, error, lists):
            raise
        return forward(made, q, k, v, lists, out)
    return o, lse


Grads = tuple[Tensor, Tensor, Tensor]


def backward(
    made: Ready,
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    grads: Grads | None = None,
) -> Grads:
    """(dq, dk, dv): `grads` overwritten if given, with any strides; else contiguous.

    dout, dlse, o and lse must be of their shapes and types: autograd sees to it, or
    check_saved().
    """
    if made.empty:
        dq, dk, dv = _new_grads(made, q) if grads is None else grads
        return dq.zero_(), dk.zero_(), dv.zero_()
    if made.width:
        return _filled_backward(made, dout, dlse, q, k, v, o, lse, lists, grads)
    places = q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), dout.data_ptr()
    dense = dout.is_contiguous() and o.is_contiguous()
    odd = made.cuda and functools.reduce(operator.or_, places) % COPY_BYTES
    if made.copied or odd or not (dense or (taken(dout) and taken(o))):
        q, k, v, o, dout = map(_readable, (q, k, v, o, dout))
        made = ready(q, k, v, lists, made.rules)
        return backward(made, dout, dlse, q, k, v, o, lse, lists, grads)
    dq, dk, dv = _new_grads(made, q) if grads is None else grads
    if dense and made.dense and grads is None:
        head = _DENSE.pack(_CALL_BYTES, *places, dq.data_ptr(), dk.data_ptr(), dv.data_ptr())
    else:
        head = _STRIDED.pack(
            _CALL_BYTES, places[0], *made.q_strides, places[1], *made.k_strides, places[2],
            *made.v_strides, *_tensor(o), *_tensor(dout), *_tensor(dq), *_tensor(dk), *_tensor(dv),
        )  # fmt: skip
    if not lse.is_contiguous():
        lse = lse.contiguous()
    if dlse is not None:
        dlse = dlse.contiguous()
    try:
        ends = lse.data_ptr(), _place(dlse)
        _run(_backward, made, made.backward_bytes, head, ends, lists)
    except Error as error:
        if not adapt(made, error, lists):
            raise
        return backward(made, dout, dlse, q, k, v, o, lse, lists, grads)
    return dq, dk, dv


def _new_grads(made: Ready, q: Tensor) -> Grads:
    new = q.new_empty_strided
    return new(*made.dq), new(*made.dk), new(*made.dv)


def check_saved(
    made: Ready, dout: Tensor, dlse: Tensor | None, q: Tensor, o: Tensor, lse: Tensor
) -> None:
    """Raise Error unless what a forward pass gave, and the gradients, fit its inputs."""
    for name, x, shape, dtype in (
        ("dout", dout, made.o, q.dtype),
        ("o", o, made.o, q.dtype),
        ("lse", lse, made.lse, torch.float32),
        ("dlse", dlse, made.lse, torch.float32),
    ):
        if x is None:
            continue
        if x.shape != shape.sizes:
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {shape.sizes}")
        if x.dtype != dtype:
            raise Error("argument", f"{name}.dtype {x.dtype}: expected {dtype}")
        if x.device != q.device:
            raise Error("argument", f"{name}.device {x.device}: expected that of q, {q.device}")


# ---- head sizes that no kernel has: filled up with zeros, which change no score ----


def _filled(made: Ready, *tensors: Tensor) -> list[Tensor]:
    return [torch.nn.functional.pad(x, (0, made.width - x.shape[-1])) for x in tensors]


def _filled_forward(
    made: Ready, q: Tensor, k: Tensor, v: Tensor, lists: Lists, out: Tensor | None
) -> tuple[Tensor, Tensor]:
    if out is None:
        out = q.new_empty_strided(*made.o)
    q, k, v = _filled(made, q, k, v)
    o, lse = forward(ready(q, k, v, lists, made.rules), q, k, v, lists)
    return out.copy_(o[..., : out.shape[-1]]), lse


def _filled_backward(
    made: Ready,
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    grads: Grads | None,
) -> Grads:
    q, k, v, o, dout = _filled(made, q, k, v, o, dout)
    wide = ready(q, k, v, lists, made.rules)
    full = backward(wide, dout, dlse, q, k, v, o, lse, lists)
    if grads is None:
        grads = _new_grads(made, q)
    for x, y in zip(grads, full):
        x.copy_(y[..., : x.shape[-1]])
    return grads
