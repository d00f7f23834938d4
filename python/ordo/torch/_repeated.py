"""Calls that come again with other tensors, such as those of a model's layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _front as f
from ._call import Arguments, _autocasts, _cast, checked, plain, prepare, width_of
from ._dropout import made_ahead
from ._inputs import Call, call_of
from ._node import eager


class Repeated:
    """call(q, k, v, arguments) of tensors (batch, head, row, dim).

    Which calls it takes depends on arguments and tensors, and not on what was called before: a
    checkpoint that runs a call again must save tensors of the same shapes.
    """

    def __init__(self, a: Arguments) -> None:
        drawn = a.seed is None and a.rng_state is None and a.generator is None
        self._taken = drawn and a.prepared is None and a.sink is None
        self._arguments = a
        self._known: Any = None  # the look of the tensors, and what C is called with

    def call(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
        """o, (batch, row, head, dim), of packed sequences too; None if it does not take the call.
        Then nothing has been drawn."""
        if not self._taken or not plain(q, k, v) or checked() or q.dim() != 4:
            return None
        if _autocasts():
            q, k, v = _cast(q, k, v)
        if width_of(q, v):
            return None
        look = q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device
        known = self._known
        if known is None or known[0] != look:
            known = self._known = look, self._learn(q, k, v)
        call = known[1]
        if call is None:
            return None
        return eager(q, k, v, call)[0]

    def _learn(self, q: Tensor, k: Tensor, v: Tensor) -> Call | None:
        """The call, without seed and offset; None if its bits are made ahead of it, for each layer.
        """
        a = self._arguments
        with torch.no_grad():
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            if a.cu_q is not None:
                q, k, v = (x.flatten(0, 1) for x in (q, k, v))
            q, k, v, lists, rules = prepare(q, k, v, a)
            if rules.dropout_p > 0 and made_ahead(q, k, v, lists, rules):
                return None
        flags, *rest = call_of(lists, rules)
        return flags | f.HEADS_FIRST, *rest
