"""Which plan a call needs: the problem that its arguments make, and the plan that is kept."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from .._library import Error
from .._machine import Machine
from .._plan import Plan
from .._problem import Problem, Shard, dropout_of, to_c
from ._bits import bits_bytes
from ._inputs import DTYPES, NO_LISTS, Lists, Rules, check, empty, lse_shape, o_shape, sequences
from ._layout import CUDA, fill_width, strides, takes_strides


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
    """A plan, and what every call with the same shapes, strides and rules needs of it."""

    __slots__ = (
        "rules", "plan", "handle", "forward_bytes", "backward_bytes", "o", "lse", "dq", "dk", "dv",
        "given_strides", "q_strides", "k_strides", "v_strides", "dense", "copied", "lists", "cuda",
        "device", "width", "bits_bytes", "bits_needed", "keeps", "pipelined", "segments", "problem",
        "empty", "number", "drops", "sizes", "dtype", "place", "kinds",
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
    given_strides: tuple[tuple[int, ...], ...]  # of q, k and v
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
    bits_needed: bool  # the pass cannot make them
    keeps: bool  # the backward pass is to read the bits of the forward pass
    pipelined: bool  # bits are to be made in segments of rows, even if the whole mask fits
    segments: dict[int, Any]  # plans in segments, by the memory of their bits
    problem: bytes  # as C sees it
    empty: bool  # nothing to compute
    drops: bool  # with dropout
    number: int  # of the compiled front, which knows the plan by it; 0: it does not
    sizes: tuple[tuple[int, ...], ...]  # of q, k, v, o, dout and lse
    dtype: Any  # of q
    place: Any  # the device of q
    kinds: tuple[tuple[int, Any, Any], ...]  # lists: which, shape, type


KEPT = 512  # the oldest go first
_plans: dict[Any, Ready] = {}


def ready(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Ready:
    """The plan of a call, from the cache or made. Tensors are checked when a plan is made; `rng`,
    of which the key only says whether it is given, is checked by the caller."""
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
    if len(plans) >= KEPT:
        for old in list(plans)[: KEPT // 4]:
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
    problem = problem_of(q, k, v, lists, rules)
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
    made.given_strides = q.stride(), k.stride(), v.stride()
    made.q_strides, made.k_strides, made.v_strides = strides(q), strides(k), strides(v)
    made.dense = q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
    made.copied = not all(takes_strides(x) for x in (q, k, v))
    made.lists = tuple(at for at, x in enumerate(lists) if x is not None)
    made.sizes = *(tuple(x.shape) for x in (q, k, v)), made.o.sizes, made.o.sizes, made.lse.sizes
    made.dtype, made.place = q.dtype, q.device
    made.kinds = tuple((at, x.shape, x.dtype) for at, x in enumerate(lists) if x is not None)
    made.cuda = q.is_cuda
    made.number, made.drops = 0, rules.dropout_p > 0
    made.device = q.device.index if made.cuda else 0
    made.width = fill_width(q.shape[-1], v.shape[-1]) if made.cuda else 0
    made.problem = bytes(to_c(plan.problem))
    made.empty = empty(q, k, lists)
    choose_bits(made, lists)
    return made


def choose_bits(made: Ready, lists: Lists) -> None:
    """Decide where the keep bits of the calls of a plan are made."""
    drops = made.rules.dropout_p > 0 and not made.empty
    mode = dropout_mode()
    made.pipelined, made.segments = mode == "pipelined", {}
    if mode == "auto":
        mode = made.plan.info.dropout_mode
        made.keeps = made.plan.info.dropout_keep_bits
    else:
        made.keeps = mode not in ("fused", "pipelined")
    dim = max(made.plan.problem.head_dim, made.plan.problem.v_head_dim)
    given = made.rules.keying == "fa2" and _GIVEN_FA2 or dim > CUDA.made_bits_head_dim_max
    made.bits_needed = drops and made.cuda and given
    first = made.bits_needed or (drops and mode != "fused")
    made.bits_bytes = bits_bytes(made.problem, lists) if first else 0


_GIVEN_FA2 = not CUDA.makes_fa2_bits
_MODES = ("auto", "fused", "sequential", "overlapped", "pipelined")


def dropout_mode() -> str:
    """Where keep bits are made; changes no bit.

    auto: as the plan recommends. fused: inside each pass. sequential: before the forward pass, and
    kept for the backward pass as far as set_mask_memory() allows, else made again. overlapped: the
    same, and prepare_dropout() makes them on another stream. pipelined: by each pass in segments of
    rows, with the bits of two segments in memory: a quarter of the mask or less.
    """
    mode = os.environ.get("ORDO_DROPOUT_MODE", "auto")
    if mode not in _MODES:
        raise Error("argument", f"ORDO_DROPOUT_MODE {mode!r}: expected {', '.join(_MODES)}")
    return mode


def problem_of(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Problem:
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


@functools.lru_cache(maxsize=None)
def machine_of(index: int) -> Machine:
    """A CUDA device as a machine to plan for; ORDO_MACHINE names another. Changes no bit."""
    named = os.environ.get("ORDO_MACHINE")
    return Machine(named) if named else Machine.of_device(index)
