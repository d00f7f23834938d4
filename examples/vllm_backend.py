"""vLLM samples with the attention bits of training: ordo as its attention backend CUSTOM.

PYTHONPATH=python:examples python3 program.py       (not run on a GPU; see docs/guide/sampling.md)

    import vllm, vllm_backend

    vllm_backend.register()
    llm = vllm.LLM(model, attention_backend="CUSTOM")

The engine may run in other processes, which have to call register(), too: VLLM_ENABLE_V1_MULTIPROCESSING=0
keeps it in this one, and an entry point of the group vllm.general_plugins is called in all of them.

Keys and values are read where the engine's pages lie, in any of its layouts. A row of attention has the
bits that it has in ordo.torch.attention(q, k, v, causal=True, ...) over the whole sequence, whatever the
batch, the chunks of the prompt and the pages. Linear layers, norms and the sampler are the engine's: see
docs/guide/sampling.md for what else breaks equality. What the engine may ask for and would have other
bits, or is not there, is refused by name: partial softmaxes merged by lse (cascade attention, context
parallelism over decode), caches of 8 bits, attention of encoders, outputs with a scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import vllm
from ordo.torch import attention
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.kv_cache_interface import is_quantized_kv_cache

TESTED = "0.32", "0.33"  # the interface of backends is not a stable one


def register(in_place_of: AttentionBackendEnum = AttentionBackendEnum.CUSTOM) -> None:
    """Make ordo the backend of that name. vLLM on a CPU knows one only, CPU_ATTN."""
    if ".".join(vllm.__version__.split(".")[:2]) not in TESTED:
        raise RuntimeError(f"vllm {vllm.__version__}: expected {' or '.join(TESTED)}, which were tested")
    register_backend(in_place_of, f"{OrdoBackend.__module__}.{OrdoBackend.__qualname__}")


class OrdoBackend(AttentionBackend):
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[OrdoImpl]:
        return OrdoImpl

    @staticmethod
    def get_builder_cls() -> type[OrdoBuilder]:
        return OrdoBuilder

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size <= 256 and head_size % 8 == 0

    @classmethod
    def supports_compute_capability(cls, capability) -> bool:
        return capability.major == 9

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True


@dataclass
class OrdoMetadata(AttentionMetadata):
    """One batch. No number is read on the host: a CUDA graph may find other lengths and tables."""

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor


class OrdoBuilder(AttentionMetadataBuilder[OrdoMetadata]):
    _cudagraph_support = AttentionCGSupport.ALWAYS

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> OrdoMetadata:
        common = common_attn_metadata
        if common_prefix_len:
            refuse("cascade attention", f"a common prefix of {common_prefix_len} tokens")
        if common.causal is not True:
            refuse("attention that is not causal")
        for name, what in (
            ("dcp_local_seq_lens", "context parallelism"),
            ("encoder_seq_lens", "attention of an encoder"),
            ("mm_req_doc_ranges", "ranges of tokens that see each other both ways"),
            ("rswa_prefix_lens", "a window with a prefix that all rows see"),
        ):
            if getattr(common, name) is not None:
                refuse(what, f"{name} given")
        return OrdoMetadata(
            common.num_actual_tokens, common.max_query_len, common.query_start_loc, common.seq_lens,
            common.block_table_tensor, common.slot_mapping,
        )  # fmt: skip


class OrdoImpl(AttentionImpl[OrdoMetadata]):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        if attn_type != AttentionType.DECODER:
            refuse("attention of an encoder", f"attn_type {attn_type}")
        if is_quantized_kv_cache(kv_cache_dtype):
            refuse("caches of 8 bits and less", f"kv_cache_dtype {kv_cache_dtype}")
        if self.dcp_world_size > 1 or self.pcp_world_size > 1:
            refuse("context parallelism", f"{self.dcp_world_size} x {self.pcp_world_size} ranks")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.left = -1 if sliding_window is None else sliding_window - 1  # keys before a row's own
        self.softcap, self.sinks = logits_soft_cap or 0.0, sinks
        self.slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)

    def pages(self, kv_cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """k and v, (page, row, head, dim), of the engine's (page, head, row, k's dim and v's)."""
        return kv_cache.transpose(1, 2).split(self.head_size, dim=-1)

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping) -> None:
        """Store the rows of this batch; those of a padded one have slot -1, and go to page 0, the engine's
        page of nothing."""
        rows = slot_mapping.shape[0]
        k, v = self.pages(kv_cache)
        page, row = (slot_mapping.clamp(min=0) // k.shape[1]), slot_mapping.clamp(min=0) % k.shape[1]
        k[page, row], v[page, row] = key[:rows], value[:rows]

    @torch.no_grad()
    def forward(
        self,
        layer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: OrdoMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if output_scale is not None or output_block_scale is not None:
            refuse("outputs with a scale")
        if attn_metadata is None:  # the engine measures its memory
            return output.fill_(0)
        a, starts = attn_metadata, None
        if self.left >= 0:  # the engine gives pages back that no row's window reaches any more
            starts = (a.seq_lens - a.query_start_loc.diff() - self.left).clamp(min=0)
        k, v = self.pages(kv_cache)
        o, _ = attention(
            query[: a.num_actual_tokens], k, v, causal=True, window=(self.left, -1), scale=self.scale,
            softcap=self.softcap, slopes=self.slopes, sink=self.sinks, cu_q=a.query_start_loc,
            max_q=a.max_query_len, page_table=a.block_table, kv_lens=a.seq_lens, kv_starts=starts,
        )  # fmt: skip
        output[: a.num_actual_tokens] = o
        return output


def refuse(what: str, given: str = "") -> None:
    why = f" ({given})" if given else ""
    raise NotImplementedError(f"ordo's backend of vLLM does not support {what}{why}")
