"""Operations of a model whose results for a row do not depend on the other rows.

One rule: bits follow from the order along the axis that is summed, and parallelism comes from the
others. Products go to ordo::gemm. Norms and softmaxes over the last axis go to PyTorch's kernels
that give each row to one thread, warp or block, of rows laid out alike. Sums and means over the last
axis are a tree of additions of halves. On the CPU, functions such as gelu run on whole vectors alone:
PyTorch computes what is left of a vector by other instructions, with other bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .._library import Error
from ._linear import linear

_UNIT = 8  # elements: whole rows of them begin alike
_VECTORS = 64  # elements: more than PyTorch's loops take in a step
_SHARE = 32768  # elements that at most one thread takes


class invariant(TorchFunctionMode):
    """A context in which rows have the same bits alone and in any batch.

        with ordo.torch.invariant():
            logits = model(tokens)

    F.linear, torch.mm, matmul, addmm and @ by a matrix; F.layer_norm, F.rms_norm; softmax,
    log_softmax, and cross_entropy, which is made of it; sum and mean over the last axis; gelu, silu,
    sigmoid, tanh, exp and such on the CPU. What it does not change: attention (ordo.torch.attention has this property; register() puts it in place of
    F.scaled_dot_product_attention), convolutions, batched products, sums over other axes. A backward
    pass has it too if the forward pass ran inside.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        ours = _OURS.get(function)
        if ours is not None:
            with torch._C.DisableTorchFunction():
                made = ours(*args, **(kwargs or {}))
            if made is not NotImplemented:
                return made
        return function(*args, **(kwargs or {}))


# ---- products ----


def _by_matrix(a: Any, b: Any, *, out: Any = None) -> Any:
    if not isinstance(b, Tensor) or b.dim() != 2 or not isinstance(a, Tensor) or a.dim() < 1:
        return NotImplemented
    if out is not None or not a.is_floating_point():
        return NotImplemented
    return linear(a, b.t())


def _addmm(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    if beta != 1 or alpha != 1 or out is not None or bias.dim() != 1 or bias.shape[0] != b.shape[1]:
        raise Error("unsupported", "addmm under invariant(): expected a row to add, beta and alpha 1")
    return linear(a, b.t(), bias)


# ---- rows ----


def _last(x: Tensor, dim: Any) -> bool:
    return isinstance(dim, int) and x.dim() > 0 and dim in (-1, x.dim() - 1)


def _add_halves(x: Tensor) -> Tensor:
    """Sums over the last axis: element i and i + n/2, the half rounded up, until one is left."""
    while x.shape[-1] > 1:
        half = (x.shape[-1] + 1) // 2
        rest = x[..., half:]
        sums = x[..., : rest.shape[-1]] + rest
        x = sums if rest.shape[-1] == half else torch.cat((sums, x[..., half - 1 : half]), -1)
    return x.sum(-1) if x.shape[-1] == 0 else x[..., 0]


def _total(x: Tensor, dim: Any, keepdim: bool, dtype: Any, mean: bool) -> Any:
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        dim = dim[0]
    if not isinstance(x, Tensor) or not _last(x, dim) or not (dtype or x.dtype).is_floating_point:
        return NotImplemented
    made = _add_halves(x.to(torch.promote_types(dtype or x.dtype, torch.float32)))
    made = (made / x.shape[-1] if mean else made).to(dtype or x.dtype)
    return made.unsqueeze(-1) if keepdim else made


def _sum(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    return NotImplemented if out is not None else _total(x, dim, keepdim, dtype, False)


def _mean(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    return NotImplemented if out is not None else _total(x, dim, keepdim, dtype, True)


def _rms_norm(x: Tensor, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Tensor:
    if x.is_cuda:
        return F.rms_norm(x.contiguous(), normalized_shape, weight, eps)
    width = x.shape[x.dim() - len(normalized_shape) :].numel()
    kind = torch.promote_types(x.dtype, torch.float32)
    wide = x.to(kind)
    rows = wide.reshape(*x.shape[: x.dim() - len(normalized_shape)], width)
    mean = _add_halves(rows * rows) / width
    epsilon = torch.finfo(x.dtype).eps if eps is None else eps
    factor = torch.rsqrt(mean + epsilon).reshape(*rows.shape[:-1], *(1 for _ in normalized_shape))
    made = wide * factor
    return (made if weight is None else made * weight.to(kind)).to(x.dtype)


def _layer_norm(
    x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    return F.layer_norm(x.contiguous(), normalized_shape, weight, bias, eps)


def _filled(x: Tensor) -> Tensor:
    """Rows that begin alike; exp() of what fills them is 0."""
    more = -x.shape[-1] % _UNIT
    return F.pad(x, (0, more), value=float("-inf")) if more else x.contiguous()


def _softmax(of: Callable[..., Tensor]) -> Callable[..., Any]:
    def ours(x: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if not isinstance(x, Tensor) or not _last(x, dim):
            return NotImplemented
        return of(_filled(x), -1, dtype=dtype)[..., : x.shape[-1]]

    return ours


def _cross_entropy(
    x: Tensor, target: Tensor, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    if x.dim() > 2 or target.is_floating_point() or label_smoothing:
        raise Error(
            "unsupported",
            f"cross_entropy under invariant(): x.shape {tuple(x.shape)}, label_smoothing "
            f"{label_smoothing:g}: expected (rows, classes), classes as targets, and 0",
        )
    scores = torch.log_softmax(_filled(x), -1)
    if weight is not None:
        scores = scores[..., : x.shape[-1]]
    return F.nll_loss(scores, target, weight, size_average, ignore_index, reduce, reduction)


def _in_vectors(of: Callable[..., Tensor]) -> Callable[..., Any]:
    """The function over elements that are a multiple of vectors for each thread."""

    def ours(x: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(x, Tensor) or x.device.type != "cpu" or not x.is_floating_point():
            return NotImplemented
        if options.get("out") is not None or options.get("inplace") or (args and args[0] is True):
            return NotImplemented  # in place
        if x.numel() == 0:
            return NotImplemented
        share = _VECTORS * min(torch.get_num_threads(), -(-x.numel() // _SHARE))
        flat = F.pad(x.reshape(-1), (0, -x.numel() % share))
        return of(flat, *args, **options)[: x.numel()].view(x.shape)

    return ours


_NAMES = ("sigmoid", "tanh", "exp", "log", "sin", "cos", "erf", "rsqrt")
_ELEMENTWISE = [getattr(owner, name) for owner in (torch, Tensor) for name in _NAMES]

_OURS: dict[Any, Callable[..., Any]] = {
    **{of: _in_vectors(of) for of in (F.gelu, F.silu, F.softplus, *_ELEMENTWISE)},
    F.linear: linear,
    torch.mm: _by_matrix,
    torch.matmul: _by_matrix,
    torch.addmm: _addmm,
    Tensor.mm: _by_matrix,
    Tensor.matmul: _by_matrix,
    Tensor.__matmul__: _by_matrix,
    Tensor.addmm: _addmm,
    torch.sum: _sum,
    Tensor.sum: _sum,
    torch.mean: _mean,
    Tensor.mean: _mean,
    F.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
    F.softmax: _softmax(torch.softmax),
    torch.softmax: _softmax(torch.softmax),
    Tensor.softmax: _softmax(torch.softmax),
    F.log_softmax: _softmax(torch.log_softmax),
    torch.log_softmax: _softmax(torch.log_softmax),
    Tensor.log_softmax: _softmax(torch.log_softmax),
    F.cross_entropy: _cross_entropy,
}
