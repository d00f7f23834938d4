"""FlashAttention-3's functions (module flash_attn_interface): no dropout, (out, lse) on request.

num_splits, pack_gqa, sm_margin and deterministic are accepted and change nothing: no bit depends
on how the work is cut. An empty row's lse is -inf here, +inf in FlashAttention-2.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .._library import Error
from ..torch._attention import Arguments, call

__all__ = [
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
]

Window = tuple[int, int]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """out (batch, row, head, dim); with return_attn_probs (out, lse)."""
    _refuse(qv, q_descale, k_descale, v_descale, attention_chunk)
    arguments = Arguments(causal, window_size, softmax_scale, softcap)
    out, lse = call(q, k, v, arguments)
    return (out, lse.detach()) if return_attn_probs else out


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """qkv (batch, row, 3, head, dim), or (batch, row, all heads, dim) with num_heads_q."""
    if qkv.dim() == 5:
        q, k, v = qkv.unbind(2)
    elif num_heads_q is None:
        raise Error("argument", "num_heads_q None: expected the query heads of a 4-axis qkv")
    else:
        others = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, others, others], dim=2)
    return flash_attn_func(
        q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size,
        attention_chunk, softcap, return_attn_probs=return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """out (row, head, dim) of sequences end to end; with return_attn_probs (out, lse).

    seqused_q and seqused_k say how many rows of each sequence are used, its first ones; the other
    rows have out = 0, lse = -inf and no gradient. They cost a copy of the tensors and no wait; on
    the CPU lengths that repeat cu_seqlens cost nothing.
    """
    _refuse(qv, q_descale, k_descale, v_descale, attention_chunk)
    arguments = Arguments(
        causal, window_size, softmax_scale, softcap, cu_q=cu_seqlens_q, cu_kv=cu_seqlens_k,
        max_q=max_seqlen_q, max_kv=max_seqlen_k, q_lens=seqused_q, kv_lens=seqused_k,
    )  # fmt: skip
    out, lse = call(q, k, v, arguments)
    return (out, lse.detach()) if return_attn_probs else out


def flash_attn_with_kvcache(*args: Any, **kwargs: Any) -> Any:
    """Refused: it is for inference."""
    raise Error("unsupported", "flash_attn_with_kvcache: a cache of keys is not supported")


def _refuse(qv: Any, q_descale: Any, k_descale: Any, v_descale: Any, attention_chunk: int) -> None:
    for name, given in (
        ("qv", qv),
        ("q_descale", q_descale),
        ("k_descale", k_descale),
        ("v_descale", v_descale),
        ("attention_chunk", attention_chunk or None),
    ):
        if given is not None:
            raise Error("unsupported", f"{name} given: not supported")
