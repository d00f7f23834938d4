"""Calls that come again with other tensors, such as those of a model's layers."""

from __future__ import annotations

import torch
from torch import Tensor

from ._attention import Arguments, _autocasts, _cast, _quick, _short, learn
from ._compiled import HEADS_FIRST, RNG_DRAWN, front
from ._lengths import checked
from ._ops import plain
from ._passes import watchers
from ._quick import Beside, quick, quick_plain


class Repeated:
    """call(q, k, v, arguments) of tensors (batch, head, row, dim), by the compiled front alone.

    Which calls it takes depends on arguments and tensors, and not on what was called before: a
    checkpoint that runs a call again must save tensors of the same shapes.
    """

    def __init__(self, a: Arguments) -> None:
        key, flags, lengths = _short(a)
        drawn = a.seed is None and a.rng_state is None and a.generator is None
        known = drawn and type(a.dropout_p) in (float, int)
        self._key = key if known else None  # of the rules' number; None: not for the front
        drops = known and a.dropout_p > 0
        self._flags = flags | HEADS_FIRST | (RNG_DRAWN if drops else 0)
        self._beside = Beside(0, self._flags, None, *lengths)
        self._arguments = a

    def call(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
        """o, (batch, row, head, dim), of packed sequences too; None if the front does not take the
        call. Then nothing has been drawn."""
        if self._key is None or not front.on or watchers or not plain(q, k, v):
            return None
        if self._beside.q_lengths is not None and checked():
            return None
        if _autocasts():
            q, k, v = _cast(q, k, v)
        o = self._run(q, k, v)
        if o is None:
            self._learn(q, k, v)
            o = self._run(q, k, v)
        return o

    def _run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
        number, beside = _quick.get(self._key, 0), self._beside
        if not number:
            return None
        if beside.q_lengths is None:
            done = quick_plain(q, k, v, number, self._flags, alone=True)
        else:
            if number != beside.rules:
                beside = self._beside = beside._replace(rules=number)
            done = quick(q, k, v, beside)
        return None if done is None else done[0]

    def _learn(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        with torch.no_grad():
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            if self._arguments.cu_q is not None:
                q, k, v = (x.flatten(0, 1) for x in (q, k, v))
            learn(q, k, v, self._arguments)
