"""Formulas of torch.utils.flop_counter.FlopCounterMode for ordo's operators.

They count as those of PyTorch's own attention do: two products forward and five backward, of all keys and rows of each
sequence, whatever the mask leaves out; padding counts, too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from . import _ops, _sink  # noqa: F401  # which define the operators
from ._inputs import Lists

ops = torch.ops.ordo


def _scores(q: Tensor, k: Tensor, rest: tuple[Any, ...]) -> int:
    """Elements of the score matrices of all heads."""
    lists = Lists(*rest[: len(Lists._fields)])
    if lists.cu_q is None or lists.cu_kv is None:
        batch, rows, heads, _ = q.shape
        return int(batch * heads * rows * k.shape[1])
    ends_q, ends_kv = lists.cu_q, lists.cu_kv
    if ends_q.is_meta or isinstance(ends_q, torch._subclasses.FakeTensor):  # no lengths to read
        max_kv = rest[len(Lists._fields) + 1]
        return int(q.shape[-3] * q.shape[-2] * max_kv)
    pairs = (ends_q.diff().long() * ends_kv.diff().long().to(ends_q.device)).sum()
    return int(q.shape[-2] * pairs)


def _forward(q: Tensor, k: Tensor, v: Tensor, rest: tuple[Any, ...]) -> int:
    return int(2 * _scores(q, k, rest) * (q.shape[-1] + v.shape[-1]))


def _backward(q: Tensor, k: Tensor, v: Tensor, rest: tuple[Any, ...]) -> int:
    """Scores again, dP and dV; dQ and dK."""
    return int(2 * _scores(q, k, rest) * (3 * q.shape[-1] + 2 * v.shape[-1]))


@register_flop_formula(ops.attention_forward, get_raw=True)
def _count_forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any, out_val: Any = None) -> int:
    return _forward(q, k, v, rest)


@register_flop_formula(ops.attention_sink_forward, get_raw=True)
def _count_sink_forward(
    q: Tensor, k: Tensor, v: Tensor, sink: Tensor, *rest: Any, out_val: Any = None
) -> int:
    return _forward(q, k, v, rest)


@register_flop_formula(ops.attention_backward, get_raw=True)
def _count_backward(
    dout: Tensor, dlse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, *rest: Any,
    out_val: Any = None,
) -> int:  # fmt: skip
    return _backward(q, k, v, rest)


@register_flop_formula(ops.attention_sink_backward, get_raw=True)
def _count_sink_backward(
    dout: Tensor, dlse: Any, q: Tensor, k: Tensor, v: Tensor, sink: Tensor, o: Tensor, lse: Tensor,
    *rest: Any, out_val: Any = None,
) -> int:  # fmt: skip
    return _backward(q, k, v, rest)
