"""FlashAttention-2's functions, in the module that some import them from.

The functions with an underscore are below autograd: they compute one pass, and their results have
no gradient. Of the autograd functions there are the names, with apply().
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...torch import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from ...torch._call import Arguments
from .. import _cache, _passes

__all__ = [
    "FlashAttnFunc",
    "FlashAttnKVPackedFunc",
    "FlashAttnQKVPackedFunc",
    "FlashAttnVarlenFunc",
    "FlashAttnVarlenKVPackedFunc",
    "FlashAttnVarlenQKVPackedFunc",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]


# ---- with a cache of keys ----


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """out (batch, row, head, dim); with return_softmax_lse (out, lse). No gradients.

    k_cache and v_cache are (batch, row, kv_head, dim), of which each sequence uses the first
    cache_seqlens rows (None: all); with block_table (batch, pages) they are (page, row, kv_head, dim). k and v, if given, are written behind them, in place, rotated by
    rotary_cos and rotary_sin at their positions, and take part. num_splits changes nothing.
    """
    _passes.refuse(cache_leftpad=cache_leftpad)
    rotary = _cache.rotary_of(rotary_cos, rotary_sin, rotary_interleaved)
    cache = _cache.Cache(
        k_cache, v_cache, k, v, cache_seqlens, cache_batch_idx, rotary, block_table
    )
    arguments = Arguments(causal, window_size, softmax_scale, softcap, slopes=alibi_slopes)
    out, lse = _cache.attend(q, cache, arguments)
    return (out, _passes.infinite(lse)) if return_softmax_lse else out


# ---- below autograd ----


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    return_softmax: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, softmax_lse, S_dmask, rng_state)."""
    window = window_size_left, window_size_right
    arguments = Arguments(causal, window, softmax_scale, softcap, dropout_p, slopes=alibi_slopes)
    out, lse, mask, rng = _passes.forward(q, k, v, arguments, return_softmax)
    return out, _passes.infinite(lse), mask, rng


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    zero_tensors: bool = False,
    num_splits: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, softmax_lse, S_dmask, rng_state) of sequences end to end."""
    _passes.refuse(leftpad_k=leftpad_k)
    if block_table is None:
        _passes.refuse(seqused_k=seqused_k)
    _passes.check_packed(cu_seqlens_q, cu_seqlens_k, seqused_k=seqused_k)
    arguments = Arguments(
        causal, (window_size_left, window_size_right), softmax_scale, softcap, dropout_p,
        slopes=alibi_slopes, cu_q=cu_seqlens_q, cu_kv=cu_seqlens_k, max_q=max_seqlen_q,
        max_kv=max_seqlen_k,
    )  # fmt: skip
    if block_table is not None:
        arguments = _passes.paged(arguments, block_table, seqused_k)
    out, lse, mask, rng = _passes.forward(q, k, v, arguments, return_softmax)
    return out, _passes.infinite(lse), mask, rng


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
) -> Tensor:
    """Writes dq, dk and dv; returns softmax_d, the row sums of dout * out, as softmax_lse is."""
    arguments = Arguments(
        causal, (window_size_left, window_size_right), softmax_scale, softcap, dropout_p,
        slopes=alibi_slopes, rng_state=rng_state,
    )  # fmt: skip
    return _passes.backward(dout, q, k, v, out, softmax_lse, (dq, dk, dv), arguments)


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
    zero_tensors: bool = False,
) -> Tensor:
    """_flash_attn_backward of sequences end to end."""
    _passes.check_packed(cu_seqlens_q, cu_seqlens_k)
    arguments = Arguments(
        causal, (window_size_left, window_size_right), softmax_scale, softcap, dropout_p,
        slopes=alibi_slopes, rng_state=rng_state, cu_q=cu_seqlens_q, cu_kv=cu_seqlens_k,
        max_q=max_seqlen_q, max_kv=max_seqlen_k,
    )  # fmt: skip
    return _passes.backward(dout, q, k, v, out, softmax_lse, (dq, dk, dv), arguments)


# ---- the autograd functions, by name ----


class _Function:
    """apply() calls `function`, positions alone, and `is_grad_enabled` behind them if given."""

    function: Callable[..., Any]

    @classmethod
    def apply(cls, *given: Any) -> Any:
        parameters = inspect.signature(cls.function).parameters.values()
        count = sum(x.kind is x.POSITIONAL_OR_KEYWORD for x in parameters)
        *arguments, enabled = given if len(given) > count else (*given, True)
        with torch.set_grad_enabled(torch.is_grad_enabled() and enabled):
            return cls.function(*arguments)


class FlashAttnFunc(_Function):
    function = staticmethod(flash_attn_func)


class FlashAttnKVPackedFunc(_Function):
    function = staticmethod(flash_attn_kvpacked_func)


class FlashAttnQKVPackedFunc(_Function):
    function = staticmethod(flash_attn_qkvpacked_func)


class FlashAttnVarlenFunc(_Function):
    function = staticmethod(flash_attn_varlen_func)


class FlashAttnVarlenKVPackedFunc(_Function):
    function = staticmethod(flash_attn_varlen_kvpacked_func)


class FlashAttnVarlenQKVPackedFunc(_Function):
    function = staticmethod(flash_attn_varlen_qkvpacked_func)
