"""FlashAttention-3's functions (module flash_attn_interface): no dropout, (out, lse) on request.

num_splits, pack_gqa, sm_margin and deterministic are accepted and change nothing: no bit depends
on how the work is cut. An empty row's lse is -inf here, +inf in FlashAttention-2.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .._blocks import BlockMask
from .._library import Error
from ..torch._attention import call
from ..torch._blocks import block_mask
from ..torch._call import Arguments
from ..torch._flash import _parts
from . import _cache, _combine, _passes

__all__ = [
    "FlashAttnFunc",
    "FlashAttnQKVPackedFunc",
    "FlashAttnVarlenFunc",
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
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
    """out (batch, row, head, dim); with return_attn_probs (out, lse).

    With attention_chunk a row sees the keys of its own chunk of so many, where the last row belongs to
    the last key. It breaks a graph.
    """
    _refuse(qv, q_descale, k_descale, v_descale)
    arguments = Arguments(causal, window_size, softmax_scale, softcap)
    if attention_chunk:
        chunks = _mask_of_chunks(q, q.shape[1], k.shape[1], attention_chunk)
        arguments = arguments._replace(block_mask=chunks)
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
    if qkv.dim() != 4:
        q, k, v = _parts("qkv", qkv, 3, 5)
    elif num_heads_q is None:
        raise Error("argument", "num_heads_q None: expected the query heads of a 4-axis qkv")
    else:
        others, odd = divmod(qkv.shape[2] - num_heads_q, 2)
        if odd or others < 1:
            raise Error(
                "shape", f"num_heads_q {num_heads_q}: expected so many of {qkv.shape[2]} heads "
                "that the others are k and v",
            )  # fmt: skip
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
    the CPU lengths that repeat cu_seqlens cost nothing. attention_chunk is as in flash_attn_func; it
    needs keys with the ends and lengths of the rows: the same tensors.
    """
    _refuse(qv, q_descale, k_descale, v_descale)
    _passes.check_packed(cu_seqlens_q, cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k)
    arguments = Arguments(
        causal, window_size, softmax_scale, softcap, cu_q=cu_seqlens_q, cu_kv=cu_seqlens_k,
        max_q=max_seqlen_q, max_kv=max_seqlen_k, q_lens=seqused_q, kv_lens=seqused_k,
    )  # fmt: skip
    if attention_chunk:
        if cu_seqlens_q is not cu_seqlens_k or max_seqlen_q != max_seqlen_k or seqused_q is not seqused_k:
            expected = "expected keys with the ends and lengths of the rows"
            raise Error("unsupported", f"attention_chunk {attention_chunk}: {expected}")
        chunks = _mask_of_chunks(q, max_seqlen_q, max_seqlen_k, attention_chunk)
        arguments = arguments._replace(block_mask=chunks)
    out, lse = call(q, k, v, arguments)
    return (out, lse.detach()) if return_attn_probs else out


