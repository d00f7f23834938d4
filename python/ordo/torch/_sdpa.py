"""PyTorch's plug-in point: F.scaled_dot_product_attention on ordo, once the user asks for it.

`register()` makes "ORDO" known; torch.nn.attention.activate_flash_attention_impl("ORDO") puts these
kernels behind aten's flash attention operators, restore_flash_attention_impl() takes them away.
Under torch.use_deterministic_algorithms(True) PyTorch picks those operators by itself.

PyTorch's own rules for the flash path come first: no attn_mask, fp16 or bf16 on CUDA. What passes
them and ordo does not have is a RuntimeError that names it, as with PyTorch's other
implementations. On the CPU, where PyTorch sends masks and fp64 down the same path, those still run
on PyTorch's kernel.

Causal masks of unequal lengths: aten's operators on CUDA align them bottom-right, which is how
causal_lower_right() of torch.nn.attention.bias calls them; is_causal=True of the function, which
means top-left, gets there with equal lengths only. The operator of the CPU aligns top-left.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from .._library import Error
from . import _front as f
from ._dropout import rng_of
from ._inputs import DTYPES, NO_LISTS, Lists, Rules, empty
from ._kept import signed_probabilities
from ._parts import Saved, backward, forward

NAME = "ORDO"


def register() -> None:
    """Make "ORDO" known to PyTorch (2.10 or later). Nothing changes until it is activated."""
    try:
        from torch.nn.attention import register_flash_attention_impl
    except ImportError:
        raise Error(
            "unsupported",
            f"torch {torch.__version__}: expected 2.10 or later, which has "
            "torch.nn.attention.register_flash_attention_impl",
        ) from None
    register_flash_attention_impl(NAME, register_fn=_activate)


class _Handle:
    def __init__(self, libraries: list[Any]) -> None:
        self._libraries = libraries

    def remove(self) -> None:
        for library in self._libraries:
            library._destroy()
        self._libraries = []


def _activate() -> _Handle:
    _cpu.find()
    libraries = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
        for device, functions in KERNELS.items():
            library = torch.library.Library("aten", "IMPL", device)
            for name, function in functions.items():
                library.impl(name, function, allow_override=True)
            libraries.append(library)
    return _Handle(libraries)


# ---- passes, whatever the operator ----


def _rules(
    q: Tensor,
    scale: float | None,
    mask: str,
    dropout_p: float,
    window: tuple[Any, Any] = (-1, -1),
    longest: tuple[int, int] = (0, 0),
) -> Rules:
    if scale == 0:  # to the library 0 means the default
        raise RuntimeError(
            "ORDO flash attention: scale 0: expected another number, or None for 1/sqrt(head_dim)"
        )
    left, right = (-1 if x is None else int(x) for x in window)
    return Rules(
        *longest, max(q.shape[-1], 1) ** -0.5 if scale is None else scale, mask, left, right, 0.0,
        dropout_p, "ordo", (),
    )  # fmt: skip


def _longest(packed: bool, max_q: Any, max_k: Any) -> tuple[int, int]:
    return (max(int(max_q), 1), max(int(max_k), 1)) if packed else (0, 0)


def _mask(causal: bool) -> str:
    return "causal" if causal else "full"


def _top_left(causal: bool, query: Tensor, key: Tensor) -> str:
    """Of equal lengths the same plan as on the other routes, for the mask is the same."""
    return "causal-top-left" if causal and query.shape[2] != key.shape[2] else _mask(causal)


def _run_forward(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules, flags: int = 0
) -> tuple[Tensor, Tensor]:
    """(out, lse), out laid out as the query is."""
    try:
        return forward(q, k, v, lists, rules, flags | f.LIKE_Q)
    except Error as error:
        raise RuntimeError(f"ORDO flash attention forward: {error}") from error


def _run_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    rules: Rules,
    flags: int = 0,
) -> Any:
    """dq, dk and dv, laid out as the inputs are."""
    try:
        return backward(Saved(q, o, lse, dout, None), k, v, lists, rules, flags=flags | f.LIKE_Q)
    except Error as error:
        raise RuntimeError(f"ORDO flash attention backward: {error}") from error


def _draw(q: Tensor, dropout_p: float) -> tuple[Tensor | None, Tensor, Tensor]:
    """(rng, and as PyTorch keeps it: a state of two uint64, an unused one)."""
    rng = rng_of(q) if dropout_p > 0 else None
    state = torch.zeros(2, dtype=torch.int64, device=q.device) if rng is None else rng
    return rng, state.view(torch.uint64), torch.zeros((), dtype=torch.uint64, device=q.device)


def _drawn(state: Tensor, dropout_p: float) -> Tensor | None:
    return state.view(torch.int64) if dropout_p > 0 else None


def _debug(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Tensor:
    if lists.rng is None or empty(q, k, lists):
        return q.new_empty(0)
    return signed_probabilities(q, k, v, lists, rules)


# ---- aten's operators on CUDA ----


def _sdpa_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    rules = _rules(query, scale, _mask(is_causal), dropout_p)
    rng, state, unused = _draw(query, dropout_p)
    lists = NO_LISTS if rng is None else Lists(rng)
    out, lse = _run_forward(query, key, value, lists, rules, f.HEADS_FIRST)
    debug = query.new_empty(0)
    if return_debug_mask:
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        debug = _debug(q, k, v, lists, rules)
    return out, lse, None, None, query.shape[2], key.shape[2], state, unused, debug


def _sdpa_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    rules = _rules(query, scale, _mask(is_causal), dropout_p)
    rng = _drawn(philox_seed, dropout_p)
    lists = NO_LISTS if rng is None else Lists(rng)
    given = grad_out, query, key, value, out, logsumexp, lists, rules
    grads: tuple[Tensor, ...] = _run_backward(*given, f.HEADS_FIRST)
    return grads


def _flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Any, ...]:
    for name, given in (
        ("seqused_k", seqused_k),
        ("alibi_slopes", alibi_slopes),  # aten's backward does not get them
        ("block_table", block_table),
    ):
        if given is not None:
            raise RuntimeError(f"ORDO flash attention forward: {name} given: not supported here")
    packed = cum_seq_q is not None
    rules = _rules(
        query, scale, _mask(is_causal), dropout_p,
        (window_size_left, window_size_right), _longest(packed, max_q, max_k),
    )  # fmt: skip
    rng, state, unused = _draw(query, dropout_p)
    lists = NO_LISTS if rng is None and not packed else Lists(rng, cum_seq_q, cum_seq_k)
    out, lse = _run_forward(query, key, value, lists, rules)
    debug = query.new_empty(0)
    if return_debug_mask:
        debug = _debug(query, key, value, lists, rules)
    return out, lse, state, unused, debug


def _flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, ...]:
    packed = cum_seq_q is not None
    rules = _rules(
        query, scale, _mask(is_causal), dropout_p,
        (window_size_left, window_size_right), _longest(packed, max_q, max_k),
    )  # fmt: skip
    rng = _drawn(rng_state, dropout_p)
    lists = NO_LISTS if rng is None and not packed else Lists(rng, cum_seq_q, cum_seq_k)
    grads: tuple[Tensor, ...] = _run_backward(
        grad_out, query, key, value, out, logsumexp, lists, rules
    )
    return grads


# ---- and on the CPU ----


class _Theirs:
    """PyTorch's own kernels, for what comes down this path and ordo does not do."""

    def __init__(self) -> None:
        self._kernels: tuple[Any, Any] | None = None

    def find(self) -> None:
        if self._kernels is None:
            name = "aten::_scaled_dot_product_flash_attention_for_cpu"
            get = torch.library.get_kernel
            self._kernels = get(name, "CPU"), get(name + "_backward", "CPU")

    def call(self, which: int, *arguments: Any, **rest: Any) -> Any:
        assert self._kernels is not None
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        return self._kernels[which].call_boxed(keys, *arguments, **rest)


