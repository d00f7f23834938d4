"""Attention under block masks, and block masks of FlexAttention."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._attention import backward, forward
from .._blocks import BLOCK, WHOLE, BlockMask
from .._library import Error
from .._plan import Plan
from .._problem import Problem
from . import _blocks_device
from ._blocks_kept import kept_mask
from ._flex_kept import Flex, converted
from ._inputs import Lists, Rules, check
from ._passes import watchers
from ._plans import Ready, machine_of, problem_of

Attended = tuple[Tensor, Tensor]


def block_mask_of(given: Any, q: Tensor) -> BlockMask:
    """The mask that a call is given, ordo's or FlexAttention's."""
    if not (q.is_cpu or q.is_cuda):
        raise Error("unsupported", f"block_mask, q.device {q.device}: expected cpu or cuda")
    if isinstance(given, BlockMask):
        return given
    sequences = q.shape[0] if q.dim() == 4 else None  # packed: not known here
    return converted(given, (sequences, q.shape[-2]), from_flex)


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
    check(q, k, v, lists, rules)
    if sink is not None and (not isinstance(sink, Tensor) or sink.shape != (q.shape[-2],)):
        raise Error("shape", f"sink {sink!r}: expected a tensor of shape ({q.shape[-2]},)")
    noted = Ready()
    problem = problem_of(q, k, v, lists, rules).replace(blocks=mask.limits)
    noted.plan = _plan_of(problem, q.device.index if q.is_cuda else None)
    kept = kept_mask(mask)
    kept.check(noted.plan)
    sink = None if sink is None else sink.to(device=q.device, dtype=torch.float32)
    if draw is not None:
        lists = lists._replace(rng=draw())
    for watch in watchers:
        watch(noted, lists)
    made: Attended
    if q.is_cuda:
        made = _AttendThere.apply(q, k, v, sink, noted.plan, lists, kept.on(q.device))
    else:
        made = _Attend.apply(q, k, v, sink, noted.plan, _lists(lists), kept.own)
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


# ---- FlexAttention ----


def from_flex(mask: Any) -> Flex:
    """A block mask of torch.nn.attention.flex_attention.

    Its full blocks are whole. The elements of the others are those of its mask_mod, of which each
    row has to see one interval of columns: documents, causal masks and windows do.
    """
    if not hasattr(mask, "kv_num_blocks") or not hasattr(mask, "mask_mod"):
        raise Error("argument", f"block_mask {mask!r}: expected ordo.BlockMask or FlexAttention's")
    if tuple(mask.BLOCK_SIZE) != (BLOCK, BLOCK):
        raise Error("unsupported", f"block_mask.BLOCK_SIZE {mask.BLOCK_SIZE}: expected 128 x 128")
    sequences, heads = mask.kv_num_blocks.shape[:2]
    made = BlockMask.join(
        [[_flex_one(mask, b, h) for h in range(heads)] for b in range(sequences)]
    )
    return Flex(made, sequences == 1 and _depends(mask, 0), heads == 1 and _depends(mask, 1))


def _depends(mask: Any, axis: int) -> bool:
    """Whether the rule depends on b (axis 0) or h (axis 1), or does what vmap cannot follow. vmap
    knows which results follow from its argument, and refuses out_dims None for them."""
    one = torch.zeros(1, dtype=torch.int64, device=mask.kv_num_blocks.device)

    def elements(x: Tensor) -> Tensor:
        b, h = (x if at == axis else one[0] for at in (0, 1))

        def element(row: Tensor, column: Tensor) -> Tensor:
            with _Shaped(x, one[0]):
                return torch.as_tensor(mask.mask_mod(b, h, row, column), device=one.device)

        return torch.vmap(element)(one, one)

    try:
        torch.vmap(elements, out_dims=None)(one)
    except Exception:  # vmap's, whose kinds are many: a rule that is wrong fails when it is read
        return True
    return False


class _Shaped(TorchFunctionMode):
    """Tensors with the type and device of x are made from `alike` instead, so that vmap does not
    take them for results of x: and_masks() and noop_mask() of FlexAttention make such."""

    def __init__(self, x: Tensor, alike: Tensor) -> None:
        super().__init__()
        self.x, self.alike = x, alike

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _MADE_ALIKE and args and args[0] is self.x:
            args = self.alike, *args[1:]
        return func(*args, **(kwargs or {}))


_MADE_ALIKE = (
    Tensor.new_ones, Tensor.new_zeros, Tensor.new_full,
    torch.ones_like, torch.zeros_like, torch.full_like,
)  # fmt: skip


def _flex_one(mask: Any, b: int, h: int) -> BlockMask:
    rows, columns = mask.seq_lengths
    blocks = -(-rows // BLOCK)
    start, key = [0], []
    first, last = np.full(rows, columns, np.int32), np.full(rows, -1, np.int32)
    for i in range(blocks):
        part = _listed(mask.kv_num_blocks, mask.kv_indices, b, h, i)
        full = _listed(mask.full_kv_num_blocks, mask.full_kv_indices, b, h, i)
        lines = np.arange(i * BLOCK, min((i + 1) * BLOCK, rows))
        seen = _elements(mask, b, h, lines, part, columns)
        first[lines] = np.where(seen.any(1), seen.argmax(1), columns)
        last[lines] = np.where(seen.any(1), columns - 1 - seen[:, ::-1].argmax(1), -1)
        _check_intervals(seen, part, lines, first, last)
        key += sorted([(j, j) for j in part] + [(j, j | WHOLE) for j in full])
        start.append(len(key))
    lists = (np.array(x, np.int32) for x in (start, [entry for _, entry in key]))
    heads, keys = lists
    return BlockMask(rows, columns, heads.reshape(1, 1, -1), keys,
                     first.reshape(1, 1, -1), last.reshape(1, 1, -1))  # fmt: skip


def _listed(counts: Tensor | None, indices: Tensor | None, b: int, h: int, i: int) -> list[int]:
    if counts is None or indices is None:
        return []
    made: list[int] = indices[b, h, i, : int(counts[b, h, i])].tolist()
    return made


def _elements(mask: Any, b: int, h: int, lines: Any, part: list[int], columns: int) -> Any:
    """What rows see of partial blocks, (rows, columns)."""
    seen = np.zeros((len(lines), columns), bool)
    device = mask.kv_num_blocks.device
    rows = torch.as_tensor(lines, device=device)
    sequence, head = (torch.tensor(x, device=device) for x in (b, h))

    def one(row: Tensor, column: Tensor) -> Tensor:
        return torch.as_tensor(mask.mask_mod(sequence, head, row, column), device=device)

    each = torch.vmap(torch.vmap(one, (None, 0)), (0, None))  # of single elements: the rule's words
    for j in part:
        places = torch.arange(j * BLOCK, min((j + 1) * BLOCK, columns), device=device)
        seen[:, j * BLOCK : j * BLOCK + len(places)] = each(rows, places).cpu().numpy()
    return seen


def _check_intervals(seen: Any, part: list[int], lines: Any, first: Any, last: Any) -> None:
    places = np.arange(seen.shape[1])
    inside = (places >= first[lines][:, None]) & (places <= last[lines][:, None])
    wrong = np.argwhere(inside & np.isin(places // BLOCK, part) & ~seen)
    if len(wrong):
        row, column = lines[wrong[0][0]], wrong[0][1]
        raise Error(
            "unsupported",
            f"block_mask.mask_mod: row {row} sees columns {first[row]} and {last[row]}, but not "
            f"{column}: expected one interval of columns per row in partial blocks, as documents, "
            "causal masks and windows have",
        )
