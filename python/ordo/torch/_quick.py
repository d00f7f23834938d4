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
        rng: Tensor,
        rules: int,
        flags: int,
        lengths: Lengths | None,
    ) -> Any:
        if lengths is None:
            o, lse, rng, result = front.forward(q, k, v, rng, rules, flags)
        else:
            o, lse, rng, result = front.lengths(q, k, v, rng, *lengths, rules, flags)
        if result <= 0:
            failed(result)
            return None
        ctx.set_materialize_grads(False)
        given: tuple[Tensor, ...] = (rng,) if flags & _DROPS else ()
        if lengths is not None:
            given += lengths[: 3 if flags & IDS_GIVEN else 2]
        ctx.save_for_backward(q, k, v, o, lse, *given)
        ctx.made = front.plans[result]
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse, *given = ctx.saved_tensors
        made: Ready = ctx.made
        if dout is not None and not torch.is_grad_enabled():
            drops = made.rules.dropout_p > 0
            flags = (RNG_GIVEN if drops else 0) | (0 if dlse is None else DLSE_GIVEN)
            places = _places(made, given) if len(given) > 1 else ()
            dq, dk, dv, result = front.backward(
                dout, dout if dlse is None else dlse, q, k, v, o, lse, given[0] if drops else q,
                -made.number, flags, *places,
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
    places = [0] * len(Lists._fields)
    for at, x in zip(made.lists, given):
        if at:  # seed and offset, which are the first, go by themselves
            places[at] = x.data_ptr()
    return places


# Function.apply() itself, without a look for functorch: plain() has made sure of that.
_apply = super(torch.autograd.Function, _Quick).apply


def quick(
    q: Tensor, k: Tensor, v: Tensor, rng: Tensor, rules: int, flags: int, lengths: Lengths | None
) -> tuple[Tensor, Tensor] | None:
    """(o, lse) of plain tensors, or None if the front declines. `rules` is the number under which
    plans were learned; rng is given, or drawn as the flags say."""
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        pair: tuple[Tensor, Tensor] | None = _apply(q, k, v, rng, rules, flags, lengths)
        return pair
    if lengths is None:
        o, lse, _, result = front.forward(q, k, v, rng, rules, flags)
    else:
        o, lse, _, result = front.lengths(q, k, v, rng, *lengths, rules, flags)
    if result <= 0:
        failed(result)
        return None
    return o, lse
