"""Which plan a call needs: its arguments checked, the problem they make, the plan that is kept."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Sequence
from ctypes import byref
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .. import _structs as s
from .._library import Error, lib
from .._machine import Machine
from .._plan import Plan
from .._problem import Problem, Shard, dropout_of, to_c

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
ONLY_RNG = (Lists._fields.index("rng"),)

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
    if q.is_cuda and q.dtype == torch.float32:
        raise Error(
            "unsupported",
            "q.dtype torch.float32 on CUDA: expected torch.bfloat16 or torch.float16; run under "
            'torch.autocast("cuda", torch.bfloat16), or convert q, k and v by .to(torch.bfloat16)',
        )
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
    if batch < 0:
        raise Error("shape", "cu_q.shape (0,): expected (batch + 1,)")
    if lists.rng is not None:
        check_rng(lists.rng, q)
    for name, x, count, dtype in (
        ("cu_q", lists.cu_q, batch + 1, torch.int32),
        ("cu_kv", lists.cu_kv, batch + 1, torch.int32),
        ("q_lens", lists.q_lens, batch, torch.int32),
        ("kv_lens", lists.kv_lens, batch, torch.int32),
        ("sequence_ids", lists.sequence_ids, batch, torch.int64),
    ):
        if x is None:
            continue
        if x.shape != (count,):
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected ({count},)")
        _check_list(name, x, dtype, q)
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


def check_rng(rng: Tensor, q: Tensor) -> None:
    if rng.shape != (2,):
        raise Error("shape", f"rng.shape {tuple(rng.shape)}: expected (2,)")
    _check_list("rng", rng, torch.int64, q)


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


def empty(q: Tensor, k: Tensor, lists: Lists) -> bool:
    """Whether there is no sequence, no query or no key: o is 0, lse -inf, gradients are 0."""
    return 0 in (sequences(q, lists), q.shape[-3], k.shape[-3])


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
            strides.append(strides[-1] * max(size, 1))
        return cls(tuple(sizes), tuple(reversed(strides)))


class Ready:
    """A plan and what calls that look alike ask of it each time."""

    __slots__ = (
        "rules", "plan", "handle", "forward_bytes", "backward_bytes", "o", "lse", "dq", "dk", "dv",
        "q_strides", "k_strides", "v_strides", "dense", "copied", "lists", "cuda", "device",
        "width", "bits_bytes", "problem", "empty",
    )  # fmt: skip

    rules: Rules
    plan: Plan
    handle: Any
    forward_bytes: int  # of workspace
    backward_bytes: int
    o: Shape
    lse: Shape
    dq: Shape
    dk: Shape
    dv: Shape
    q_strides: tuple[int, ...]  # as the library takes them: four, or zeros if contiguous
    k_strides: tuple[int, ...]
    v_strides: tuple[int, ...]
    dense: bool  # q, k and v are contiguous
    copied: bool  # one of them has strides that the library does not take
    lists: tuple[int, ...]  # which of them there are
    cuda: bool
    device: int  # index of the CUDA device
    width: int  # head size to fill up to with zeros; 0: none
    bits_bytes: int  # of keep bits that are to be made before a pass; 0: it makes its own
    problem: bytes  # as C sees it
    empty: bool  # nothing to compute


_KEPT = 512  # the oldest go first
_plans: dict[Any, Ready] = {}


def ready(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Ready:
    """The plan of a call. Tensors that look like those of an earlier call were checked there;
    of `rng` that is for the caller to say."""
    key = (
        q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype,
        q.device, k.device, v.device, None if lists is NO_LISTS else _look(lists), rules,
    )  # fmt: skip
    found = _plans.get(key)
    if found is None:
        check(q, k, v, lists, rules)
        found = _make(q, k, v, lists, rules)
        keep(_plans, key, found)
    return found


def keep(plans: dict[Any, Ready], key: Any, made: Ready) -> None:
    if len(plans) >= _KEPT:
        for old in list(plans)[: _KEPT // 4]:
            plans.pop(old, None)
    plans[key] = made


def _only_rng(lists: Lists) -> bool:
    _, cu_q, cu_kv, q_lens, kv_lens, ids, slopes = lists
    return (
        cu_q is None and slopes is None and q_lens is None
        and ids is None and kv_lens is None and cu_kv is None
    )  # fmt: skip


def _look(lists: Lists) -> Any:
    if _only_rng(lists):  # dropout alone, the usual case
        return True
    return tuple(
        None if x is None else (x.shape, x.dtype, x.device, x.is_contiguous()) for x in lists
    )


def _make(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Ready:
    problem = _problem(q, k, v, lists, rules)
    if q.is_cpu:
        plan = Plan(problem, backend="cpu")
    elif q.is_cuda:
        plan = Plan(problem, machine_of(q.device.index), backend="cuda")
    else:
        raise Error("unsupported", f"device {q.device}: expected cpu or cuda")
    made = Ready()
    made.rules, made.plan, made.handle = rules, plan, plan._handle
    made.forward_bytes = plan.info.forward_workspace_bytes
    made.backward_bytes = plan.info.backward_workspace_bytes
    made.o, made.lse = Shape.of(o_shape(q, v)), Shape.of(lse_shape(q))
    made.dq, made.dk, made.dv = Shape.of(q.shape), Shape.of(k.shape), Shape.of(v.shape)
    made.q_strides, made.k_strides, made.v_strides = strides(q), strides(k), strides(v)
    made.dense = q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
    made.copied = not all(taken(x) for x in (q, k, v))
    made.lists = tuple(at for at, x in enumerate(lists) if x is not None)
    made.cuda = q.is_cuda
    made.device = q.device.index if made.cuda else 0
    made.width = _multiple(q.shape[-1], v.shape[-1]) if made.cuda else 0
    made.problem = bytes(to_c(plan.problem))
    made.empty = empty(q, k, lists)
    ahead = made.cuda and not made.empty and rules.dropout_p > 0 and dropout_mode() == "sequential"
    made.bits_bytes = bits_bytes(made, lists) if ahead else 0
    return made


def dropout_mode() -> str:
    """Where CUDA passes get keep bits from; changes no bit."""
    mode = os.environ.get("ORDO_DROPOUT_MODE", "fused")
    if mode not in ("fused", "sequential"):
        raise Error("argument", f"ORDO_DROPOUT_MODE {mode!r}: expected fused or sequential")
    return mode


def _problem(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Problem:
    """Of empty tensors, for which there is no plan, one row: the rules are checked, no more."""
    packed = lists.cu_q is not None
    padded = lists.q_lens is not None or lists.kv_lens is not None
    rows, columns = (1, 1) if empty(q, k, lists) else (q.shape[-3], k.shape[-3])
    return Problem(
        dtype=DTYPES[q.dtype],
        layout="packed" if packed else "padded" if padded else "dense",
        batch=max(sequences(q, lists), 1),
        heads=q.shape[-2],
        kv_heads=k.shape[-2],
        q_len=rules.max_q if packed else rows,
        kv_len=rules.max_kv if packed else columns,
        total_q=rows if packed else 0,
        total_kv=columns if packed else 0,
        head_dim=q.shape[-1],
        v_head_dim=v.shape[-1],
        scale=rules.scale,
        mask=rules.mask,  # type: ignore[arg-type]
        window=_window(rules),
        softcap=rules.softcap,
        alibi=lists.slopes is not None,
        dropout=dropout_of(rules.dropout_p, rules.keying),  # type: ignore[arg-type]
        shard=Shard(**dict(zip(Shard.__dataclass_fields__, rules.shard))),
    )


def _window(rules: Rules) -> tuple[int, int] | None:
    """None where it hides nothing: a causal mask ends every row already."""
    ends = rules.right >= 0 and rules.mask == "full"
    return (rules.left, rules.right) if rules.left >= 0 or ends else None


# ---- what the library takes ----

COPY_BYTES = 16  # CUDA tensors are copied by hardware that counts in these
CUDA_HEAD_SIZES = (64, 128, 256)  # of its kernels


def strides(x: Tensor) -> tuple[int, ...]:
    """As an ordo_tensor has them."""
    if x.is_contiguous():
        return (0, 0, 0, 0)
    given = x.stride()
    return given if len(given) == 4 else (0, *given)


def taken(x: Tensor) -> bool:
    """Whether the library takes the strides of a tensor."""
    if x.is_cuda and any(x.element_size() * y % COPY_BYTES for y in x.stride()[:-1]):
        return False
    return bool(x.is_contiguous() or x.stride(-1) == 1)


def _multiple(*dims: int) -> int:
    """Rows of a head must be copied whole: the head size to fill up to, 0 if none is needed."""
    return -(-max(dims) // 8) * 8 if any(dim % 8 for dim in dims) else 0


def adapt(made: Ready, error: Error, lists: Lists) -> bool:
    """Whether a pass that the library refused is worth another attempt, which `made` then says
    how to make: with a head size that its kernels have, or with keep bits made before it."""
    if error.status != "unsupported" or not made.cuda:
        return False
    if error.message.startswith(("head_dim", "v_head_dim")):
        dims = made.dq.sizes[-1], made.dv.sizes[-1]
        if dims[0] != dims[1]:
            made.width = -(-max(dims) // 8) * 8
        elif dims[0] not in CUDA_HEAD_SIZES:
            made.width = next((x for x in CUDA_HEAD_SIZES if x >= dims[0]), 0)
        return made.width > 0
    if "without mask_bits" in error.message and not made.bits_bytes:
        made.bits_bytes = bits_bytes(made, lists)
        return True
    return False


# ---- keep bits made before a pass ----

# An ordo_dropout_call without threads and rounds.
_FILL = struct.Struct("@6Q8x2Q?7x")
assert _FILL.size == ctypes.sizeof(s.ordo_dropout_call)
assert s.ordo_dropout_call.seed_ptr.offset == 56 and s.ordo_dropout_call.on_device.offset == 72


def fill_call(lists: Lists) -> bytes:
    """An ordo_dropout_call of what is on the device."""
    places = [0 if x is None else x.data_ptr() for x in lists]
    rng, cu_q, cu_kv, ids = places[0], places[1], places[2], places[5]
    return _FILL.pack(_FILL.size, 0, 0, cu_q, cu_kv, ids, rng, rng + 8, True)


def bits_bytes(made: Ready, lists: Lists) -> int:
    info = s.ordo_dropout_info()
    problem = s.ordo_problem.from_buffer_copy(made.problem)
    call = s.ordo_dropout_call.from_buffer_copy(fill_call(lists))
    lib.ordo_dropout_query(byref(problem), byref(call), byref(info))
    size: int = info.bytes
    return -(-size // COPY_BYTES) * COPY_BYTES


@functools.lru_cache(maxsize=None)
def machine_of(index: int) -> Machine:
    """A CUDA device as a machine to plan for; ORDO_MACHINE names another. Changes no bit."""
    named = os.environ.get("ORDO_MACHINE")
    return Machine(named) if named else Machine.of_device(index)
