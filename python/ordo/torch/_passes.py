"""Passes on real tensors, below autograd, through the C API.

The arguments of a pass are packed into the bytes of an ordo_call at once: setting the fields of a
ctypes struct one by one would cost more than the rest of the call.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_char_p, c_int, c_void_p
from typing import Any

import torch
from torch import Tensor

from .. import _structs as s
from .._library import Error, _raise, lib, path
from .._plan import WORKSPACE_ALIGN
from ._plans import NO_LISTS, Lists, Ready, Rules, Shape, ready

# ---- an ordo_call as bytes: its size and tensors, then the rest ----

_CALL_BYTES = ctypes.sizeof(s.ordo_call)
_STRIDED = struct.Struct("@Q" + 8 * "Q4q")  # eight tensors: address, strides
_DENSE = struct.Struct("@Q" + 8 * "Q32x")  # all contiguous: addresses, strides 0
_REST = struct.Struct("@17Qi4x")  # lse ... stream, threads
_BARE = struct.Struct("@2Q96x3Qi4x")  # the same without lists
_DROP = struct.Struct("@2Q80x5Qi4x")  # with seed and offset only
assert _STRIDED.size == _DENSE.size == s.ordo_call.lse.offset
assert _REST.size == _BARE.size == _DROP.size == _CALL_BYTES - s.ordo_call.lse.offset
_MASK_BITS = 7  # of what _places() gives
assert s.ordo_call.mask_bits.offset == s.ordo_call.cu_q.offset + _MASK_BITS * 8
assert s.ordo_call.seed_ptr.offset == s.ordo_call.lse.offset + 12 * 8
assert s.ordo_call.workspace.offset == s.ordo_call.lse.offset + 14 * 8


def _declare(name: str) -> Any:
    function = getattr(_library, name)
    function.argtypes, function.restype, function.errcheck = [c_void_p, c_char_p], c_int, _raise
    return function


_library = ctypes.CDLL(path)  # beside _library.lib, whose functions take structs
_forward = _declare("ordo_attention_forward")
_backward = _declare("ordo_attention_backward")
_NONE = (0, 0, 0, 0, 0)
_COPY_BYTES = 16  # CUDA tensors are copied by hardware that counts in these


def _tensor(x: Tensor) -> tuple[int, ...]:
    if x.is_contiguous():
        return (x.data_ptr(), 0, 0, 0, 0)
    strides = x.stride()
    return (x.data_ptr(), *strides) if len(strides) == 4 else (x.data_ptr(), 0, *strides)


def _readable(x: Tensor) -> Tensor:
    """The tensor itself if the library takes its strides; else a copy."""
    if x.is_cuda:
        width = x.element_size()
        places = (x.data_ptr(), *(width * stride for stride in x.stride()[:-1]))
        if any(place % _COPY_BYTES for place in places):
            return x.clone(memory_format=torch.contiguous_format)
    return x if x.is_contiguous() or x.stride(-1) == 1 else x.contiguous()


def _dense(*tensors: Tensor) -> bool:
    """Contiguous, and where the library can read them."""
    for x in tensors:
        if not x.is_contiguous() or (x.is_cuda and x.data_ptr() % _COPY_BYTES):
            return False
    return True


def _place(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _places(lists: Lists) -> tuple[int, ...]:
    """cu_q ... offset_ptr."""
    rng, slopes = _place(lists.rng), lists.slopes
    stride = slopes.shape[-1] if slopes is not None and slopes.dim() == 2 else 0
    return (
        _place(lists.cu_q), _place(lists.cu_kv), _place(lists.q_lens), _place(lists.kv_lens),
        _place(lists.sequence_ids), _place(slopes), stride, 0, 0, 0, rng, rng + 8 if rng else 0,
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
    function: Any,
    prepared: Ready,
    size: int,
    q: Tensor,
    head: bytes,
    ends: tuple[int, int],
    lists: Lists,
) -> None:
    """`head` holds the tensors, `ends` lse and dlse."""
    if q.is_cuda:
        index = q.device.index
        if index == torch.cuda.current_device():
            _launch(function, prepared, size, q.device, head, ends, lists)
        else:
            with torch.cuda.device(index):
                _launch(function, prepared, size, q.device, head, ends, lists)
        return
    handle = prepared.handle
    if size == 0:
        function(handle, head + _rest(ends, lists, 0, 0, 0, torch.get_num_threads()))
        return
    work = _pool.take(size)
    try:
        function(handle, head + _rest(ends, lists, work[0], size, 0, torch.get_num_threads()))
    finally:
        _pool.give(work)


def _launch(
    function: Any, prepared: Ready, size: int, device: Any, head: bytes, ends: Any, lists: Lists
) -> None:
    # The caching allocator hands memory out in the order of the current stream, so that it may be
    # dropped as soon as the pass is launched; inside a graph it is the graph's own.
    work = torch.UntypedStorage(size, device=device) if size else None
    place = 0 if work is None else work.data_ptr()
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    bits = _make_bits(prepared, device, lists, stream) if prepared.bits_bytes else None
    rest = _rest(ends, lists, place, size, stream, 0, 0 if bits is None else bits.data_ptr())
    function(prepared.handle, head + rest)


def _make_bits(prepared: Ready, device: Any, lists: Lists, stream: int) -> Any:
    """Keep bits on the device, from the seed and offset there: CUDA passes read them."""
    if lists.sequence_ids is not None:
        raise Error("unsupported", "sequence_ids given: backend cuda counts from batch0 on")
    call = s.sized(s.ordo_dropout_call)
    call.seed_ptr = _place(lists.rng)
    call.offset_ptr = call.seed_ptr + 8
    bits = torch.UntypedStorage(prepared.bits_bytes, device=device)
    lib.ordo_dropout_fill_device(
        byref(prepared.problem), byref(call), bits.data_ptr(), prepared.bits_bytes, stream
    )
    return bits


def _rest(
    ends: tuple[int, int],
    lists: Lists,
    place: int,
    size: int,
    stream: int,
    threads: int,
    bits: int = 0,
) -> bytes:
    if lists is NO_LISTS:
        return _BARE.pack(*ends, place, size, stream, threads)
    if bits:
        places = list(_places(lists))
        places[_MASK_BITS] = bits
        return _REST.pack(*ends, *places, place, size, stream, threads)
    if lists[1:] == NO_LISTS[1:] and lists.rng is not None:
        rng = lists.rng.data_ptr()
        return _DROP.pack(*ends, rng, rng + 8, place, size, stream, threads)
    return _REST.pack(*ends, *_places(lists), place, size, stream, threads)


# ---- passes ----


def _new(shape: Shape, dtype: Any, device: Any) -> Tensor:
    return torch.empty_strided(shape.sizes, shape.strides, dtype=dtype, device=device)


def forward(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(o, lse). `out` is overwritten if given, with any strides; else o is contiguous."""
    prepared: Ready = ready(q, k, v, lists, rules)
    dense = out is None and _dense(q, k, v)
    o = _new(prepared.o, q.dtype, q.device) if out is None else out
    lse = _new(prepared.lse, torch.float32, q.device)
    if dense:
        head = _DENSE.pack(
            _CALL_BYTES, q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), 0, 0, 0, 0
        )
    else:
        q, k, v = _readable(q), _readable(k), _readable(v)
        head = _STRIDED.pack(
            _CALL_BYTES, *_tensor(q), *_tensor(k), *_tensor(v), *_tensor(o), *_NONE, *_NONE,
            *_NONE, *_NONE,
        )  # fmt: skip
    ends = (lse.data_ptr(), 0)
    _run(_forward, prepared, prepared.forward_bytes, q, head, ends, lists)
    return o, lse


