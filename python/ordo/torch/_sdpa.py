"""PyTorch's plug-in point: F.scaled_dot_product_attention on ordo, once the user asks for it.

`register()` makes "ORDO" known; torch.nn.attention.activate_flash_attention_impl("ORDO") puts these
kernels behind aten's flash attention operators, restore_flash_attention_impl() takes them away.
Under torch.use_deterministic_algorithms(True) PyTorch picks those operators by itself.

On CUDA PyTorch's own rules for the flash path come first: no attn_mask, fp16 or bf16. What passes them
and ordo does not have is a RuntimeError that names it, as with PyTorch's other implementations.
On the CPU the function itself is ordo's, with masks, dropout and grouped heads: PyTorch would
send these to a path of many operators. Under sdpa_kernel() without flash attention it is PyTorch's.

Causal masks of unequal lengths: aten's operators on CUDA align them bottom-right, which is how
causal_lower_right() of torch.nn.attention.bias calls them; is_causal=True of the function means
top-left, and gets there with equal lengths only.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.compiler import config as compiler
from torch.nn.attention import register_flash_attention_impl

from .._library import Error
from . import _front as f
from ._attention import attention, run_inputs
from ._call import Arguments, rng_of, rules_of
from ._inputs import DTYPES, Lists, Rules
from ._kept import signed_probabilities
from ._parts import Saved, backward, forward

NAME = "ORDO"


def register() -> None:
    """Make "ORDO" known to PyTorch. Nothing changes until it is activated."""
    register_flash_attention_impl(NAME, register_fn=_Active)


class _Active:
    """Our kernels in place of PyTorch's, until they are removed."""

    def __init__(self) -> None:
        if not _theirs:
            _theirs.append(torch.library.get_kernel(f"aten::{_SDPA}", "CPU"))
        self._tag = compiler.cache_key_tag
        self._libraries = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
            for device, functions in KERNELS.items():
                library = torch.library.Library("aten", "IMPL", device)
                for name, function in functions.items():
                    library.impl(name, function, allow_override=True)
                self._libraries.append(library)
        _forget_graphs(f"{self._tag} ordo")

    def remove(self) -> None:
        for library in self._libraries:
            library._destroy()
        self._libraries = []
        _forget_graphs(self._tag)


def _forget_graphs(tag: str) -> None:
    """Graphs hold what the function on the CPU was when they were made, also those cached on disk."""
    compiler.cache_key_tag = tag
    torch.ops.aten.scaled_dot_product_attention.default._dispatch_cache.clear()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


# ---- aten's operators on CUDA ----


def _described(
    q: Tensor, cu_q: Any = None, cu_k: Any = None, max_q: Any = 0, max_k: Any = 0, rng: Any = None,
    dropout_p: float = 0.0, causal: Any = False, scale: Any = None, window_size_left: Any = None,
    window_size_right: Any = None,
) -> tuple[Lists, Rules]:  # fmt: skip
    longest = (0, 0) if cu_q is None else (max(int(max_q), 1), max(int(max_k), 1))
    a = Arguments(causal, (window_size_left, window_size_right), scale, dropout_p=dropout_p)
    return Lists(rng if dropout_p > 0 else None, cu_q, cu_k), rules_of(a, q.shape[-1], *longest)


def _flash_forward(
    query: Tensor, key: Tensor, value: Tensor, cum_seq_q: Any, cum_seq_k: Any, max_q: Any, max_k: Any,
    dropout_p: float, is_causal: bool, return_debug_mask: bool, *, scale: Any = None,
    seqused_k: Any = None, alibi_slopes: Any = None, block_table: Any = None, num_splits: Any = None,
    flags: int = 0, **window: Any,
) -> tuple[Any, ...]:  # fmt: skip
    if block_table is not None:
        return _flash_paged(
            query, key, value, cum_seq_q, cum_seq_k, max_q, seqused_k, block_table, is_causal, scale,
            dropout_p or None, alibi_slopes, **window,
        )  # fmt: skip
    # aten's backward does not get slopes
    _refuse("block_table None", seqused_k=seqused_k, alibi_slopes=alibi_slopes)
    rng = rng_of(query) if dropout_p > 0 else torch.zeros(2, dtype=torch.int64, device=query.device)
    call = _described(
        query, cum_seq_q, cum_seq_k, max_q, max_k, rng, dropout_p, is_causal, scale, **window
    )
    out, lse = forward(query, key, value, *call, flags | f.LIKE_Q)
    q, k, v = (x.transpose(1, 2) if flags else x for x in (query, key, value))
    debug = signed_probabilities(q, k, v, *call) if return_debug_mask else query.new_empty(0)
    unused = torch.zeros((), dtype=torch.uint64, device=query.device)
    return out, lse, rng.view(torch.uint64), unused, debug


