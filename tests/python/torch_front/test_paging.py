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
from ordo.torch import _front as f, _pages
from ordo.torch._call import Arguments

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
@pytest.mark.parametrize("gathered", [False, True])
def test_packed_and_dense_queries_have_the_bits_of_training(
    page_rows: int, window: tuple[int, int], gathered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gathered:
        monkeypatch.setattr(_pages, "in_place", lambda *given: False)
    cache = Cache(page_rows, torch.bfloat16, page_rows)
    rows, sink = (3, 1, 3), torch.randn(HEADS)
    ends = [280, 60, 513]  # the window of the first one meets two tiles
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
        wide = cu_k.long(), 1, 400
        out = flash_attn_varlen_func(
            q, cache.k, cache.v, cu_q, *wide, causal=True, block_table=cache.table.long()
        )
        assert torch.equal(out, expected)
        with pytest.raises(ordo.Error, match="cu_seqlens_k None: expected a tensor"):
            flash_attn_varlen_func(q, cache.k, cache.v, cu_q, None, 1, 4, block_table=cache.table)
    used = torch.tensor(ends, dtype=torch.int32)
    out, *_ = fa3._flash_attn_forward(
        q, cache.k, cache.v, cu_seqlens_q=cu_q, seqused_k=used, max_seqlen_q=1, max_seqlen_k=400,
        page_table=cache.table, causal=True,
    )  # fmt: skip
    assert torch.equal(out, expected)
    with pytest.raises(ordo.Error, match="page_table.dtype torch.float32"):
        fa3._flash_attn_forward(
            q, cache.k, cache.v, cu_seqlens_q=cu_q, seqused_k=used, max_seqlen_q=1,
            max_seqlen_k=400, page_table=cache.table + 0.5, causal=True,
        )  # fmt: skip


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


def test_a_page_that_is_not_there_shows_where_numbers_are_not_read() -> None:
    """In a graph, as on a device, nobody looks at a table: rows that see such a page are NaN."""
    cache = Cache(16, torch.float32, 10)
    for b in range(3):
        cache.put(b, 0, LENGTHS[b])
    for x in (cache.k, cache.v):
        x.nan_to_num_()  # whatever page is read in its place has numbers
    q = torch.stack([cache.q[b][LENGTHS[b] - 1 :] for b in range(3)])
    lens = torch.tensor(LENGTHS, dtype=torch.int32)

    def decode(table: Tensor) -> Tensor:
        return ordo.torch.attention(
            q, cache.k, cache.v, causal=True, window=(39, 0), page_table=table, kv_lens=lens
        )[0]

    compiled = torch.compile(decode, backend="aot_eager", fullgraph=True)
    cache.table[1, 4], cache.table[2, 0] = -1, 99  # the window of sequence 2 hides page 0
    with torch.no_grad():
        out = compiled(cache.table.long())
    assert out[1].isnan().all()
    for b in (0, 2):
        assert torch.equal(out[b, 0], cache.train(b, window=(39, 0))[0][-1])


def test_a_dropped_key_shows_where_numbers_are_not_read() -> None:
    """Rows that see one are NaN, also those of which no key is stored, and rows of no sequence are 0."""
    cache = Cache(16, torch.float32, 12)
    for b in range(3):
        cache.put(b, 0, LENGTHS[b])
    lens, cu_q = torch.tensor(LENGTHS, dtype=torch.int32), torch.tensor([0, 40, 41, 44], dtype=torch.int32)
    q = torch.cat([cache.q[0][-40:], cache.q[1][-1:], cache.q[2][-3:], cache.q[2][-1:]])

    def sample(starts: Tensor) -> tuple[Tensor, Tensor]:
        return ordo.torch.attention(
            q, cache.k, cache.v, causal=True, window=(9, 0), cu_q=cu_q, max_q=40,
            page_table=cache.table, kv_lens=lens, kv_starts=starts,
        )  # fmt: skip

    compiled = torch.compile(sample, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        o, lse = compiled(torch.tensor([290, 77, 513], dtype=torch.int32))
    expected, expected_lse = cache.train(0, window=(9, 0))
    assert torch.equal(o[39], expected[-1]) and torch.equal(lse[:, 39], expected_lse[:, -1])
    assert not o[44:].any() and (lse[:, 44:] == -torch.inf).all()
    broken = [x for x in range(44) if x != 39]
    assert o[broken].isnan().all() and lse[:, broken].isnan().all()


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("page", [-1, 5])
def test_a_cache_is_not_written_where_its_table_is_wrong(page: int, graph: bool) -> None:
    k = torch.zeros(6, 4, KV_HEADS, DIM)
    new = torch.ones(2, 1, KV_HEADS, DIM)
    table = torch.tensor([[0, page], [1, 5]], dtype=torch.int32)

    def grow(table: Tensor) -> Any:
        return fa3.flash_attn_with_kvcache(
            new.repeat(1, 1, 2, 1), k, k, new, new, cache_seqlens=6, page_table=table
        )

    message = "each once" if page == 5 else "row of page_table -2" if graph else r"\[0\]\[1\] -1"
    with pytest.raises(ordo.Error, match=message):
        torch.compile(grow, backend="aot_eager", disable=not graph)(table)
    assert not k.any()


Q = torch.zeros(3, 1, HEADS, DIM)
LENS = torch.tensor([5, 6, 7], dtype=torch.int32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_lens": None}, "kv_lens None: expected a tensor"),
        ({"page_table": torch.zeros(3, 4)}, "page_table.dtype torch.float32"),
        ({"page_table": torch.full((3, 4), 2**32)}, r"page_table\[0\]\[0\] 2147483647: expected"),
        ({"page_table": [[0]]}, r"page_table \[\[0\]\]: expected a tensor"),
        ({"k": torch.zeros(3, 4, KV_HEADS, DIM, dtype=torch.int32)}, "k.dtype torch.int32"),
        (
            {"page_table": torch.full((3, 4), 99, dtype=torch.int32)},
            r"page_table\[0\]\[0\] 99: expected 0..2",
        ),
        ({"kv_lens": LENS + 99}, r"kv_lens\[0\] 104: expected 0..16"),
        ({"kv_starts": LENS + 1}, r"kv_starts\[0\] 6: expected 0..5"),
        ({"kv_starts": LENS}, r"kv_starts\[0\] 5: expected no more than"),
        (
            {"kv_starts": LENS - 1, "window": (0, 0), "causal": "top-left"},
            "kv_starts given: expected None with causal 'top-left'",
        ),
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


def test_ats_operator_takes_tables() -> None:
    from ordo.torch import _sdpa

    cache, cu_q = Cache(16, torch.bfloat16, 9), torch.tensor([0, 1, 2, 3], dtype=torch.int32)
    ends = [300, 77, 400]
    for b in range(3):
        cache.put(b, 0, ends[b])
    q = torch.stack([cache.q[b][ends[b] - 1] for b in range(3)])
    used = torch.tensor(ends, dtype=torch.int32)
    given = (q, cache.k, cache.v, cu_q, None, 1, 400, 0.0, True, False)
    out, lse, *_ = _sdpa._flash_forward(*given, seqused_k=used, block_table=cache.table)
    for b in range(3):
        o, one = cache.train(b)
        assert torch.equal(out[b], o[ends[b] - 1]) and torch.equal(lse[:, b], one[:, ends[b] - 1])
    with pytest.raises(RuntimeError, match="dropout_p given, block_table given"):
        _sdpa._flash_forward(*given[:7], 0.1, True, False, seqused_k=used, block_table=cache.table)


@pytest.mark.parametrize("window", [(-1, -1), (60, 0)])
def test_pages_in_place_and_gathered(window: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(16, torch.bfloat16, 9)
    for b in range(3):
        cache.put(b, 0, LENGTHS[b])
    rules: dict[str, Any] = dict(
        causal=True, window=window, page_table=cache.table, kv_lens=torch.tensor(LENGTHS),
        softcap=3.0, slopes=torch.rand(3, HEADS), sink=torch.randn(HEADS),
    )  # fmt: skip
    q = torch.stack([x[-2:] for x in cache.q])
    gathered: list[int] = []
    gather = _pages.Pages.gather
    monkeypatch.setattr(_pages.Pages, "gather", lambda *given: gathered.append(1) or gather(*given))
    o, lse = ordo.torch.attention(q, cache.k, cache.v, **rules)
    assert not gathered
    strange = torch.empty(cache.k.shape, dtype=cache.k.dtype).transpose(1, 3).contiguous().transpose(1, 3)
    strange.copy_(cache.k)  # its last axis is not contiguous
    o2, lse2 = ordo.torch.attention(q, strange, cache.v, **rules)
    assert gathered and torch.equal(o, o2) and torch.equal(lse, lse2)


def test_lists_of_any_strides() -> None:
    cache = Cache(16, torch.bfloat16, 9)
    for b in range(3):
        cache.put(b, 0, LENGTHS[b])
    q = torch.stack([x[-2:] for x in cache.q])
    table = torch.nn.functional.pad(cache.table, (0, 5), value=-1)[:, : cache.columns]
    lens = torch.tensor(LENGTHS).int().repeat_interleave(2)[::2]
    starts = torch.zeros(3, dtype=torch.int32)
    assert not table.is_contiguous() and not lens.is_contiguous()
    rules: dict[str, Any] = dict(causal=True, window=(60, 0), kv_starts=starts)
    o, lse = ordo.torch.attention(q, cache.k, cache.v, page_table=table, kv_lens=lens, **rules)
    for b in range(3):
        expected, expected_lse = cache.train(b, window=(60, 0))
        assert torch.equal(o[b], expected[-2:]) and torch.equal(lse[b], expected_lse[:, -2:])


FLAGS = f.CU_Q | f.KV_LENS | f.PAGES


@pytest.mark.parametrize(
    ("flags", "changes", "message"),
    [
        (FLAGS & ~f.KV_LENS, {}, "expected cu_q, kv_lens and no other than"),
        (FLAGS & ~f.CU_Q, {}, "expected cu_q, kv_lens and no other than"),
        (FLAGS | f.CU_KV, {}, "expected cu_q, kv_lens and no other than"),
        (FLAGS | f.HEADS_FIRST, {}, "expected cu_q, kv_lens and no other than"),
        (f.STARTS, {"q": Q}, "kv_starts given, page_table None"),
        (FLAGS | f.STARTS, {"kv_starts": LENS[:2]}, r"kv_starts.shape \(2,\): expected \(3,\)"),
        (FLAGS, {"page_table": LENS[:, None].expand(3, 4)}, "page_table.stride .*: expected a contiguous"),
        (FLAGS, {"page_table": LENS[:2, None]}, r"page_table.shape \(2, 1\): expected \(3, 1\)"),
        (FLAGS, {"k": Q[0]}, r"k.shape .*: expected \(page, row, head, dim\) with page_table"),
        (FLAGS, {"k": torch.zeros(3, 4, DIM, KV_HEADS).mT}, "k.stride .*: expected a contiguous last axis"),
        (FLAGS, {"v": torch.zeros(3, 5, KV_HEADS, DIM)}, "v.shape"),
    ],
)
def test_the_operator_refuses_by_name(flags: int, changes: dict[str, Any], message: str) -> None:
    lists = {
        f.CU_Q: ("cu_q", torch.tensor([0, 1, 2, 3], dtype=torch.int32)), f.CU_KV: ("cu_kv", LENS),
        f.KV_LENS: ("kv_lens", LENS), f.PAGES: ("page_table", torch.zeros(3, 4, dtype=torch.int32)),
        f.STARTS: ("kv_starts", LENS),
    }  # fmt: skip
    k = torch.zeros(3, 4, KV_HEADS, DIM)
    given: dict[str, Any] = {"q": Q[:, 0], "k": k, "v": k, **changes}
    more = [given.get(name, x) for flag, (name, x) in lists.items() if flags & flag]
    sizes = (-1, -1, 1, 16, *[0] * 7)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.ordo.forward(given["q"], given["k"], given["v"], flags, 1.0, more, 0.0, 0.0, sizes)


def test_rows_that_see_what_is_not_stored() -> None:
    lens, starts = torch.tensor([10, 7], dtype=torch.int32), torch.tensor([5, 4], dtype=torch.int32)
    table = torch.zeros(2, 10, dtype=torch.int32)
    pages = _pages.Pages(Q[0], Q, Q, table, lens, starts)
    ends = torch.tensor([0, 3, 5], dtype=torch.int32)
    for left, expected in ((3, [1, 0, 0, 1, 1]), (-1, [1, 1, 1, 1, 1]), (2, [0, 0, 0, 1, 0])):
        sees = _pages._sees_dropped(pages, Arguments(True, (left, 0), cu_q=ends), 5)
        assert sees.tolist() == [bool(x) for x in expected]


@pytest.mark.parametrize("window", [None, 40])
def test_continuous_batching_of_transformers(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    import ordo.transformers
    from transformers.generation.continuous_batching import cache as their_cache

    monkeypatch.setattr(  # which is 0 on a CPU without psutil
        their_cache.PagedAttentionMemoryHandler, "get_available_memory", lambda self: 10**9
    )
    ordo.transformers.register()
    seen: list[list[tuple[Tensor, ...]]] = [[], []]

    def watched(
        module: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **kwargs: Any
    ) -> Any:
        ends = kwargs["cu_seq_lens_q"]
        out = ordo._transformers_paged.paged_forward(module, query, key, value, *rest, **kwargs)
        real = slice(0, int(ends[1]))  # rows of the one sequence
        found = (
            query[0, :, real],
            key[0, :, real],
            value[0, :, real],
            out[0][0, real].transpose(0, 1),
        )
        seen[module.layer_idx].append(tuple(x.clone() for x in found))
        return out

    transformers.AttentionInterface.register("paged|ordo", watched)
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=window,
    )  # fmt: skip
    model = transformers.MistralForCausalLM(config).to(torch.bfloat16).eval()
    model.set_attn_implementation("ordo")  # for which "paged|ordo" samples
    try:
        made = model.generate_batch(
            [torch.randint(3, 99, (300,)).tolist()],
            generation_config=transformers.GenerationConfig(max_new_tokens=9, do_sample=False, eos_token_id=-1),
            continuous_batching_config=transformers.ContinuousBatchingConfig(
                num_blocks=40, block_size=16, max_batch_tokens=64
            ),
            warmup=False,
        )  # fmt: skip
    finally:
        ordo.transformers.register()
    assert [len(x.generated_tokens) for x in made.values()] == [9]
    for layer in seen:
        assert len(layer) > 9  # chunks of the prompt, and each token
        q, k, v, expected = (torch.cat(parts, 1).transpose(0, 1) for parts in zip(*layer))
        sides = (-1, -1) if window is None else (window - 1, 0)
        scale = model.model.layers[0].self_attn.scaling
        o, _ = ordo.torch.attention(
            q[None], k[None], v[None], causal=True, window=sides, scale=scale
        )
        assert torch.equal(o[0], expected)
    assert model.config._attn_implementation == "ordo"  # again: the next step trains
    with pytest.raises(AttributeError):
        model.generate_batch([[5, 6]], generation_config=object())
    assert model.config._attn_implementation == "ordo"
    with pytest.raises(ordo.Error, match="without a paged cache"):
        model.set_attn_implementation("paged|ordo")
        model(torch.tensor([[5, 6]]))
    with pytest.raises(ordo.Error, match="dropout 0.1 with a paged cache: expected 0"):
        lens: dict[str, Any] = {"cu_seq_lens_q": LENS, "cu_seq_lens_k": LENS}
        ordo._transformers_paged.paged_forward(model, Q, Q, Q, None, 0.1, cache=model, **lens)
