"""A GPT in plain PyTorch: tokens in, the mean cross entropy of the next tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ordo.torch
import torch
import torch.nn.functional as F
from data import send
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int = 256  # tokens are bytes; a larger table only costs time


PRESETS = {
    "tiny": Shape(2, 2, 64, 64),  # 0.1 M parameters: for tests
    "small": Shape(6, 4, 128, 128),  # 1.2 M: learns visibly in two minutes on two cores
    "gpt2-124m": Shape(12, 12, 768, 1024, 50304),
}


class Block(nn.Module):
    def __init__(self, shape: Shape, dropout: float, attention: str) -> None:
        super().__init__()
        self.heads, self.p, self.attention = shape.heads, dropout, attention
        width = shape.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, rng: Tensor | None) -> Tensor:
        batch, rows, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, rows, 3, self.heads, width // self.heads)
        p = self.p if self.training else 0.0
        x = x + F.dropout(self.out(self.attend(qkv, p, rng).reshape(x.shape)), p)
        hidden = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + F.dropout(self.down(hidden), p)

    def attend(self, qkv: Tensor, p: float, rng: Tensor | None) -> Tensor:
        q, k, v = qkv.unbind(2)
        if self.attention == "ordo":
            return ordo.torch.attention(q, k, v, causal=True, dropout_p=p, rng_state=rng)[0]
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True).transpose(1, 2)


class GPT(nn.Module):
    def __init__(self, shape: Shape, dropout: float, attention: str) -> None:
        super().__init__()
        self.p = dropout
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(
            Block(shape, dropout, attention) for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(shape.width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** (0.5 * last))

    def seeds(self, seed: int, device: torch.device) -> Sequence[Tensor | None]:
        """Seed and offset of each layer's attention, if it drops: each layer's offset differs."""
        count = len(self.blocks)
        if not (self.p > 0 and self.training):
            return [None] * count
        return send(torch.tensor([(seed, layer) for layer in range(count)]), device).unbind()

    def forward(self, tokens: Tensor, targets: Tensor, seed: int) -> Tensor:
        """The mean loss. Every number that dropout draws is a function of `seed`."""
        torch.manual_seed(seed)
        x = F.dropout(self.tokens(tokens) + self.places.weight, self.p if self.training else 0.0)
        for block, rng in zip(self.blocks, self.seeds(seed, x.device)):
            x = block(x, rng)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
