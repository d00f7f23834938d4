"""Passes on tensors: which plan a call needs, what it may touch, and the call itself.

Everything here works on real tensors, below autograd. A plan is made once a problem and kept. The
arguments of a pass are packed into the bytes of an ordo_call at once: setting the fields of a
ctypes struct one by one would cost more than the rest of the call.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_int, c_void_p
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .. import _structs as s
from .._library import Error, _raise, path
from .._machine import Machine
from .._plan import WORKSPACE_ALIGN, Plan
from .._problem import Dropout, Problem, Shard

DTYPES: dict[Any, Literal["f32", "bf16", "f16"]] = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
}


class Rules(NamedTuple):
    """What decides the result beside the tensors: the plain arguments of the operators."""

    max_q: int  # longest sequence of a packed batch; else 0
    max_kv: int
    scale: float
    mask: str
    left: int  # of the window, inclusive; -1 = open
    right: int
    softcap: float
    dropout_p: float
    keying: str
    shard: tuple[int, ...]  # the fields of ordo.Shard, or none of them


class Lists(NamedTuple):
    """The tensors that no gradient flows to."""

    rng: Tensor | None = None  # seed and offset, int64
    cu_q: Tensor | None = None
    cu_kv: Tensor | None = None
    q_lens: Tensor | None = None
    kv_lens: Tensor | None = None
    sequence_ids: Tensor | None = None
    slopes: Tensor | None = None


NO_LISTS = Lists()

# ---- shapes ----


def check(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> None:
    """Raise Error if tensors contradict each other. Fake tensors will do."""
    packed = lists.cu_q is not None
    axes = "(row, head, dim) with cu_q" if packed else "(batch, row, head, dim)"
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != (3 if packed else 4):
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {axes}")
        if x.dtype not in DTYPES:
            raise Error("argument", f"{name}.dtype {x.dtype}: expected {_names(DTYPES)}")
        if x.dtype != q.dtype:
            raise Error("argument", f"{name}.dtype {x.dtype}: expected that of q, {q.dtype}")
        if x.device != q.device:
            raise Error("argument", f"{name}.device {x.device}: expected that of q, {q.device}")
    if k.shape[:-1] != v.shape[:-1]:
        raise Error("shape", f"v.shape {tuple(v.shape)}: expected {tuple(k.shape[:-1])} as k has")
    if k.shape[-1] != q.shape[-1]:
        raise Error(
            "shape", f"k.shape {tuple(k.shape)}: expected the head size of q, {q.shape[-1]}"
        )
    if not packed and k.shape[0] != q.shape[0]:
        raise Error("shape", f"k.shape {tuple(k.shape)}: expected the batch of q, {q.shape[0]}")
    _check_lists(q, lists, rules)


def _check_lists(q: Tensor, lists: Lists, rules: Rules) -> None:
    batch = sequences(q, lists)
    ints, longs = (torch.int32,), (torch.int64,)
    for name, x, count, dtypes in (
        ("rng", lists.rng, 2, longs),
        ("cu_q", lists.cu_q, batch + 1, ints),
        ("cu_kv", lists.cu_kv, batch + 1, ints),
        ("q_lens", lists.q_lens, batch, ints),
        ("kv_lens", lists.kv_lens, batch, ints),
        ("sequence_ids", lists.sequence_ids, batch, longs),
    ):
        if x is None:
            continue
        if x.shape != (count,):
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected ({count},)")
        _check_list(name, x, dtypes[0], q)
    if lists.slopes is not None:
        heads = q.shape[-2]
        if lists.slopes.shape != (heads,) and lists.slopes.shape != (batch, heads):
            raise Error(
                "shape",
                f"slopes.shape {tuple(lists.slopes.shape)}: expected ({heads},) or "
                f"({batch}, {heads})",
            )
        _check_list("slopes", lists.slopes, torch.float32, q)
    if rules.dropout_p > 0 and lists.rng is None:
        raise Error("argument", f"rng None: expected a tensor with dropout_p {rules.dropout_p}")


def _check_list(name: str, x: Tensor, dtype: Any, q: Tensor) -> None:
    if x.dtype != dtype:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected {dtype}")
    if x.device != q.device:
        raise Error("argument", f"{name}.device {x.device}: expected that of q, {q.device}")
    if not x.is_contiguous():
        raise Error("align", f"{name}.stride {x.stride()}: expected a contiguous tensor")


def _names(things: Any) -> str:
    words = [str(x) for x in things]
    return ", ".join(words[:-1]) + " or " + words[-1]


def sequences(q: Tensor, lists: Lists) -> Any:
    return q.shape[0] if lists.cu_q is None else lists.cu_q.shape[0] - 1


def o_shape(q: Tensor, v: Tensor) -> tuple[Any, ...]:
    return (*q.shape[:-1], v.shape[-1])


def lse_shape(q: Tensor) -> tuple[Any, ...]:
    """(batch, head, row), packed (head, row)."""
    return (*q.shape[:-3], q.shape[-2], q.shape[-3])


# ---- plans ----


class Shape(NamedTuple):
    """What to allocate: contiguous. torch.empty_like() would cost twice the time."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Shape:
        strides = [1]
        for size in reversed(sizes[1:]):
            strides.append(strides[-1] * size)
        return cls(tuple(sizes), tuple(reversed(strides)))


