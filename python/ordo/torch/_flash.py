"""FlashAttention-2's functions, in its argument order and with its names and meaning.

Beyond it: any float type the backend has, CPU tensors, softcap with dropout, and seed, rng_state and
generator as in ordo.torch.attention. `deterministic` changes nothing: there is no other mode.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._library import Error
from ._attention import run_inputs
from ._call import Arguments, known_call
from ._kept import signed_probabilities
from ._node import eager

Seed = int | Sequence[int] | None
Window = tuple[int, int]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    seed: Seed = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Any:
    """out (batch, row, head, dim); with return_attn_probs (out, lse, S_dmask).

    lse is float32, (batch, head, row), +inf for a row without visible key. S_dmask is (batch, head,
    row, column), rows and columns filled up to multiples of 128: exp(score - the largest of the
    row), with the sign set where dropped; it is empty without dropout.
    """
    if (
        alibi_slopes is None and seed is None and rng_state is None and generator is None
        and not return_attn_probs and type(dropout_p) in (float, int)
    ):  # fmt: skip
        rules = causal, window_size, softmax_scale, softcap, dropout_p, "ordo", None
        known = known_call(q, k, v, rules)
        if known is not None:
            return eager(*known)[0]
    arguments = Arguments(
        causal, window_size, softmax_scale, softcap, dropout_p, seed=seed, rng_state=rng_state,
        generator=generator, slopes=alibi_slopes,
    )  # fmt: skip
    return _finish(q, k, v, arguments, return_attn_probs)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    *,
    seed: Seed = None,
    rng_state: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Any:
    """out (row, head, dim) of sequences end to end; lse is (head, row).

    cu_seqlens_q and cu_seqlens_k are batch + 1 ends, int32, from 0. With block_table (batch, pages)
    k and v are (page, row, kv_head, dim); there are then no gradients.
    """
    arguments = Arguments(
        causal, window_size, softmax_scale, softcap, dropout_p, seed=seed, rng_state=rng_state,
        generator=generator, slopes=alibi_slopes, cu_q=cu_seqlens_q, cu_kv=cu_seqlens_k, max_q=max_seqlen_q,
        max_kv=max_seqlen_k,
    )  # fmt: skip
    if block_table is not None:
        if cu_seqlens_k is None:
            raise Error("argument", "cu_seqlens_k None: expected a tensor beside block_table")
        arguments = arguments._replace(cu_kv=None, kv_lens=cu_seqlens_k.diff(), page_table=block_table)
    return _finish(q, k, v, arguments, return_attn_probs)


def _finish(q: Tensor, k: Tensor, v: Tensor, arguments: Arguments, all_three: bool) -> Any:
    out, lse, inputs = run_inputs(q, k, v, arguments, all_three)
    if not all_three:
        return out
    with torch.no_grad():
        return out, torch.where(lse == -math.inf, math.inf, lse), signed_probabilities(*inputs)


# ---- packed tensors ----


def _parts(name: str, packed: Tensor, count: int, axes: int) -> tuple[Tensor, ...]:
    """The tensors packed along the axis before (head, dim); their gradients are packed again."""
    if packed.dim() != axes or packed.shape[-3] != count:
        raise Error(
            "shape", f"{name}.shape {tuple(packed.shape)}: expected {axes} axes, {count} at -3"
        )
    parts: tuple[Tensor, ...] = packed.unbind(-3)
    return parts


def _like(function: Any, places: int) -> Any:
    """Decorator: shows the parameters of `function` but the first `places` behind the own ones."""

    def decorate(packed: Any) -> Any:
        own = [x for x in inspect.signature(packed).parameters.values() if x.kind is x.POSITIONAL_OR_KEYWORD]
        rest = list(inspect.signature(function).parameters.values())[places:]
        rest = [x for x in rest if x.name != "block_table"]
        packed.__signature__ = inspect.Signature(own + rest)
        return packed

    return decorate


@_like(flash_attn_func, 3)
def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *rest: Any, **named: Any) -> Any:
    """flash_attn_func with kv (batch, row, 2, kv_head, dim)."""
    return flash_attn_func(q, *_parts("kv", kv, 2, 5), *rest, **named)


@_like(flash_attn_func, 3)
def flash_attn_qkvpacked_func(qkv: Tensor, *rest: Any, **named: Any) -> Any:
    """flash_attn_func with qkv (batch, row, 3, head, dim)."""
    return flash_attn_func(*_parts("qkv", qkv, 3, 5), *rest, **named)


@_like(flash_attn_varlen_func, 3)
def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *rest: Any, **named: Any) -> Any:
    """flash_attn_varlen_func with kv (row, 2, kv_head, dim)."""
    return flash_attn_varlen_func(q, *_parts("kv", kv, 2, 4), *rest, **named)


@_like(flash_attn_varlen_func, 7)
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *rest: Any, **named: Any
) -> Any:
    """flash_attn_varlen_func with qkv (row, 3, head, dim)."""
    ends: tuple[Any, ...] = cu_seqlens, cu_seqlens, max_seqlen, max_seqlen
    given: Any = *_parts("qkv", qkv, 3, 4), *ends, *rest
    return flash_attn_varlen_func(*given, **named)
