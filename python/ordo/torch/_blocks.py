"""Attention under block masks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._attention import backward, forward
from .._blocks import BlockMask
from .._library import Error
from .._plan import Plan
from .._problem import Problem
from . import _blocks_device
from ._blocks_kept import kept_mask
from ._flex import block_mask
from ._inputs import Lists, Rules, check
from ._plans import machine_of, problem_of
from ._watch import watchers

Attended = tuple[Tensor, Tensor]


def block_mask_of(given: Any, q: Tensor) -> BlockMask:
    """The mask that a call is given, ordo's or FlexAttention's."""
    if not (q.is_cpu or q.is_cuda):
        raise Error("unsupported", f"block_mask, q.device {q.device}: expected cpu or cuda")
    if isinstance(given, BlockMask):
        return given
    sequences = q.shape[0] if q.dim() == 4 else None  # packed: not known here
    return block_mask(given, sequences, q.shape[-2])


def attend_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lists: Lists,
    rules: Rules,
    mask: BlockMask,
    sink: Any,
    draw: Callable[[], Tensor] | None = None,
) -> Attended:
    """(o, lse) with gradients. `draw` makes the lists.rng to use, after the checks."""
    check(q, k, v, lists, rules.dropout_p)
    if sink is not None and (not isinstance(sink, Tensor) or sink.shape != (q.shape[-2],)):
        raise Error("shape", f"sink {sink!r}: expected a tensor of shape ({q.shape[-2]},)")
    problem = problem_of(q, k, v, lists, rules).replace(blocks=mask.limits)
    plan = _plan_of(problem, q.device.index if q.is_cuda else None)
    kept = kept_mask(mask)
    kept.check(plan)
    sink = None if sink is None else sink.to(device=q.device, dtype=torch.float32)
    if draw is not None:
        lists = lists._replace(rng=draw())
    for watch in watchers:
        watch(plan, lists.rng)
    made: Attended
    if q.is_cuda:
        made = _AttendThere.apply(q, k, v, sink, plan, lists, kept.on(q.device))
    else:
        made = _Attend.apply(q, k, v, sink, plan, _lists(lists), kept.own)
    return made


@functools.lru_cache(maxsize=64)
def _plan_of(problem: Problem, device: int | None) -> Plan:
    if device is None:
        return Plan(problem, backend="cpu")
    return Plan(problem, machine_of(device), backend="cuda")


def _lists(lists: Lists) -> dict[str, Any]:
    """The keywords of forward(): copies, so that the backward pass has the same."""
    given = {name: x for name, x in lists._asdict().items() if x is not None}
    made: dict[str, Any] = {name: _array(x).copy() for name, x in given.items() if name != "rng"}
    if lists.rng is not None:
        made["seed"], made["offset"] = (x % 2**64 for x in lists.rng.tolist())
    return made


def _array(x: Tensor) -> Any:
    """The same memory as an array; bfloat16 as uint16."""
    x = x.detach()
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sink: Any, plan: Plan, lists: Any, mask: Any
    ) -> Attended:
        o = q.new_empty(*q.shape[:-1], v.shape[-1])
        lse = q.new_empty(*q.shape[:-3], q.shape[-2], q.shape[-3], dtype=torch.float32)
        rest = dict(lists, block_mask=mask, threads=torch.get_num_threads())
        given = [_array(x) for x in (q, k, v)]
        forward(plan, *given, o=_array(o), lse=_array(lse), sink=_sink_of(sink), **rest)
        ctx.save_for_backward(q, k, v, o, lse, sink)
        ctx.plan, ctx.rest = plan, rest
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor, dlse: Tensor) -> Any:
        q, k, v, o, lse, sink = ctx.saved_tensors
        dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
        dsink = None if sink is None else sink.new_empty(sink.shape)
        given: list[Any] = [_array(x) for x in (q, k, v, o, lse, dout.contiguous())]
        sinks = dict(sink=_sink_of(sink), dsink=_sink_of(dsink))
        rest = dict(ctx.rest, dlse=_array(dlse.contiguous()), **sinks)
        backward(ctx.plan, *given, dq=_array(dq), dk=_array(dk), dv=_array(dv), **rest)
        return dq, dk, dv, dsink, None, None, None


class _AttendThere(torch.autograd.Function):
    """The same on a CUDA device."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sink: Any, plan: Plan, lists: Lists, mask: Any
    ) -> Attended:
        q, k, v = map(_blocks_device.readable, (q, k, v))
        o = q.new_empty(*q.shape[:-1], v.shape[-1])
        lse = q.new_empty(*q.shape[:-3], q.shape[-2], q.shape[-3], dtype=torch.float32)
        sink = None if sink is None else sink.detach().contiguous()
        given = dict(q=q, k=k, v=v, o=o, lse=lse, sink=sink)
        _blocks_device.run("forward", plan, lists, mask, given)
        # Saved, not held: autograd then refuses lists that were changed between the passes.
        ctx.save_for_backward(q, k, v, o, lse, sink, *lists)
        ctx.plan, ctx.mask = plan, mask
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Tensor, dlse: Tensor) -> Any:
        q, k, v, o, lse, sink, *lists = ctx.saved_tensors
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        dsink = None if sink is None else torch.empty_like(sink)
        grads = dict(dq=dq, dk=dk, dv=dv, dsink=dsink)
        ends = dict(dout=_blocks_device.readable(dout), dlse=dlse.contiguous())
        given = dict(q=q, k=k, v=v, o=o, lse=lse, sink=sink, **ends, **grads)
        _blocks_device.run("backward", ctx.plan, Lists(*lists), ctx.mask, given)
        return dq, dk, dv, dsink, None, None, None


def _sink_of(sink: Tensor | None) -> Any:
    return None if sink is None else _array(sink)
