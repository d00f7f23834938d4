"""Tensors as the library takes them: strides, alignment and head sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from .._machine import backend_limits

CUDA = backend_limits("cuda")


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


def width_of(q: Tensor, v: Tensor) -> int:
    """Head size to fill the tensors of a call up to; 0: none needed."""
    return fill_width(q.shape[-1], v.shape[-1]) if q.is_cuda else 0


def filled(width: int, *tensors: Tensor) -> list[Tensor]:
    """The tensors with columns of zeros."""
    return [torch.nn.functional.pad(x, (0, width - x.shape[-1])) for x in tensors]


def round_up(size: int, step: int) -> int:
    return -(-size // step) * step
