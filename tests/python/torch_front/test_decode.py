"""Decoding = prefill = training: rows alone, in chunks and all at once have the same bits."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same
from ordo.compat.flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

LENGTHS, HEADS, KV_HEADS, DIM = (150, 1, 77), 4, 2, 16
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
RULES = [{}, dict(window_size=(37, 0)), dict(softcap=2.0), dict(alibi_slopes=SLOPES)]


def drawn(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw).bfloat16()


@pytest.mark.parametrize("rules", RULES)
def test_rows_of_a_packed_batch_decoded_from_a_cache(rules):
    """Training packs sequences of different lengths; each is then decoded in one padded cache."""
    ends = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    q = drawn(sum(LENGTHS), HEADS, DIM).requires_grad_()
    k, v = (drawn(sum(LENGTHS), KV_HEADS, DIM, seed=x).requires_grad_() for x in (1, 2))
    whole = flash_attn_varlen_func(
        q, k, v, ends, ends, max(LENGTHS), max(LENGTHS), causal=True, **rules
    )
    whole.float().sum().backward()  # a training pass: its backward runs
    cache = [torch.full((3, 200, KV_HEADS, DIM), torch.nan).bfloat16() for _ in "kv"]
    for b, length in enumerate(LENGTHS):
        for x, y in zip(cache, (k, v)):
            x[b, :length] = y[ends[b] : ends[b + 1]].detach()
    for back in (1, 2, 40, 77):  # rows before each end
        lengths = torch.tensor([max(n - back + 1, 1) for n in LENGTHS], dtype=torch.int32)
        rows = ends[:-1] + lengths - 1
        out = flash_attn_with_kvcache(
            q[rows.long()][:, None].detach(), *cache, cache_seqlens=lengths, causal=True, **rules
        )
        assert same(out[:, 0], whole[rows.long()])


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