def flash_attn_combine(
    out_partial: Tensor,
    lse_partial: Tensor,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """(out, lse) over the union of disjoint sets of keys, in float32; parts are added in order.

    out_partial is (part, batch, row, head, dim), lse_partial (part, batch, row, head), as lse is
    without the first axis. `out` is overwritten if given; else it has out_dtype or float32.
    """
    return _combine.combine(out_partial, lse_partial, out, out_dtype)


def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads_q: int,
    num_heads_kv: int,
    headdim: int,
    cache_seqlens: Tensor,
    qkv_dtype: torch.dtype = torch.bfloat16,
    headdim_v: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_size: int | None = None,
    max_seqlen_k_new: int = 0,
    causal: bool = False,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    has_softcap: bool = False,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> None:
    """None: there is nothing to schedule ahead. flash_attn_with_kvcache takes it as it is."""
    return None


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    qv: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_table: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """out (batch, row, head, dim); with return_softmax_lse (out, lse, two empty tensors).

    As ordo.compat.flash_attn.flash_attn_with_kvcache, with rotary_seqlens as the positions of the
    first new keys; with page_table and cu_seqlens_q q may be (row, head, dim). scheduler_metadata changes nothing.
    """
    _refuse(qv, q_descale, k_descale, v_descale, attention_chunk or None)
    _passes.refuse(cache_leftpad=cache_leftpad, cu_seqlens_k_new=cu_seqlens_k_new)
    rotary = _cache.rotary_of(rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens)
    cache = _cache.Cache(
        k_cache, v_cache, k, v, cache_seqlens, cache_batch_idx, rotary, page_table
    )
    arguments = Arguments(
        causal, window_size, softmax_scale, softcap, cu_q=cu_seqlens_q, max_q=max_seqlen_q
    )
    out, lse = _cache.attend(q, cache, arguments)
    return (out, lse, q.new_empty(0), lse.new_empty(0)) if return_softmax_lse else out


# ---- below autograd ----


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    qv: Tensor | None = None,
    out_: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    max_seqlen_q: Any = None,
    max_seqlen_k: Any = None,
    page_table: Tensor | None = None,
    kv_batch_idx: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    seqlens_rotary: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, softmax_lse, two empty tensors); out is out_ if given. No gradient.

    New keys, rotary embeddings and indices are for flash_attn_with_kvcache.
    """
    _refuse(qv, q_descale, k_descale, v_descale, attention_chunk or None)
    _passes.refuse(
        k_new=k_new, v_new=v_new, cu_seqlens_k_new=cu_seqlens_k_new,
        kv_batch_idx=kv_batch_idx, leftpad_k=leftpad_k, rotary_cos=rotary_cos,
        rotary_sin=rotary_sin, seqlens_rotary=seqlens_rotary,
    )  # fmt: skip
    _passes.check_floats(out_=out_)
    expected = *q.shape[:-1], v.shape[-1]
    if out_ is not None and out_.shape != expected:
        raise Error("shape", f"out_.shape {tuple(out_.shape)}: expected {expected}")
    if page_table is not None:
        _passes.refuse(seqused_q=seqused_q)
        _passes.check_integers(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_k=seqused_k)
    else:
        _check_lists(cu_seqlens_q, cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k)
    window = window_size_left, window_size_right
    with torch.no_grad():
        if page_table is not None:
            arguments = Arguments(
                causal, window, softmax_scale, softcap, cu_q=cu_seqlens_q, cu_kv=cu_seqlens_k,
                max_q=max_seqlen_q, max_kv=max_seqlen_k,
            )  # fmt: skip
            out, lse = call(q, k, v, _passes.paged(arguments, page_table, seqused_k))
        elif cu_seqlens_q is not None:
            out, lse = flash_attn_varlen_func(
                q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q,
                seqused_k, softmax_scale, causal, window_size=window, softcap=softcap,
                return_attn_probs=True,
            )  # fmt: skip
        else:
            arguments = Arguments(causal, window, softmax_scale, softcap)
            out, lse = call(q, k, v, arguments._replace(q_lens=seqused_q, kv_lens=seqused_k))
        if out_ is not None:
            out = out_.copy_(out)
        return out, lse, q.new_empty(0), lse.new_empty(0)


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    sequed_q: Tensor | None = None,
    sequed_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dq: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    softmax_scale: float | None = None,
    is_causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    deterministic: bool = False,
    sm_margin: int = 0,
) -> Tensor:
    """Writes dq, dk and dv; returns softmax_d, the row sums of dout * out, as softmax_lse is."""
    _check_lists(cu_seqlens_q, cu_seqlens_k, sequed_q=sequed_q, sequed_k=sequed_k)
    arguments = Arguments(
        is_causal, (window_size_left, window_size_right), softmax_scale, softcap,
        cu_q=cu_seqlens_q, cu_kv=cu_seqlens_k, max_q=max_seqlen_q, max_kv=max_seqlen_k,
        q_lens=sequed_q, kv_lens=sequed_k,
    )  # fmt: skip
    return _passes.backward(dout, q, k, v, out, softmax_lse, (dq, dk, dv), arguments)


# ---- the autograd functions, by name ----


class FlashAttnFunc:
    apply = staticmethod(flash_attn_func)


class FlashAttnQKVPackedFunc:
    apply = staticmethod(flash_attn_qkvpacked_func)


class FlashAttnVarlenFunc:
    @staticmethod
    def apply(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        seqused_q: Tensor | None,
        seqused_k: Tensor | None,
        max_seqlen_q: int,
        max_seqlen_k: int,
        *rest: Any,
    ) -> Any:
        """flash_attn_varlen_func with another order of arguments."""
        return flash_attn_varlen_func(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k,
            *rest,
        )  # fmt: skip


@torch.compiler.disable
def _mask_of_chunks(q: Tensor, rows: int, columns: int, chunk: int) -> BlockMask | None:
    """None where there is nothing to see."""
    if 0 in (rows, columns):
        return None
    return block_mask(_mask_of(rows, columns, chunk), device=q.device)


_mask_of = functools.lru_cache(maxsize=64)(BlockMask.from_chunks)


def _refuse(qv: Any, q_descale: Any, k_descale: Any, v_descale: Any, attention_chunk: Any = None) -> None:
    for name, given in (
        ("qv", qv),
        ("q_descale", q_descale),
        ("k_descale", k_descale),
        ("v_descale", v_descale),
        ("attention_chunk", attention_chunk),
    ):
        if given is not None:
            raise Error("unsupported", f"{name} given: not supported")


def _check_lists(cu_seqlens_q: Any, cu_seqlens_k: Any, **used: Any) -> None:
    """Check the lists of a function that takes dense and packed sequences."""
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        _passes.check_packed(cu_seqlens_q, cu_seqlens_k, **used)
    _passes.check_integers(**used)
