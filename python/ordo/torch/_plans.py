"""Which plan a call needs: its arguments checked, the problem they make, the plan that is kept."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .. import dropout
from .._library import Error
from .._machine import Machine
from .._plan import Plan
from .._problem import Dropout, Problem, Shard, to_c

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
    problem: Any  # as C sees it
    bits_bytes: int  # of the keep bits that a CUDA pass wants made ahead; else 0


_KEPT = 512  # plans; the oldest go first
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
            for old in list(_plans)[: _KEPT // 4]:
                _plans.pop(old, None)
        _plans[key] = found
    return found


def _look(lists: Lists) -> tuple[Any, ...]:
    rng = lists.rng
    if rng is not None and lists[1:] == NO_LISTS[1:]:  # dropout alone, the usual case
        return rng.shape, rng.dtype, rng.device, rng.is_contiguous()
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
    ahead = q.is_cuda and rules.dropout_p > 0 and not packed
    return Ready(
        plan=plan,
        handle=plan._handle,
        forward_bytes=info.forward_workspace_bytes,
        backward_bytes=info.backward_workspace_bytes,
        o=Shape.of(o_shape(q, v)),
        lse=Shape.of(lse_shape(q)),
        dq=Shape.of(q.shape),
        dk=Shape.of(k.shape),
        dv=Shape.of(v.shape),
        problem=to_c(plan.problem),
        bits_bytes=dropout.query(plan.problem).bytes if ahead else 0,
    )


@functools.lru_cache(maxsize=None)
def machine_of(index: int) -> Machine:
    """A CUDA device as a machine to plan for; ORDO_MACHINE names another. Changes no bit."""
    named = os.environ.get("ORDO_MACHINE")
    return Machine(named) if named else Machine.of_device(index)
