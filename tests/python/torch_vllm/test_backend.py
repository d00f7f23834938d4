"""examples/vllm_backend.py on vLLM's own classes, and in its engine on a CPU: rows have the bits of training."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

import ordo.torch

vllm = pytest.importorskip(
    "vllm", reason="vLLM is not installed: `tests/python/run --vllm` makes an environment with it"
)
import vllm_backend  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402
from vllm.v1.attention.backend import AttentionCGSupport, CommonAttentionMetadata  # noqa: E402
from vllm.v1.attention.backends import registry  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheTensor,
    SlidingWindowSpec,
    compute_layout_strides,
    create_kv_cache_views,
)
from vllm.v1.kv_cache_layout import KVCacheLayout  # noqa: E402

HEADS, KV_HEADS, DIM = 6, 2, 32
LENGTHS = 300, 77, 513
PAGES = 300


def ints(numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


class Engine:
    """Two layers' caches in a layout of the engine, tables of pages, and batches of chunks."""

    def __init__(self, layout: KVCacheLayout, block: int, window: int | None, **rules: Any) -> None:
        shape: dict[str, Any] = dict(
            block_size=block, num_kv_heads=KV_HEADS, head_size=DIM, dtype=torch.bfloat16
        )
        spec = SlidingWindowSpec(**shape, sliding_window=window) if window else FullAttentionSpec(**shape)
        layers, size = ["first", "second"], 2 * PAGES * spec.page_size_bytes
        of_layer, of_block, *_ = compute_layout_strides(spec, PAGES, len(layers), layout)
        memory = torch.full((size // 2,), torch.nan, dtype=torch.bfloat16).view(torch.int8)
        place = KVCacheTensor(size, layers, of_layer, of_block)
        self.cache = create_kv_cache_views(memory, spec, PAGES, layout, place)[1]
        assert self.cache.shape == (PAGES, KV_HEADS, block, 2 * DIM)
        backend = registry.AttentionBackendEnum.CUSTOM.get_class()
        self.builder = backend.get_builder_cls()(spec, layers, None, torch.device("cpu"))
        self.impl = backend.get_impl_cls()(
            HEADS, DIM, 0.2, KV_HEADS, rules.get("slopes"), window, "auto", rules.get("softcap"),
            sinks=rules.get("sinks"),
        )  # fmt: skip
        self.block, self.window = block, window
        self.free = random.sample(range(1, PAGES), PAGES - 1)  # page 0 is the engine's page of nothing
        self.tables = [[0] * -(-max(LENGTHS) // block) for _ in LENGTHS]
        self.done = [0] * len(LENGTHS)

    def common(self, counts: list[int], padding: int = 0) -> CommonAttentionMetadata:
        """Metadata of a batch that computes so many more tokens of each sequence, padded by some."""
        slots = []
        for table, done, count in zip(self.tables, self.done, counts):
            if self.window:  # as the engine: pages that no row sees any more are given back
                for x in range(max(done + 1 - self.window, 0) // self.block):
                    self.free += [table[x]] if table[x] > 0 else []
                    table[x] = -1  # the engine says 0; this number is refused where it is not dropped
            for place in range(done, done + count):
                if not table[place // self.block]:
                    table[place // self.block] = self.free.pop()
                slots.append(table[place // self.block] * self.block + place % self.block)
        starts = ints([0, *counts, *[0] * padding]).cumsum(0, dtype=torch.int32)
        lengths = [done + count for done, count in zip(self.done, counts)]
        width = len(self.tables[0])
        return CommonAttentionMetadata(
            query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=ints(lengths + [0] * padding),
            num_reqs=len(counts) + padding, num_actual_tokens=len(slots), max_query_len=max(counts),
            max_seq_len=max(lengths), block_table_tensor=ints(self.tables + [[0] * width] * padding),
            slot_mapping=torch.tensor(slots + [-1] * padding),
        )  # fmt: skip

    def step(self, q: list[Tensor], k: list[Tensor], v: list[Tensor], counts: list[int]) -> list[Tensor]:
        """o of the next rows of each sequence."""
        padding = random.choice((0, 3))
        now = [slice(done, done + count) for done, count in zip(self.done, counts)]
        query, key, value = (torch.cat([x[rows] for x, rows in zip(xs, now)]) for xs in (q, k, v))
        metadata = self.builder.build(0, self.common(counts, padding))
        pad = [torch.full((padding, *x.shape[1:]), torch.nan, dtype=x.dtype) for x in (query, key, value)]
        query, key, value = (torch.cat(x) for x in zip((query, key, value), pad))
        self.impl.do_kv_cache_update(None, key, value, self.cache, metadata.slot_mapping)
        output = torch.full_like(query, 7)
        self.impl.forward(None, query, key, value, self.cache, metadata, output)
        assert (output[sum(counts) :] == 7).all()
        self.done = [rows.stop for rows in now]
        return list(output[: sum(counts)].split(counts))


@pytest.fixture(autouse=True)
def registered() -> Any:
    vllm_backend.register()
    yield
    registry.AttentionBackendEnum.CUSTOM.clear_override()


@pytest.mark.parametrize("layout", list(KVCacheLayout))
@pytest.mark.parametrize("window", [None, 60])
@pytest.mark.parametrize("block", [16, 48])
def test_rows_have_the_bits_of_training(layout: KVCacheLayout, window: int | None, block: int) -> None:
    torch.manual_seed(block)
    random.seed(block)
    q, k, v = (
        [torch.randn(n, heads, DIM, dtype=torch.bfloat16) for n in LENGTHS]
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    slopes, sinks = torch.rand(HEADS), torch.randn(HEADS)
    engine = Engine(layout, block, window, slopes=slopes.tolist(), softcap=9.0, sinks=sinks)
    made: list[list[Tensor]] = [[] for _ in LENGTHS]
    while engine.done != list(LENGTHS):
        counts = [min(random.choice((0, 1, 1, 64)), n - d) for n, d in zip(LENGTHS, engine.done)]
        if any(counts):
            for rows, o in zip(made, engine.step(q, k, v, counts)):
                rows.append(o)
    for b in range(len(LENGTHS)):
        x = [x[b][None].requires_grad_() for x in (q, k, v)]
        o, _ = ordo.torch.attention(
            *x, causal=True, scale=0.2, softcap=9.0, slopes=slopes, sink=sinks,
            window=(window - 1, 0) if window else (-1, -1),
        )  # fmt: skip
        assert o.requires_grad and torch.equal(torch.cat(made[b]), o[0])


# ---- what the engine asks before it runs ----

ASKED: dict[str, Any] = dict(
    head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16, use_mla=False, has_sink=True,
    use_sparse=False, use_mm_prefix=False, use_per_head_quant_scales=False, attn_type="decoder",
    device_capability=DeviceCapability(9, 0), has_sliding_window=True, use_batch_invariant=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"block_size": 17, "kv_cache_dtype": "bfloat16"}, None),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype not supported"),
        ({"attn_type": "encoder_only"}, "attention type encoder_only not supported"),
        ({"use_dcp": True}, "DCP not supported"),
        ({"use_pcp": True}, "PCP not supported"),
        ({"use_mla": True}, "MLA not supported"),
        ({"use_non_causal": True}, "non-causal attention not supported"),
        ({"use_rswa": True}, "R-SWA not supported"),
        ({"use_mm_prefix": True}, "partial multimodal token full attention not supported"),
        ({"use_per_head_quant_scales": True}, "per-head quant scales not supported"),
        ({"dtype": torch.float32}, "dtype not supported"),
        ({"head_size": 512}, "head_size not supported"),
        ({"device_capability": DeviceCapability(10, 0)}, "compute capability not supported"),
    ],
)
def test_the_engine_is_told_what_is_not_there(changes: dict[str, Any], reason: str | None) -> None:
    backend = registry.AttentionBackendEnum.CUSTOM.get_class()
    assert registry.AttentionBackendEnum[backend.get_name()] is registry.AttentionBackendEnum.CUSTOM
    assert backend.validate_configuration(**{**ASKED, **changes}) == ([reason] if reason else [])


def test_other_versions_of_the_engine_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "__version__", "0.31.0")
    with pytest.raises(RuntimeError, match="vllm 0.31.0: expected 0.32 or 0.33"):
        vllm_backend.register()


# ---- what would have other bits is refused by name, before anything runs ----


def test_batches_that_are_refused() -> None:
    engine = Engine(KVCacheLayout.LBNHC, 16, None)
    assert engine.builder.get_cudagraph_support(None, None) is AttentionCGSupport.ALWAYS
    common = engine.common([5, 1, 3])
    with pytest.raises(NotImplementedError, match="cascade attention .a common prefix of 64 tokens"):
        engine.builder.build(64, common)
    for field, given, what in (
        ("dcp_local_seq_lens", common.seq_lens, "context parallelism"),
        ("encoder_seq_lens", common.seq_lens, "attention of an encoder"),
        ("mm_req_doc_ranges", {0: [(0, 3)]}, "ranges of tokens"),
        ("rswa_prefix_lens", common.seq_lens, "a window with a prefix"),
        ("causal", False, "attention that is not causal"),
        ("causal", common.seq_lens > 0, "attention that is not causal"),
    ):
        with pytest.raises(NotImplementedError, match=f"does not support {what}"):
            engine.builder.build(0, common.replace(**{field: given}))
    metadata, x = engine.builder.build(0, common), torch.ones(9, HEADS, DIM, dtype=torch.bfloat16)
    for scales in ({"output_scale": x}, {"output_block_scale": x}):
        with pytest.raises(NotImplementedError, match="does not support outputs with a scale"):
            engine.impl.forward(None, x, x, x, engine.cache, metadata, x, **scales)
    assert not engine.impl.forward(None, x, x, x, engine.cache, None, x.clone()).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_cache_dtype": "fp8"}, "caches of 8 bits and less .kv_cache_dtype fp8"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "caches of 8 bits and less"),
        ({"attn_type": "encoder"}, "attention of an encoder .attn_type encoder"),
        ({"attn_type": "encoder_only"}, "attention of an encoder"),
        ({"attn_type": "encoder_decoder"}, "attention of an encoder"),
    ],
)
def test_layers_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NotImplementedError, match=f"does not support {message}"):
        vllm_backend.OrdoImpl(HEADS, DIM, 0.2, KV_HEADS, **changes)


@pytest.mark.parametrize("ranks", ["dcp_world_size", "pcp_world_size"])
def test_context_parallelism_is_refused(ranks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new = vllm_backend.AttentionImpl.__new__

    def among_two(cls: type, *given: Any, **more: Any) -> Any:
        made = new(cls)
        setattr(made, ranks, 2)
        return made

    monkeypatch.setattr(vllm_backend.OrdoImpl, "__new__", among_two)
    with pytest.raises(NotImplementedError, match="does not support context parallelism"):
        vllm_backend.OrdoImpl(HEADS, DIM, 0.2, KV_HEADS)
