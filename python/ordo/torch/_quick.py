"""Calls of plain tensors by the compiled front, which finds their plans: the shortest way.

Each function returns None if the front declines the call: it has then drawn and written nothing.
With HEADS_FIRST q, k and v are (batch, head, row, dim), whether packed or not, and so are their
gradients; o is (batch, row, head, dim). No views are made, nor their gradients' nodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._library import Error
from ._compiled import (
    DLSE_GIVEN,
    HEADS_FIRST,
    IDS_GIVEN,
    MARK,
    MARKED_RULES,
    RNG_DRAWN,
    RNG_GIVEN,
    failed,
    front,
)
from ._inputs import NO_LISTS, Lists
from ._ops import gradients
from ._plans import Ready

_DROPS = RNG_GIVEN | RNG_DRAWN
_grad_enabled = torch.is_grad_enabled
_hooks: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)

Pair = tuple[Tensor, Tensor]  # o and lse

# ---- without lists ----


class _Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rules: int, flags: int) -> Any:
        if flags & RNG_DRAWN:
            o, lse, rng, result = front.forward(q, k, v, q, rules, flags)
            saved: Any = (q, k, v, o, lse, rng)
        else:
            o, lse, result = front.plain(q, k, v, rules, flags)
            saved = q, k, v, o, lse
        if result <= 0:
            failed(result)
            return None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        ctx.which = result, flags
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse, *drawn = ctx.saved_tensors  # once: a second time fails under a checkpoint
        number, flags = ctx.which
        if dout is not None and dlse is None and not _grad_enabled():
            if drawn:
                flags = flags & HEADS_FIRST | RNG_GIVEN
                made = front.backward(dout, q, k, v, o, lse, dout, drawn[0], number, flags)
            else:
                made = front.plain_backward(dout, q, k, v, o, lse, number, flags)
            dq, dk, dv, result = made
            if result > 0:
                return dq, dk, dv, None, None
            failed(result)
        lists = Lists(drawn[0]) if drawn else NO_LISTS
        grads = _declined(front.plan(number), flags, dout, dlse, q, k, v, o, lse, lists)
        return (*grads, None, None)


def _by_node(q: Tensor, k: Tensor, v: Tensor, rules: int, flags: int) -> Pair | None:
    """(o, lse) by PyTorch's operator, whose node runs the backward pass; lse has no gradient.

    Not under hooks of saved tensors: the node saves them in another order than _Plain, and a
    checkpoint that ran a call again in the other way would mistake one for another."""
    try:
        o, lse, _, _, status, ran, *_ = front.node(
            q, k, v, None, -(MARK + rules), flags & HEADS_FIRST != 0, flags & RNG_DRAWN != 0
        )
    except Exception:  # of tensors without a kernel, such as sparse ones, or by somebody's kernel,
        return None  # registered later; the other ways raise what is wrong with the call itself
    if ran < MARK:  # declined, or a kernel that somebody registered later
        failed(-status if ran == 0 else 0)
        return None
    return o, lse


# Function.apply() itself, without a look for functorch: plain() has made sure of that.
_apply_plain = super(torch.autograd.Function, _Plain).apply


def quick_plain(
    q: Tensor, k: Tensor, v: Tensor, rules: int, flags: int = 0, alone: bool = False
) -> Pair | None:
    """(o, lse) without lists. `rules`: the number under which plans were learned; `flags`:
    RNG_DRAWN with dropout; `alone`: o alone needs a gradient."""
    if _grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        if alone and front.node is not None and rules < MARKED_RULES and not _hooks(True):
            return _by_node(q, k, v, rules, flags)
        pair: Pair | None = _apply_plain(q, k, v, rules, flags)
        return pair
    if flags & RNG_DRAWN:
        o, lse, _, result = front.forward(q, k, v, q, rules, flags)
    else:
        o, lse, result = front.plain(q, k, v, rules, flags)
    if result <= 0:
        failed(result)
        return None
    return o, lse


def _declined(
    made: Ready,
    flags: int,
    dout: Any,
    dlse: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
) -> Any:
    """(dq, dk, dv) where the front declines the backward pass."""
    if not flags & HEADS_FIRST:
        return gradients(made, dout, dlse, q, k, v, o, lse, lists, None)
    for name, x in (("q", q), ("k", k), ("v", v), ("o", o)):  # which hooks may have replaced
        if x.dim() != 4:
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected four axes")
    batch, packed = q.shape[0], lists.cu_q is not None
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if packed:
        q, k, v, o = (x.flatten(0, 1) for x in (q, k, v, o))
        dout = None if dout is None else dout.flatten(0, 1)
    grads = gradients(made, dout, dlse, q, k, v, o, lse, lists, None)
    if packed:
        grads = [x.unflatten(0, (batch, -1)) for x in grads]
    return [x.transpose(1, 2) for x in grads]


# ---- with lists, or with seed and offset that are given ----


class Beside(NamedTuple):
    """What the front is told beside q, k and v: the rules, and how dropout and lists are given."""

    rules: int  # the number under which plans were learned
    flags: int
    rng: Tensor | None = None  # unless it is drawn
    q_lengths: Tensor | None = None  # with all of the following, or without
    kv_lengths: Tensor | None = None
    ids: Tensor | None = None  # of sequences, or any tensor
    max_q: int = 0  # the longest, if packed
    max_kv: int = 0


def _run(q: Tensor, k: Tensor, v: Tensor, beside: Beside) -> Any:
    """(o, lse, seed and offset, the number of the plan), as the operators return them."""
    rules, flags, rng, *lengths = beside
    if rng is None:
        rng = q
    if lengths[0] is None:
        return front.forward(q, k, v, rng, rules, flags)
    return front.lengths(q, k, v, rng, *lengths, rules, flags)


class _Quick(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, beside: Beside) -> Any:
        o, lse, drawn, result = _run(q, k, v, beside)
        if result <= 0:
            failed(result)
            return None
        ctx.set_materialize_grads(False)
        given: Any = (drawn,) if beside.flags & _DROPS else ()
        if beside.q_lengths is not None:
            given += (beside.q_lengths, beside.kv_lengths)
            if beside.flags & IDS_GIVEN:
                given += (beside.ids,)
        ctx.save_for_backward(q, k, v, o, lse, *given)
        ctx.made, ctx.turned = front.plan(result), beside.flags & HEADS_FIRST
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse, *given = ctx.saved_tensors
        made: Ready = ctx.made
        turned = ctx.turned
        if dout is not None and not _grad_enabled():
            rng, flags = (given[0], RNG_GIVEN | turned) if made.drops else (q, turned)
            tensors = dout, q, k, v, o, lse, dout if dlse is None else dlse, rng
            if dlse is not None:
                flags |= DLSE_GIVEN
            listed = given[made.drops :]
            if listed:
                if len(listed) > 2:
                    flags |= IDS_GIVEN
                back = front.lengths_backward(*tensors, *listed[:2], listed[-1], made.number, flags)
            else:
                back = front.backward(*tensors, made.number, flags)
            dq, dk, dv, result = back
            if result > 0:
                return dq, dk, dv, None
            failed(result)
        lists: list[Any] = [None] * len(Lists._fields)
        for at, x in zip(made.lists, given):
            lists[at] = x
        return (*_declined(made, turned, dout, dlse, q, k, v, o, lse, Lists(*lists)), None)


_apply = super(torch.autograd.Function, _Quick).apply


def quick(q: Tensor, k: Tensor, v: Tensor, beside: Beside) -> Pair | None:
    """(o, lse) with lists, or with seed and offset that are given."""
    if _grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        pair: Pair | None = _apply(q, k, v, beside)
        return pair
    o, lse, _, result = _run(q, k, v, beside)
    if result <= 0:
        failed(result)
        return None
    return o, lse
