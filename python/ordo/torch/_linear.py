"""Linear layers whose rows do not depend on the batch: ordo::gemm with its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .._library import Error
from . import _front as f
from ._call import refuse_tangents


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, sections: int = 1, wide: bool = False
) -> Tensor:
    """F.linear(): x weightᵀ + bias, with the same bits for a row of x alone and in any batch.

    bfloat16 and float16; on the CPU float32 as well. Each element is one chain along the input
    features, rounded once, after the bias. So are the gradients: of x along the output features; of
    weight and bias along the rows of x, in their order (docs/guide/linear.md). Under autocast the
    arguments are cast, as those of F.linear are.

    `sections` divides the input features into 2, 4 or 8 chains and a tree over them; with `wide` the
    result and the bias are float32: ranks that hold whole sections add theirs by tree_sum().
    """
    given = dict(x=x, weight=weight) if bias is None else dict(x=x, weight=weight, bias=bias)
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise Error("argument", f"{name} {tensor!r}: expected a tensor")
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        shapes = f"x.shape {tuple(x.shape)}, weight.shape {tuple(weight.shape)}"
        raise Error("shape", f"{shapes}: expected (..., k) and (n, k)")
    refuse_tangents(*given.values())
    device = "cuda" if x.is_cuda else "cpu"
    if torch.is_autocast_enabled(device):
        kind = torch.get_autocast_dtype(device)
        x, weight = x.to(kind), weight.to(kind)
        bias = bias if bias is None or wide else bias.to(kind)
    rows = x.flatten(0, -2) if x.dim() > 1 else x[None]
    try:
        y: Tensor = torch.ops.ordo.gemm(rows, weight.t(), bias, sections, wide)
    except RuntimeError as error:
        raise f.error_of(error) from None
    return y.view(*x.shape[:-1], weight.shape[0])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Any, sections: int, wide: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.wide = wide
        with f.below():
            made: Tensor = torch.ops.ordo.gemm(a, b, bias, sections, wide)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, b = ctx.saved_tensors
        grad = grad.to(a.dtype)  # float32 of a wide product
        da = db = dbias = None
        if ctx.needs_input_grad[0]:
            da = torch.ops.ordo.gemm(grad, b.t())
        if ctx.needs_input_grad[1]:  # laid out as b is: a weight is transposed
            transposed = b.stride(0) == 1 and b.stride(1) != 1
            db = torch.ops.ordo.gemm(grad.t(), a).t() if transposed else torch.ops.ordo.gemm(a.t(), grad)
        if ctx.needs_input_grad[2]:
            dbias = torch.ops.ordo.gemm(grad.new_ones(1, grad.shape[0]), grad, None, 1, ctx.wide)[0]
        return da, db, dbias, None, None


def _gemm(a: Tensor, b: Tensor, bias: Any = None, sections: int = 1, wide: bool = False) -> Any:
    some = (a, b) if bias is None else (a, b, bias)
    if torch.is_grad_enabled() and any(x.requires_grad for x in some):
        if torch._C._are_functorch_transforms_active():
            expected = "expected torch.autograd.grad() or backward()"
            raise Error("unsupported", f"torch.func (grad, vjp, jacrev): not supported for linear; {expected}")
        return _Product.apply(a, b, bias, sections, wide)
    with f.below():
        return torch.ops.ordo.gemm(a, b, bias, sections, wide)


f.library.impl("gemm", _gemm, "Autograd")


@torch.library.register_fake("ordo::gemm", lib=f.library)
def _gemm_fake(a: Tensor, b: Tensor, bias: Any = None, sections: int = 1, wide: bool = False) -> Tensor:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise Error("shape", f"a.shape {tuple(a.shape)}, b.shape {tuple(b.shape)}: expected (m, k), (k, n)")
    return a.new_empty((a.shape[0], b.shape[1]), dtype=torch.float32 if wide else a.dtype)


@register_flop_formula(torch.ops.ordo.gemm)
def _count(a: Any, b: Any, *rest: Any, out_shape: Any = None, **more: Any) -> int:
    return 2 * int(a[0]) * int(a[1]) * int(b[1])
