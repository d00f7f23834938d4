"""Numbers that come as tensors, NumPy scalars or lists, made plain before anything keeps them.

A tensor's value may change in place, so no key of a plan may hold it. One on a CUDA device costs a
synchronisation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import SymInt, Tensor

from .. import _words
from .._convert import integer, real
from .._library import Error

OPEN = (-1, -1)


def mask_of(causal: Any) -> str:
    """The library's word; also of a tensor or a number."""
    return _words.mask_of(causal if isinstance(causal, str) else bool(causal))


def window_of(window: Any) -> tuple[int, int]:
    """(left, right) of a pair of any kind; None, or a side that is None or negative, is open."""
    if window is None:
        return OPEN
    try:
        left, right = window.tolist() if isinstance(window, Tensor) else window
    except (TypeError, ValueError):
        raise Error("argument", f"window {window!r}: expected (left, right)") from None
    return _side(left), _side(right)


def _side(x: Any) -> Any:
    if x is None:
        return -1
    return max(x if isinstance(x, (int, SymInt)) else integer("window", x), -1)


def real_of(name: str, x: Any) -> float:
    """A float. No gradient flows to it, so a tensor that asks for one is refused."""
    if isinstance(x, Tensor) and x.requires_grad and torch.is_grad_enabled():
        raise Error("unsupported", f"{name}.requires_grad True: {name} has no gradient")
    return x if isinstance(x, (int, float)) else real(name, x)


def length_of(name: str, x: Any) -> Any:
    """The longest length of a packed batch."""
    if x is None or isinstance(x, (int, SymInt)):
        return x
    number = real(name, x)
    if number != int(number):
        raise Error("argument", f"{name} {x!r}: expected an integer")
    return int(number)
