"""Attention as a module, which knows whether it is training."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from .._words import Keying
from ._attention import attention


class Attention(torch.nn.Module):
    """Scaled dot-product attention: o from q, k and v, (batch, row, head, dim).

    No parameters. Dropout applies while training and not in eval(), which a function cannot
    know. Keywords of forward() are those of ordo.torch.attention: seed, rng_state, cu_q, ...
    """

    def __init__(
        self,
        dropout: float = 0.0,
        *,
        causal: bool | Literal["bottom-right", "top-left"] = False,
        window: tuple[int, int] = (-1, -1),
        scale: float | None = None,
        softcap: float = 0.0,
        keying: Keying = "ordo",
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.rules: dict[str, Any] = dict(
            causal=causal, window=window, scale=scale, softcap=softcap, keying=keying
        )

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **keywords: Any) -> Tensor:
        p = self.dropout if self.training else 0.0
        o, _ = attention(q, k, v, dropout_p=p, **self.rules, **keywords)
        return o

    def extra_repr(self) -> str:
        rules = ", ".join(f"{name}={value!r}" for name, value in self.rules.items())
        return f"dropout={self.dropout}, {rules}"
