"""Calls of plain tensors by the compiled front, which finds their plans: the shortest way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._compiled import DLSE_GIVEN, IDS_GIVEN, RNG_DRAWN, RNG_GIVEN, failed, front
from ._inputs import Lists
from ._ops import gradients
from ._plans import Ready

_DROPS = RNG_GIVEN | RNG_DRAWN

# Of queries and keys; sequence ids or any tensor; the longest of queries and keys, if packed.
Lengths = tuple[Tensor, Tensor, Tensor, int, int]


class _Quick(torch.autograd.Function):
    """Returns None if the front declines."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rng: Tensor | None,
        rules: int,
        flags: int,
        lengths: Lengths | None,
    ) -> Any:
        o, lse, drawn, result = _run(q, k, v, rng, rules, flags, lengths)
        if result <= 0:
            failed(result)
            return None
        ctx.set_materialize_grads(False)
        if not flags and lengths is None:
            ctx.save_for_backward(q, k, v, o, lse)
        else:
            given: tuple[Tensor, ...] = (drawn,) if flags & _DROPS else ()
            if lengths is not None:
                given += lengths[: 3 if flags & IDS_GIVEN else 2]
            ctx.save_for_backward(q, k, v, o, lse, *given)
        ctx.made = front.plan(result)
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse, *given = ctx.saved_tensors
        made: Ready = ctx.made
        if dout is not None and not _grad_enabled():
            rng, flags = (given[0], RNG_GIVEN) if made.drops else (q, 0)
            if dlse is not None:
                flags |= DLSE_GIVEN
            dq, dk, dv, result = front.backward(
                dout, dlse if flags & DLSE_GIVEN else dout, q, k, v, o, lse, rng, -made.number,
                flags, *_places(made, given),
            )  # fmt: skip
            if result > 0:
                return dq, dk, dv, None, None, None, None
            failed(result)
        lists: list[Any] = [None] * len(Lists._fields)
        for at, x in zip(made.lists, given):
            lists[at] = x
        grads = gradients(made, dout, dlse, q, k, v, o, lse, Lists(*lists), None)
        return (*grads, None, None, None, None)


def _places(made: Ready, given: list[Tensor]) -> list[int]:
    """Addresses as the operator takes them: of no keep bits, then of the lists."""
    places: list[int] = []
    if len(given) > made.drops:
        places = [0] * len(Lists._fields)
        for at, x in zip(made.lists, given):
            if at:  # seed and offset, which are the first, go by themselves
                places[at] = x.data_ptr()
    return places


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rng: Tensor | None,
    rules: int,
    flags: int,
    lengths: Lengths | None,
) -> Any:
    """(o, lse, seed and offset, the number of the plan), as the operators return them."""
    if rng is None:
        rng = q
    if lengths is None:
        return front.forward(q, k, v, rng, rules, flags)
    return front.lengths(q, k, v, rng, *lengths, rules, flags)


# Function.apply() itself, without a look for functorch: plain() has made sure of that.
_apply = super(torch.autograd.Function, _Quick).apply
_grad_enabled = torch.is_grad_enabled


def quick(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rng: Tensor | None,
    rules: int,
    flags: int,
    lengths: Lengths | None,
) -> tuple[Tensor, Tensor] | None:
    """(o, lse) of plain tensors, or None if the front declines. `rules` is the number under which
    plans were learned; rng is given, or drawn as the flags say."""
    if _grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        pair: tuple[Tensor, Tensor] | None = _apply(q, k, v, rng, rules, flags, lengths)
        return pair
    o, lse, _, result = _run(q, k, v, rng, rules, flags, lengths)
    if result <= 0:
        failed(result)
        return None
    return o, lse