def _flash_paged(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Any, cu_k: Any, max_q: Any, used: Any, table: Tensor,
    is_causal: bool, scale: Any, dropout_p: Any, alibi_slopes: Any, window_size_left: Any = None,
    window_size_right: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Keys in pages, (page, row, head, dim); lengths are seqused_k, or those between cum_seq_k."""
    _refuse("block_table given", dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    if cu_k is None and used is None:
        raise Error("argument", "cum_seq_k and seqused_k None: expected one of them with block_table")
    a = Arguments(
        is_causal, (window_size_left, window_size_right), scale, cu_q=cu_q,
        max_q=None if cu_q is None else int(max_q), kv_lens=cu_k.diff() if used is None else used,
        page_table=table,
    )  # fmt: skip
    with torch.no_grad():
        out, lse = run_inputs(q, k, v, a)[:2]
    rng = torch.zeros(2, dtype=torch.uint64, device=q.device)
    return out, lse, rng, torch.zeros((), dtype=torch.uint64, device=q.device), q.new_empty(0)


def _refuse(beside: str, **given: Any) -> None:
    for name, x in given.items():
        if x is not None:
            raise Error("unsupported", f"{name} given, {beside}: expected None")


def _flash_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    cum_seq_q: Any, cum_seq_k: Any, max_q: Any, max_k: Any, dropout_p: float, is_causal: bool,
    rng_state: Tensor, unused: Tensor, *, scale: Any = None, flags: int = 0, **window: Any,
) -> Any:  # fmt: skip
    call = _described(
        query, cum_seq_q, cum_seq_k, max_q, max_k, rng_state.view(torch.int64), dropout_p, is_causal,
        scale, **window,
    )  # fmt: skip
    rows = Saved(query, out, logsumexp, grad_out, None)
    return backward(rows, key, value, *call, flags | f.LIKE_Q)


def _sdpa_forward(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    out, lse, *rest = _flash_forward(
        query, key, value, None, None, 0, 0, dropout_p, is_causal, return_debug_mask, scale=scale,
        flags=f.HEADS_FIRST,
    )  # fmt: skip
    return out, lse, None, None, query.shape[2], key.shape[2], *rest


_sdpa_backward = functools.partial(_flash_backward, flags=f.HEADS_FIRST)


# ---- and the function itself on the CPU ----

_SDPA = "scaled_dot_product_attention"
_theirs: list[Any] = []  # PyTorch's own, for what ordo does not do


def _on_cpu(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if not _is_ours(query, key, value, enable_gqa):
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        given = query, key, value, attn_mask, dropout_p, is_causal
        return _theirs[0].call_boxed(keys, *given, scale=scale, enable_gqa=enable_gqa)
    tensors, axes = (query, key, value), query.dim()
    if axes < 4:
        tensors = tuple(x[(None,) * (4 - axes)] for x in tensors)
    if key.shape[0] != query.shape[0] and axes == 4:
        size = torch.broadcast_shapes(query.shape[:1], key.shape[:1])
        tensors = tuple(x.expand(*size, -1, -1, -1) for x in tensors)
    q, k, v = (x.transpose(1, 2) for x in tensors)
    masks: dict[str, Tensor] = {}
    if attn_mask is not None:
        whole = attn_mask[(None,) * (4 - attn_mask.dim())].expand(-1, -1, q.shape[1], k.shape[1])
        masks = {"seen" if whole.dtype == torch.bool else "bias": whole}
    o, _ = attention(q, k, v, causal=_causal(q, k, is_causal), scale=scale, dropout_p=dropout_p, **masks)
    o = o.transpose(1, 2)
    return o if axes == 4 else o[(0,) * (4 - axes)]


def _is_ours(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> bool:
    """PyTorch has the rest: other types, axes and heads, and what the caller keeps from its flash kernels."""
    axes, of_heads = query.dim(), slice(-3, -2)
    return (
        query.dtype in DTYPES and 2 <= axes <= 4 and axes == key.dim() and key.shape[:-1] == value.shape[:-1]
        and (enable_gqa or key.shape[of_heads] in (query.shape[of_heads], (1,)))
        and torch.backends.cuda.flash_sdp_enabled() and not torch._C._functorch.peek_interpreter_stack()
    )  # fmt: skip


def _causal(q: Tensor, k: Tensor, is_causal: bool) -> Any:
    """Of equal lengths the same plan as on the other routes, for the mask is the same."""
    return is_causal and (True if q.shape[1] == k.shape[1] else "top-left")


KERNELS: dict[str, dict[str, Any]] = {
    "CUDA": {
        "_scaled_dot_product_flash_attention": _sdpa_forward,
        "_scaled_dot_product_flash_attention_backward": _sdpa_backward,
        "_flash_attention_forward": _flash_forward,
        "_flash_attention_backward": _flash_backward,
    },
    "CPU": {_SDPA: _on_cpu},
    "AutogradCPU": {_SDPA: _on_cpu},
}
