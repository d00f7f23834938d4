"""Formulas of torch.utils.flop_counter.FlopCounterMode for ordo's operators.

They count as those of PyTorch's own attention do: two products forward and five backward, of all keys and rows of each
sequence, whatever the mask leaves out; padding counts, too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from . import _node  # noqa: F401  # which has the operators
from ._inputs import lists_of
from ._node import rows_first

ops = torch.ops.ordo


def _scores(q: Tensor, k: Tensor, flags: int, more: Any, sizes: Any) -> int:
    """Elements of the score matrices of all heads; q and k with rows first."""
    lists = lists_of(flags, more)
    if lists.cu_q is None or lists.cu_kv is None:
        batch, rows, heads, _ = q.shape
        return int(batch * heads * rows * k.shape[1])
    ends_q, ends_kv = lists.cu_q, lists.cu_kv
    if ends_q.is_meta or isinstance(ends_q, torch._subclasses.FakeTensor):  # no lengths to read
        return int(q.shape[-3] * q.shape[-2] * sizes[3])  # max_kv
    pairs = (ends_q.diff().long() * ends_kv.diff().long().to(ends_q.device)).sum()
    return int(q.shape[-2] * pairs)


@register_flop_formula(ops.forward, get_raw=True)
def _count_forward(
    q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, softcap: float = 0.0,
    dropout_p: float = 0.0, sizes: Any = (), out_val: Any = None,
) -> int:  # fmt: skip
    q, k, v = rows_first(flags, q, k, v)
    return int(2 * _scores(q, k, flags, more, sizes) * (q.shape[-1] + v.shape[-1]))


@register_flop_formula(ops.backward, get_raw=True)
def _count_backward(
    dout: Tensor, dlse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, flags: int,
    scale: float, more: Any, softcap: float = 0.0, dropout_p: float = 0.0, sizes: Any = (),
    out_val: Any = None,
) -> int:  # fmt: skip
    """Scores again, dP and dV; dQ and dK."""
    q, k, v = rows_first(flags, q, k, v)
    return int(2 * _scores(q, k, flags, more, sizes) * (3 * q.shape[-1] + 2 * v.shape[-1]))


@register_flop_formula(ops.backward_part, get_raw=True)
def _count_part(*given: Any, out_val: Any = None) -> int:
    """The same of the rows that are given; the sums and `carry` come behind the tensors."""
    return int(_count_backward(*given[:7], *given[10:]))
