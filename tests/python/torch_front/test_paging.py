"""Keys in pages: rows have the bits that they have in one pass over the whole sequence."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

import ordo
import ordo.torch
from ordo.compat import flash_attn_3 as fa3
from ordo.compat.flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

LENGTHS = 300, 77, 513
HEADS, KV_HEADS, DIM = 4, 2, 32


class Cache:
    """Keys of some sequences in shuffled pages, with NaN wherever no key is."""

    def __init__(self, page_rows: int, dtype: torch.dtype, seed: int) -> None:
        torch.manual_seed(seed)
        self.columns = -(-max(LENGTHS) // page_rows)
        pages = len(LENGTHS) * self.columns + 3
        order = random.Random(seed).sample(range(pages), len(LENGTHS) * self.columns)
        self.table = torch.tensor(order, dtype=torch.int32).view(len(LENGTHS), self.columns)
        self.k, self.v = (
            torch.full((pages, page_rows, KV_HEADS, DIM), torch.nan, dtype=dtype) for _ in range(2)
        )
        self.page_rows = page_rows
        self.q, self.keys, self.values = (
            [torch.randn(n, heads, DIM, dtype=dtype) for n in LENGTHS]
            for heads in (HEADS, KV_HEADS, KV_HEADS)
        )

    def train(self, b: int, **rules: Any) -> tuple[Tensor, Tensor]:
        """o and lse of one pass over sequence b."""
        one = (x[b][None] for x in (self.q, self.keys, self.values))
        o, lse = ordo.torch.attention(*one, causal=True, **rules)
        return o[0], lse[0]

    def put(self, b: int, first: int, end: int) -> None:
        for column in range(first, end):
            page, row = int(self.table[b, column // self.page_rows]), column % self.page_rows
            self.k[page, row], self.v[page, row] = self.keys[b][column], self.values[b][column]

    def forget(self, b: int, first: int, end: int) -> None:
        """Entries of the table that are not read may be anything."""
        for x in range(self.columns):
            if x * self.page_rows >= end or (x + 1) * self.page_rows <= first:
                self.table[b, x] = -5


@pytest.mark.parametrize("page_rows", [1, 16, 48, 256])
@pytest.mark.parametrize("window", [(-1, -1), (60, 0)])
def test_packed_and_dense_queries_have_the_bits_of_training(
    page_rows: int, window: tuple[int, int]
) -> None:
    cache = Cache(page_rows, torch.bfloat16, page_rows)
    rows, sink = (3, 1, 3), torch.randn(HEADS)
    ends = [250, 60, 513]
    starts = [max(0, e - n - window[0] - 1) if window[0] >= 0 else 0 for e, n in zip(ends, rows)]
    for b in range(3):
        cache.put(b, starts[b], ends[b])
        cache.forget(b, starts[b], ends[b])
    lens = torch.tensor(ends, dtype=torch.int32)
    rules: dict[str, Any] = {"window": window, "sink": sink}
    paged = {
        **rules,
        "page_table": cache.table,
        "kv_lens": lens,
        "kv_starts": torch.tensor(starts, dtype=torch.int32),
    }
    cu = torch.tensor([0, 3, 4, 7], dtype=torch.int32)
    q = torch.cat([cache.q[b][ends[b] - rows[b] : ends[b]] for b in range(3)])
    o, lse = ordo.torch.attention(q, cache.k, cache.v, causal=True, cu_q=cu, max_q=3, **paged)
    dense = torch.stack([cache.q[b][ends[b] - 1 : ends[b]] for b in range(3)])
    one, one_lse = ordo.torch.attention(dense, cache.k, cache.v, causal=True, **paged)
    for b in range(3):
        expected, expected_lse = cache.train(b, **rules)
        last = slice(ends[b] - rows[b], ends[b])
        assert torch.equal(o[cu[b] : cu[b + 1]], expected[last])
        assert torch.equal(lse[:, cu[b] : cu[b + 1]], expected_lse[:, last])
        assert torch.equal(one[b, 0], expected[ends[b] - 1])
        assert torch.equal(one_lse[b, :, 0], expected_lse[:, ends[b] - 1])


@pytest.mark.parametrize("function", [flash_attn_with_kvcache, fa3.flash_attn_with_kvcache])
def test_a_cache_grows_through_its_table(function: Any) -> None:
    cache = Cache(16, torch.float32, 5)
    used, added = [100, 0, 512], 1
    for b in range(3):
        cache.put(b, 0, used[b])
    new = [
        torch.stack([x[b][used[b] : used[b] + added] for b in range(3)])
        for x in (cache.q, cache.keys, cache.values)
    ]
    name = "page_table" if function is fa3.flash_attn_with_kvcache else "block_table"
    out = function(
        new[0], cache.k, cache.v, new[1], new[2], cache_seqlens=torch.tensor(used, dtype=torch.int32),
        causal=True, **{name: cache.table},
    )  # fmt: skip
    for b in range(3):
        assert torch.equal(out[b], cache.train(b)[0][used[b] : used[b] + added])
        page, row = int(cache.table[b, used[b] // 16]), used[b] % 16
        assert torch.equal(cache.k[page, row], cache.keys[b][used[b]])


def test_flash_attentions_varlen_functions() -> None:
    cache = Cache(64, torch.bfloat16, 6)
    ends = [300, 77, 400]
    for b in range(3):
        cache.put(b, 0, ends[b])
    cu_q = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
    cu_k = torch.tensor([0, 300, 377, 777], dtype=torch.int32)
    q = torch.stack([cache.q[b][ends[b] - 1] for b in range(3)])
    expected = torch.stack([cache.train(b)[0][ends[b] - 1] for b in range(3)])
    with torch.no_grad():
        out = flash_attn_varlen_func(
            q, cache.k, cache.v, cu_q, cu_k, 1, 400, causal=True, block_table=cache.table
        )
    assert torch.equal(out, expected)
    used = torch.tensor(ends, dtype=torch.int32)
    out, *_ = fa3._flash_attn_forward(
        q, cache.k, cache.v, cu_seqlens_q=cu_q, seqused_k=used, max_seqlen_q=1, max_seqlen_k=400,
        page_table=cache.table, causal=True,
    )  # fmt: skip
    assert torch.equal(out, expected)


def test_a_graph_finds_other_tables() -> None:
    def decode(q: Tensor, k: Tensor, v: Tensor, table: Tensor, lens: Tensor) -> Tensor:
        return ordo.torch.attention(q, k, v, causal=True, page_table=table, kv_lens=lens)[0]

    compiled = torch.compile(decode, backend="aot_eager", fullgraph=True)
    for seed, ends in ((7, [300, 77, 513]), (8, [20, 1, 300])):
        cache = Cache(32, torch.bfloat16, seed)
        for b in range(3):
            cache.put(b, 0, ends[b])
        q = torch.stack([cache.q[b][ends[b] - 1 : ends[b]] for b in range(3)])
        with torch.no_grad():
            out = compiled(q, cache.k, cache.v, cache.table, torch.tensor(ends, dtype=torch.int32))
        for b in range(3):
            assert torch.equal(out[b, 0], cache.train(b)[0][ends[b] - 1])


Q = torch.zeros(3, 1, HEADS, DIM)
LENS = torch.tensor([5, 6, 7], dtype=torch.int32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_lens": None}, "kv_lens None: expected a tensor"),
        ({"page_table": torch.zeros(3, 4, dtype=torch.int64)}, "page_table.dtype torch.int64"),
        (
            {"page_table": torch.full((3, 4), 99, dtype=torch.int32)},
            r"page_table\[0\]\[0\] 99: expected 0..2",
        ),
        ({"kv_lens": LENS + 99}, r"kv_lens\[0\] 104: expected 0..16"),
        ({"kv_starts": LENS + 1}, r"kv_starts\[0\] 6: expected 0..5"),
        ({"kv_starts": LENS}, r"kv_starts\[0\] 5: expected no more than"),
        ({"dropout_p": 0.1}, "dropout_p 0.1: expected 0 with page_table"),
        ({"cu_kv": LENS}, "cu_kv given: expected None with page_table"),
        ({"q": Q[:2]}, r"q.shape \(2, 1, 4, 32\): expected \(3, row, head, dim\)"),
        ({"q": Q.clone().requires_grad_()}, "no gradients"),
        ({"page_table": None, "kv_starts": LENS}, "page_table None"),
    ],
)
def test_refused_by_name(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "q": Q,
        "k": torch.zeros(3, 4, KV_HEADS, DIM),
        "v": torch.zeros(3, 4, KV_HEADS, DIM),
    }
    given |= {
        "page_table": torch.zeros(3, 4, dtype=torch.int32),
        "kv_lens": LENS,
        "causal": True,
        **changes,
    }
    with pytest.raises(ordo.Error, match=message):
        ordo.torch.attention(given.pop("q"), given.pop("k"), given.pop("v"), **given)