class Ready(NamedTuple):
    """A plan and what a call asks of it each time."""

    plan: Plan
    handle: Any
    forward_bytes: int
    backward_bytes: int
    o: Shape
    lse: Shape
    dq: Shape
    dk: Shape
    dv: Shape


_KEPT = 512  # plans; the oldest goes first
_plans: dict[Any, Ready] = {}


def ready(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Ready:
    """The plan of a call. Tensors that look like those of an earlier call were checked there."""
    key = (
        q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device,
        None if lists is NO_LISTS else _look(lists), rules,
    )  # fmt: skip
    found = _plans.get(key)
    if found is None:
        check(q, k, v, lists, rules)
        found = _make(q, k, v, lists, rules)
        if len(_plans) >= _KEPT:
            _plans.pop(next(iter(_plans)), None)
        _plans[key] = found
    return found


def _look(lists: Lists) -> tuple[Any, ...]:
    return tuple(
        None if x is None else (x.shape, x.dtype, x.device, x.is_contiguous()) for x in lists
    )


def _make(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Ready:
    packed = lists.cu_q is not None
    padded = lists.q_lens is not None or lists.kv_lens is not None
    problem = Problem(
        dtype=DTYPES[q.dtype],
        layout="packed" if packed else "padded" if padded else "dense",
        batch=sequences(q, lists),
        heads=q.shape[-2],
        kv_heads=k.shape[-2],
        q_len=rules.max_q if packed else q.shape[-3],
        kv_len=rules.max_kv if packed else k.shape[-3],
        total_q=q.shape[-3] if packed else 0,
        total_kv=k.shape[-3] if packed else 0,
        head_dim=q.shape[-1],
        v_head_dim=v.shape[-1],
        scale=rules.scale,
        mask=rules.mask,  # type: ignore[arg-type]
        window=None if rules.left < 0 and rules.right < 0 else (rules.left, rules.right),
        softcap=rules.softcap,
        alibi=lists.slopes is not None,
        dropout=Dropout(p=rules.dropout_p, keying=rules.keying),  # type: ignore[arg-type]
        shard=Shard(**dict(zip(Shard.__dataclass_fields__, rules.shard))),
    )
    if q.is_cpu:
        plan = Plan(problem, backend="cpu")
    elif q.is_cuda:
        plan = Plan(problem, machine_of(q.device.index), backend="cuda")
    else:
        raise Error("unsupported", f"device {q.device}: expected cpu or cuda")
    info = plan.info
    return Ready(
        plan, plan._handle, info.forward_workspace_bytes, info.backward_workspace_bytes,
        *map(Shape.of, (o_shape(q, v), lse_shape(q), q.shape, k.shape, v.shape)),
    )  # fmt: skip


@functools.lru_cache(maxsize=None)
def machine_of(index: int) -> Machine:
    """The machine file of a CUDA device: the one ORDO_MACHINE names, or by the device's name."""
    named = os.environ.get("ORDO_MACHINE")
    if named:
        return Machine(named)
    title = torch.cuda.get_device_name(index)
    for name in Machine.builtin():
        if name.upper() in title.upper().replace("-", " ").split():
            return Machine(name)
    raise Error(
        "unsupported",
        f"device {title}: expected one of {', '.join(Machine.builtin()[:-1])}, or a machine file "
        "named by ORDO_MACHINE",
    )


# ---- the call ----


def _format(fields: Any) -> Iterator[str]:
    for _, kind in fields:
        if kind is c_int:
            yield "i"
        elif hasattr(kind, "_fields_"):
            yield from _format(kind._fields_)
        elif hasattr(kind, "_length_"):
            yield "q" * kind._length_
        else:
            yield "Q"


_PACK = struct.Struct("@" + "".join(_format(s.ordo_call._fields_)) + "0q")
assert _PACK.size == ctypes.sizeof(s.ordo_call)


def _declare(name: str) -> Any:
    function = getattr(_library, name)
    function.argtypes, function.restype, function.errcheck = [c_void_p, c_char_p], c_int, _raise
    return function


_library = ctypes.CDLL(path)  # beside _library.lib, whose functions take structs
_forward = _declare("ordo_attention_forward")
_backward = _declare("ordo_attention_backward")
_NONE = (0, 0, 0, 0, 0)


def _tensor(x: Tensor) -> tuple[int, ...]:
    if x.is_contiguous():
        return (x.data_ptr(), 0, 0, 0, 0)
    strides = x.stride()
    return (x.data_ptr(), *strides) if len(strides) == 4 else (x.data_ptr(), 0, *strides)


def _row(x: Tensor) -> Tensor:
    """The tensor itself if its last axis is contiguous: the library takes any other strides."""
    return x if x.is_contiguous() or x.stride(-1) == 1 else x.contiguous()


def _place(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


_NO_PLACES = (0,) * 12  # cu_q ... offset_ptr


def _places(lists: Lists) -> tuple[int, ...]:
    rng, slopes = _place(lists.rng), lists.slopes
    stride = slopes.shape[-1] if slopes is not None and slopes.dim() == 2 else 0
    return (
        _place(lists.cu_q), _place(lists.cu_kv), _place(lists.q_lens), _place(lists.kv_lens),
        _place(lists.sequence_ids), _place(slopes), stride, 0, 0, 0, rng, rng + 8 if rng else 0,
    )  # fmt: skip


class _Pool:
    """Workspaces of CPU passes: one a pass in flight, kept for the next, growing as asked.

    list.pop() and list.append() are atomic: no lock. Not from torch.empty(), which strict
    determinism would make fill them first.
    """

    def __init__(self) -> None:
        self._idle: list[Any] = []

    def take(self, size: int) -> Any:
        try:
            storage = self._idle.pop()
        except IndexError:
            storage = None
        if storage is None or storage.nbytes() < size + WORKSPACE_ALIGN:
            storage = torch.UntypedStorage(size + WORKSPACE_ALIGN)
        return storage

    def give(self, storage: Any) -> None:
        self._idle.append(storage)


_pool = _Pool()


def _launch(function: Any, prepared: Ready, size: int, device: Any, head: tuple[int, ...]) -> None:
    # The caching allocator hands memory out in the order of the current stream, so that it may be
    # dropped as soon as the pass is launched; inside a graph it is the graph's own.
    work = torch.UntypedStorage(size, device=device) if size else None
    place = 0 if work is None else work.data_ptr()
    stream = torch.cuda.current_stream(device).cuda_stream
    function(prepared.handle, _PACK.pack(*head, place, size, stream, 0))


def _run(
    function: Any,
    prepared: Ready,
    size: int,
    q: Tensor,
    tensors: tuple[int, ...],
    lists: Lists,
) -> None:
    head = (_PACK.size, *tensors, *(_NO_PLACES if lists is NO_LISTS else _places(lists)))
    if q.is_cuda:
        index = q.device.index
        if index == torch.cuda.current_device():
            _launch(function, prepared, size, q.device, head)
        else:
            with torch.cuda.device(index):
                _launch(function, prepared, size, q.device, head)
        return
    work = _pool.take(size) if size else None
    try:
        place = 0 if work is None else -(-work.data_ptr() // WORKSPACE_ALIGN) * WORKSPACE_ALIGN
        function(prepared.handle, _PACK.pack(*head, place, size, 0, torch.get_num_threads()))
    finally:
        if work is not None:
            _pool.give(work)


def _new(shape: Shape, dtype: Any, device: Any) -> Tensor:
    return torch.empty_strided(shape.sizes, shape.strides, dtype=dtype, device=device)


def forward(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(o, lse). `out` is overwritten if given, with any strides; else o is contiguous."""
    prepared = ready(q, k, v, lists, rules)
    q, k, v = _row(q), _row(k), _row(v)
    if out is None:
        out = _new(prepared.o, q.dtype, q.device)
    lse = _new(prepared.lse, torch.float32, q.device)
    tensors = (
        *_tensor(q), *_tensor(k), *_tensor(v), *_tensor(out), *_NONE, *_NONE, *_NONE, *_NONE,
        lse.data_ptr(), 0,
    )  # fmt: skip
    _run(_forward, prepared, prepared.forward_bytes, q, tensors, lists)
    return out, lse


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
    """(dq, dk, dv): `grads` overwritten if given, with any strides; else contiguous."""
    prepared = ready(q, k, v, lists, rules)
    _check_saved("dout", dout, prepared.o.sizes, q.dtype, q.device)
    _check_saved("o", o, prepared.o.sizes, q.dtype, q.device)
    _check_saved("lse", lse, prepared.lse.sizes, torch.float32, q.device)
    q, k, v, o, dout, lse = _row(q), _row(k), _row(v), _row(o), _row(dout), lse.contiguous()
    if dlse is not None:
        _check_saved("dlse", dlse, prepared.lse.sizes, torch.float32, q.device)
        dlse = dlse.contiguous()
    if grads is None:
        dq = _new(prepared.dq, q.dtype, q.device)
        dk = _new(prepared.dk, q.dtype, q.device)
        dv = _new(prepared.dv, q.dtype, q.device)
    else:
        dq, dk, dv = grads
    tensors = (
        *_tensor(q), *_tensor(k), *_tensor(v), *_tensor(o), *_tensor(dout), *_tensor(dq),
        *_tensor(dk), *_tensor(dv), lse.data_ptr(), _place(dlse),
    )  # fmt: skip
    _run(_backward, prepared, prepared.backward_bytes, q, tensors, lists)
    return dq, dk, dv


def _check_saved(name: str, x: Tensor, shape: tuple[int, ...], dtype: Any, device: Any) -> None:
    if x.shape != shape:
        raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {tuple(shape)}")
    if x.dtype != dtype:
        raise Error("argument", f"{name}.dtype {x.dtype}: expected {dtype}")
    if x.device != device:
        raise Error("argument", f"{name}.device {x.device}: expected that of q, {device}")