def backward(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    rules: Rules,
    grads: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv): `grads` overwritten if given, with any strides; else contiguous.

    dout, dlse, o and lse must be of their shapes and types: autograd sees to it, or
    check_saved().
    """
    prepared: Ready = ready(q, k, v, lists, rules)
    dense = grads is None and _dense(q, k, v, o, dout)
    if grads is None:
        dq = _new(prepared.dq, q.dtype, q.device)
        dk = _new(prepared.dk, q.dtype, q.device)
        dv = _new(prepared.dv, q.dtype, q.device)
    else:
        dq, dk, dv = grads
    if dense:
        head = _DENSE.pack(
            _CALL_BYTES, q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), dout.data_ptr(),
            dq.data_ptr(), dk.data_ptr(), dv.data_ptr(),
        )  # fmt: skip
    else:
        q, k, v, o, dout = map(_readable, (q, k, v, o, dout))
        head = _STRIDED.pack(
            _CALL_BYTES, *_tensor(q), *_tensor(k), *_tensor(v), *_tensor(o), *_tensor(dout),
            *_tensor(dq), *_tensor(dk), *_tensor(dv),
        )  # fmt: skip
    if not lse.is_contiguous():
        lse = lse.contiguous()
    if dlse is not None:
        dlse = dlse.contiguous()
    ends = (lse.data_ptr(), _place(dlse))
    _run(_backward, prepared, prepared.backward_bytes, q, head, ends, lists)
    return dq, dk, dv


def check_saved(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    rules: Rules,
) -> None:
    """Raise Error unless what a forward pass gave, and the gradients, fit its inputs."""
    prepared = ready(q, k, v, lists, rules)
    for name, x, shape, dtype in (
        ("dout", dout, prepared.o, q.dtype),
        ("o", o, prepared.o, q.dtype),
        ("lse", lse, prepared.lse, torch.float32),
        ("dlse", dlse, prepared.lse, torch.float32),
    ):
        if x is None:
            continue
        if x.shape != shape.sizes:
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {shape.sizes}")
        if x.dtype != dtype:
            raise Error("argument", f"{name}.dtype {x.dtype}: expected {dtype}")
        if x.device != q.device:
            raise Error("argument", f"{name}.device {x.device}: expected that of q, {q.device}")
