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


def _to_heads(ranks: Ranks, axes: Sequence[Axes], tensors: Sequence[Tensor]) -> list[Tensor]:
    n = ranks.size
    pairs = list(zip(tensors, axes))
    split = [x.tensor_split(n, at.head) for x, at in pairs]
    forms = [
        [Form.of(x, {at.row: at.rows.counts[r], at.head: x.shape[at.head] // n}) for x, at in pairs]
        for r in range(n)
    ]
    found = swap(ranks, f"{WHAT} (rows to heads)", list(zip(*split)), forms, tensors[0].device)
    return [whole_of([each[i] for each in found], at.row, at.rows) for i, at in enumerate(axes)]


def _to_rows(ranks: Ranks, axes: Sequence[Axes], tensors: Sequence[Tensor]) -> list[Tensor]:
    n = ranks.size
    pairs = list(zip(tensors, axes))
    outgoing = [[part_of(x, at.row, at.rows.of(r)) for x, at in pairs] for r in range(n)]
    mine = [Form.of(x, {at.row: at.rows.counts[ranks.rank]}) for x, at in pairs]
    found = swap(ranks, f"{WHAT} (heads to rows)", outgoing, [mine] * n, tensors[0].device)
    return [torch.cat([each[i] for each in found], at.head) for i, at in enumerate(axes)]


class Exchange(torch.autograd.Function):
    """One of the two for the tensors, the other for their gradients."""

    @staticmethod
    def forward(ctx: Any, there: Any, back: Any, ranks: Ranks, axes: Any, *tensors: Tensor) -> Any:
        ctx.back = back, ranks, axes
        return tuple(there(ranks, axes, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        back, ranks, axes = ctx.back
        return None, None, None, None, *back(ranks, axes, grads)


def attend(
    ranks: Ranks, rows: Rows, columns: Rows, q: Tensor, k: Tensor, v: Tensor, a: Arguments
) -> tuple[Tensor, Tensor]:
    """(o, lse) of this rank's rows. Lists in `a` are those of the whole."""
    heads, kv_heads = q.shape[-2], k.shape[-2]
    if kv_heads % ranks.size:
        raise Error(
            "unsupported",
            f"{WHAT}: method heads with {kv_heads} key heads: expected a multiple of {ranks.size}, "
            "the number of ranks; gather and relay take any number",
        )
    exchange: Any = Exchange.apply
    queries, keys = Axes(rows, -3, -2), Axes(columns, -3, -2)
    q, k, v = exchange(_to_heads, _to_rows, ranks, (queries, keys, keys), q, k, v)
    mine = heads // ranks.size
    own = slice(ranks.rank * mine, (ranks.rank + 1) * mine)
    slopes = None if a.slopes is None else a.slopes[..., own].contiguous()
    given = a.shard or Shard()
    shard = Shard(
        batch0=given.batch0, head0=given.head0 + own.start, heads_total=given.heads_total or heads
    )
    results = call(q, k, v, a._replace(slopes=slopes, shard=shard))
    o, lse = exchange(_to_rows, _to_heads, ranks, (queries, Axes(rows, -1, -2)), *results)
    return o, lse
