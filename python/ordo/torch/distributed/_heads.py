"""Method heads: an all-to-all turns some rows of all heads into all rows of some heads, and back.

No sum crosses ranks: each rank runs one ordinary call on whole sequences. The number of ranks must
divide the number of key heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._library import Error
from ..._problem import Shard
from .._attention import call
from .._call import Arguments
from ._exchange import Form, Ranks, swap
from ._job import WHAT
from ._shards import Rows, part_of, whole_of


class Axes(NamedTuple):
    """Which rows a tensor has, and along which axes its rows and heads are."""

    rows: Rows
    row: int
    head: int


def _form(x: Tensor, axes: Axes, rows: int, heads: int) -> Form:
    shape = list(x.shape)
    shape[axes.row], shape[axes.head] = rows, heads
    return Form(tuple(shape), x.dtype)


def _to_heads(ranks: Ranks, axes: Sequence[Axes], tensors: Sequence[Tensor]) -> list[Tensor]:
    n = ranks.size
    split = [x.tensor_split(n, at.head) for x, at in zip(tensors, axes)]
    outgoing = [[each[r] for each in split] for r in range(n)]
    forms = [
        [_form(x, at, at.rows.counts[r], x.shape[at.head] // n) for x, at in zip(tensors, axes)]
        for r in range(n)
    ]
    found = swap(ranks, f"{WHAT} (rows to heads)", outgoing, forms, tensors[0].device)
    return [whole_of([each[i] for each in found], at.row, at.rows) for i, at in enumerate(axes)]


def _to_rows(ranks: Ranks, axes: Sequence[Axes], tensors: Sequence[Tensor]) -> list[Tensor]:
    n = ranks.size
    pairs = list(zip(tensors, axes))
    outgoing = [[part_of(x, at.row, at.rows.of(r)) for x, at in pairs] for r in range(n)]
    mine = [_form(x, at, at.rows.counts[ranks.rank], x.shape[at.head]) for x, at in pairs]
    found = swap(ranks, f"{WHAT} (heads to rows)", outgoing, [mine] * n, tensors[0].device)
    return [torch.cat([each[i] for each in found], at.head) for i, at in enumerate(axes)]


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ranks: Ranks, axes: Sequence[Axes], *tensors: Tensor) -> Any:
        ctx.ranks, ctx.axes = ranks, axes
        return tuple(_to_heads(ranks, axes, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_to_rows(ctx.ranks, ctx.axes, grads)


class _ToRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ranks: Ranks, axes: Sequence[Axes], *tensors: Tensor) -> Any:
        ctx.ranks, ctx.axes = ranks, axes
        return tuple(_to_rows(ranks, axes, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_to_heads(ctx.ranks, ctx.axes, grads)


def check_heads(ranks: int, kv_heads: int) -> None:
    if kv_heads % ranks:
        raise Error(
            "unsupported",
            f"{WHAT}: method heads with {kv_heads} key heads: expected a multiple of {ranks}, the "
            "number of ranks; gather and relay take any number",
        )


def attend(
    ranks: Ranks, rows: Rows, columns: Rows, q: Tensor, k: Tensor, v: Tensor, a: Arguments
) -> tuple[Tensor, Tensor]:
    """(o, lse) of this rank's rows. Lists in `a` are those of the whole."""
    heads, kv_heads = q.shape[-2], k.shape[-2]
    check_heads(ranks.size, kv_heads)
    queries, keys = Axes(rows, -3, -2), Axes(columns, -3, -2)
    q, k, v = _ToHeads.apply(ranks, (queries, keys, keys), q, k, v)
    mine = heads // ranks.size
    slopes = a.slopes
    if slopes is not None:
        slopes = slopes[..., ranks.rank * mine : (ranks.rank + 1) * mine].contiguous()
    given = a.shard or Shard()
    shard = Shard(
        batch0=given.batch0,
        head0=given.head0 + ranks.rank * mine,
        heads_total=given.heads_total or heads,
    )
    o, lse = call(q, k, v, a._replace(slopes=slopes, shard=shard))
    pair: tuple[Tensor, Tensor] = _ToRows.apply(ranks, (queries, Axes(rows, -1, -2)), o, lse)
    return pair