_cpu = _Theirs()


def _cpu_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    if attn_mask is not None or dropout_p > 0 or query.dtype not in DTYPES:
        theirs: tuple[Tensor, Tensor] = _cpu.call(
            0, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )
        return theirs
    rules = _rules(query, scale, _top_left(is_causal, query, key), 0.0)
    out, lse = _run_forward(query, key, value, NO_LISTS, rules, f.HEADS_FIRST)
    return out, lse.transpose(1, 2).contiguous().transpose(1, 2)  # as PyTorch's kernel lays it out


def _cpu_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    given = (grad_out, query, key, value, out, logsumexp)
    if attn_mask is not None or dropout_p > 0 or query.dtype not in DTYPES:
        theirs: tuple[Tensor, ...] = _cpu.call(
            1, *given, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )
        return theirs
    rules = _rules(query, scale, _top_left(is_causal, query, key), 0.0)
    grads = _run_backward(*given, NO_LISTS, rules, f.HEADS_FIRST)
    return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in grads)


KERNELS: dict[str, dict[str, Any]] = {
    "CUDA": {
        "_scaled_dot_product_flash_attention": _sdpa_forward,
        "_scaled_dot_product_flash_attention_backward": _sdpa_backward,
        "_flash_attention_forward": _flash_forward,
        "_flash_attention_backward": _flash_backward,
    },
    "CPU": {
        "_scaled_dot_product_flash_attention_for_cpu": _cpu_forward,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _cpu_backward,
    },
}
