"""The problems that tables measure. Needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TOKENS, CHANNELS = 16384, 2048


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    dim: int
    mask: str = "full"
    dtype: str = "bf16"
    p: float = 0.0  # of dropout
    window: tuple[int, int] | None = None  # left, right
    lengths: tuple[int, ...] = ()  # packed: rows and columns of each sequence
    v_dim: int = 0  # 0: as dim
    softcap: float = 0.0
    alibi: bool = False

    def __str__(self) -> str:
        lengths = f"{self.q_len}" if self.q_len == self.kv_len else f"{self.q_len}x{self.kv_len}"
        return f"B{self.batch} H{self.heads}/{self.kv_heads} S{lengths} D{self.dim} {self.mask}"

    @property
    def values(self) -> int:
        """Columns of v and o."""
        return self.v_dim or self.dim

    def flop(self, columns: float) -> float:
        """Of products over so many columns, as the peers count: half of everything if causal."""
        full = 2.0 * self.batch * self.heads * self.q_len * self.kv_len * columns
        return full if self.mask == "full" else full / 2

    @property
    def both_flop(self) -> tuple[float, float]:
        """Of the forward pass, two products, and of the backward pass, five."""
        return self.flop(self.dim + self.values), self.flop(3 * self.dim + 2 * self.values)

    @property
    def high(self) -> int | None:
        """The last column that row 0 sees; None: all of them."""
        if self.mask == "full":
            return None
        return self.kv_len - self.q_len if self.mask == "causal" else 0


def row(group: str, name: str, seq: int, dim: int, mask: str, **more: Any) -> dict[str, Any]:
    """A row of 16k tokens and 2048 channels, unless `more` says otherwise."""
    heads = more.get("heads", CHANNELS // dim)
    made = {"group": group, "name": name, "batch": max(1, TOKENS // seq), "heads": heads}
    return {**made, "kv_heads": heads, "seq": seq, "dim": dim, "mask": mask, **more}


def of_attention(group: str = "") -> list[dict[str, Any]]:
    """16k tokens and a width of 2048, then groups of heads, then 32k tokens. Others publish their
    figures at these shapes."""
    sizes = [(seq, dim) for dim in (64, 128) for seq in (512, 1024, 2048, 4096, 8192, 16384)]
    sizes = [(seq, dim, {}) for seq, dim in sizes]
    sizes += [(8192, 128, {"batch": 1, "heads": 32, "kv_heads": 8}), (32768, 128, {})]
    made = []
    for seq, dim, more in sizes:
        for mask in ("full", "causal"):
            one = row(group, "", seq, dim, mask, **more)
            one["name"] = f"{seq} {dim} {one['heads']}/{one['kv_heads']} {mask}"
            made.append(one)
    return made


def shape_of(row: dict[str, Any], **more: Any) -> Shape:
    sizes = (row[name] for name in ("batch", "heads", "kv_heads", "seq", "seq", "dim", "mask"))
    return Shape(*sizes, v_dim=row.get("v_dim", 0), **more)
