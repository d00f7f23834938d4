"""Decoding = prefill = training: rows alone, in chunks and all at once have the same bits."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same

LENGTHS, HEADS, KV_HEADS, DIM = (150, 1, 77), 4, 2, 16


def drawn(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw).bfloat16()


@pytest.mark.parametrize("step", [16, 48])
def test_chunks_with_dropout_at_blocks_of_keep_bits(step):
    """With dropout a chunk says where it lies, at a multiple of 16 rows."""
    q, k, v = (drawn(2, 150, n, DIM, seed=n) for n in (HEADS, KV_HEADS, KV_HEADS))
    rules = dict(causal=True, dropout_p=0.2, seed=9)
    whole, lse = ordo.torch.attention(q, k, v, **rules)
    for first in range(0, 150, step):
        shard = ordo.Shard(row0=first, q_total=150, kv_total=150)
        part = slice(first, first + step)
        got = ordo.torch.attention(q[:, part], k, v, shard=shard, **rules)
        assert same(got[0], whole[:, part]) and same(got[1], lse[:, :, part])
    with pytest.raises(ordo.Error, match="shard.row0 8: expected a multiple of 16 with dropout"):
        shard = ordo.Shard(row0=8, q_total=150, kv_total=150)
        ordo.torch.attention(q[:, 8:20], k, v, shard=shard, **rules)
