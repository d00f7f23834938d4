"""Passes below autograd: of a whole problem, and backward passes over parts of one.

A pass over some rows of a sequence leaves the sums of dk and dv in memory, and the pass over the
next rows goes on from there: ordo_call.carry in ordo/attention.h.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import _front as f
from ._inputs import Lists, Rules, call_of
from ._call import filled, width_of

CARRY_IN, CARRY_OUT = 1, 2


class Saved(NamedTuple):
    """What a backward pass reads of its query rows."""

    q: Tensor
    o: Tensor
    lse: Tensor
    dout: Tensor
    dlse: Tensor | None


class Sums(NamedTuple):
    """f32, contiguous, in the shapes of k and v. Read and written as `carry` says."""

    dk: Tensor
    dv: Tensor
    carry: int


class Wanted(NamedTuple):
    dq: bool
    keys: bool  # dk and dv; not with CARRY_OUT


def forward(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules, flags: int = 0
) -> tuple[Tensor, Tensor]:
    """(o, lse). `flags`: HEADS_FIRST or LIKE_Q, which take head sizes as they are."""
    width, dim, like = width_of(q, v), v.shape[-1], q
    if width:
        q, k, v = filled(width, q, k, v)
    more, *rest = call_of(lists, rules)
    try:
        with f.below():
            o, lse, _ = f.forward(q, k, v, more | flags, *rest)
    except RuntimeError as error:
        raise f.error_of(error) from None
    return _narrow(o, dim, like if flags & f.LIKE_Q else None) if width else o, lse


def _narrow(x: Tensor, dim: int, like: Tensor | None) -> Tensor:
    """The first columns of a tensor whose head size was filled up, laid out as `like` if given."""
    if like is None or like.shape[-1] != dim:
        return x[..., :dim].contiguous()
    return torch.empty_like(like).copy_(x[..., :dim])


def backward(
    rows: Saved, k: Tensor, v: Tensor, lists: Lists, rules: Rules, want: Wanted = Wanted(True, True),
    sums: Sums | None = None, flags: int = 0,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """(dq, dk, dv), None where they are not wanted."""
    q, o, lse, dout, dlse = rows
    width, likes = width_of(q, v), (q, k, v)
    wide = None if sums is None else [sums.dk, sums.dv]
    if width:
        q, k, v, o, dout = filled(width, q, k, v, o, dout)
        wide = None if wide is None else filled(width, *wide)
    more, *rest = call_of(lists, rules)
    more |= flags | (0 if want.dq else f.NO_DQ) | (0 if want.keys else f.NO_DKV)
    given = dout, dlse, q, k, v, o, lse, more, *rest
    try:
        with f.below():
            if wide is None or sums is None:
                made = f.backward(*given)[:3]
            else:
                made = f.backward_part(*given[:7], *wide, sums.carry, *given[7:])
    except RuntimeError as error:
        raise f.error_of(error) from None
    if not width:
        return made  # type: ignore[no-any-return]
    if sums is not None and wide is not None:
        for x, y in zip(sums[:2], wide):
            x.copy_(y[..., : x.shape[-1]])
    laid = likes if flags & f.LIKE_Q else (None, None, None)
    dq, dk, dv = (
        None if x is None else _narrow(x, y.shape[-1], z) for x, y, z in zip(made, likes, laid)
    )
    return dq, dk, dv
