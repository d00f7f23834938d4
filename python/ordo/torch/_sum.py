"""Sums of tensors by one fixed binary tree, on the CPU and on CUDA (ordo/sum.h)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref

import torch
from torch import Tensor

from .._library import Error, lib
from .._sum import by_blocks, sum_call

_WORDS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


@torch.no_grad()
def tree_sum(inputs: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The float32 sum of tensors of one shape, type and device, by a binary tree over their number.

    float32, bfloat16 or float16. The tree adds neighbours, then neighbouring sums: the sum of an
    aligned block of 2^l inputs is a node of every larger tree, so the same bits come out however it
    is divided into blocks, on the CPU and on CUDA. `out` is overwritten if given; it may be one of the
    inputs. No gradient flows through the sum.
    """
    tensors = list(inputs)
    check_alike("inputs", tensors, out)
    if out is None:
        out = torch.empty(tensors[0].shape, dtype=torch.float32, device=tensors[0].device)
    made = out
    return _add(by_blocks(tensors, lambda some: _add(some, torch.empty_like(made))), made)


def add_two(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """tree_sum([a, b], out=out) for gradients of one parameter, of which a step has hundreds: `out`
    is None or a contiguous float32 tensor of their shape and device."""
    alike = a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
    if not alike or a.dtype not in _WORDS or not (a.is_cpu or a.is_cuda):
        return tree_sum([a, b], out=out)  # which says what is wrong
    if out is None:
        out = torch.empty(a.shape, dtype=torch.float32, device=a.device)
    return _add((a, b), out)


def check_alike(list_name: str, tensors: Sequence[Tensor], out: Tensor | None = None) -> None:
    """Raise Error unless these tensors can be added, to `out` if it is given."""
    if not tensors:
        raise Error("argument", f"{list_name} []: expected at least one tensor")
    first = tensors[0]
    if first.dtype not in _WORDS:
        wanted = "float32, bfloat16 or float16"
        raise Error("argument", f"{list_name}[0].dtype {first.dtype}: expected {wanted}")
    if first.device.type not in ("cpu", "cuda"):
        raise Error("unsupported", f"{list_name}[0].device {first.device}: expected cpu or cuda")
    named = [(f"{list_name}[{at}]", x, first.dtype) for at, x in enumerate(tensors)]
    for name, x, dtype in named if out is None else [*named, ("out", out, torch.float32)]:
        if x.is_nested or x.layout is not torch.strided:
            kind = "nested" if x.is_nested else x.layout
            raise Error("unsupported", f"{name}.layout {kind}: expected torch.strided")
        for what, expected in (("shape", first.shape), ("dtype", dtype), ("device", first.device)):
            if getattr(x, what) != expected:
                status = "shape" if what == "shape" else "argument"
                raise Error(status, f"{name}.{what} {getattr(x, what)}: expected {expected}")
    if out is not None and not out.is_contiguous():
        raise Error("align", f"out.stride() {out.stride()}: expected a contiguous tensor")
    if out is not None and out.is_neg():  # its memory holds the other sign
        raise Error("argument", "out.is_neg() True: expected False")


def _add(some: Sequence[Tensor], out: Tensor) -> Tensor:
    held = [x.resolve_neg().contiguous() for x in some]
    threads = torch.get_num_threads() if out.device.type == "cpu" else 0
    places = [x.data_ptr() for x in held]
    call = sum_call(_WORDS[some[0].dtype], out.numel(), places, out.data_ptr(), threads)
    if out.device.type == "cpu":
        lib.ordo_sum_tree(byref(call))
    elif out.numel() > 0:
        with torch.cuda.device(out.device):
            lib.ordo_sum_tree_device(byref(call), torch._C._cuda_getCurrentRawStream(out.device.index))
    return out
