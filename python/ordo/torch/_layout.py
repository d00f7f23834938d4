"""Tensors as the library takes them: strides, alignment and head sizes."""

from __future__ import annotations

from torch import Tensor

from .._machine import backend_limits

CUDA = backend_limits("cuda")


def strides(x: Tensor) -> tuple[int, ...]:
    """Strides of an ordo_tensor: four, or zeros if contiguous."""
    if x.is_contiguous():
        return (0, 0, 0, 0)
    given = x.stride()
    return given if len(given) == 4 else (0, *given)


def takes_strides(x: Tensor) -> bool:
    """Whether the library takes the strides of a tensor."""
    if x.is_cuda and any(x.element_size() * y % CUDA.tensor_align for y in x.stride()[:-1]):
        return False
    return bool(x.is_contiguous() or x.stride(-1) == 1)


def fill_width(dim: int, v_dim: int) -> int:
    """Head size to fill CUDA tensors up to with zeros, which change no score; 0: none needed."""
    step = CUDA.head_dim_multiple
    if dim % step == 0 and v_dim % step == 0 and (dim == v_dim or CUDA.unequal_head_dims):
        return 0
    return round_up(max(dim, v_dim), step)


def round_up(size: int, step: int) -> int:
    return -(-size // step) * step
