"""Chunked attention of transformers: the chunks of a causal mask are sequences of a packed batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._transformers_mask import Pattern
from ._transformers_padding import once, take
from .torch._attention import call
from .torch._call import Arguments


class _Chunks(NamedTuple):
    q_ends: Tensor
    kv_ends: Tensor
    rows: Tensor | None  # valid queries and keys of the flattened batch; None: all
    keys: Tensor | None


def in_chunks(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, arguments: Arguments) -> Tensor:
    """Causal attention within the chunks of a pattern, of valid tokens only; zeros elsewhere."""
    (batch, rows), keys = q.shape[:2], k.shape[1]
    size: Any = pattern.chunk
    made = _chunks(pattern, batch, rows, keys)
    arguments = arguments._replace(
        cu_q=made.q_ends, cu_kv=made.kv_ends, max_q=min(size, rows), max_kv=min(size, keys)
    )
    if made.rows is None or made.keys is None:
        o, _ = call(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), arguments)
        return o.unflatten(0, (batch, rows))
    o, _ = call(take(q, made.rows), take(k, made.keys), take(v, made.keys), arguments)
    o = o.new_zeros(batch * rows, *o.shape[1:]).index_copy(0, made.rows, o)
    return o.unflatten(0, (batch, rows))


def _chunks(pattern: Pattern, batch: int, rows: int, keys: int) -> _Chunks:
    """The chunks of each sequence: its keys there, and the queries among them, which come last."""
    size: Any = pattern.chunk

    def compute(shift: Tensor) -> _Chunks:
        places = torch.arange(keys, device=shift.device)
        numbers = (places + shift.view(-1, 1)).expand(batch, keys).div(size, rounding_mode="floor")
        most = (keys - 1) // size + 2  # chunks that keys of a sequence can be in
        first = torch.arange(batch, device=shift.device).view(-1, 1) * most
        numbers = numbers - numbers[:, :1] + first
        bounds = torch.arange(batch * most + 1, device=shift.device)
        kept: list[Tensor | None] = []
        ends = []
        for last in (rows, keys):
            mine = numbers[:, keys - last :].flatten()
            kept.append(None)
            if pattern.valid is not None:
                kept[-1] = pattern.valid[:, keys - last :].flatten().nonzero().flatten()
                mine = mine[kept[-1]]
            ends.append(torch.searchsorted(mine, bounds).to(torch.int32))
        return _Chunks(ends[0], ends[1], kept[0], kept[1])

    shift: Any = pattern.shift
    made: _Chunks = once(shift, f"chunks {rows} {keys}", compute)
    return made
