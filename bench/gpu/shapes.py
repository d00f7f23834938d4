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
    p: float = 0.0  # probability of dropout
    window: tuple[int, int] | None = None  # left, right
    lengths: tuple[int, ...] = ()  # rows and columns of each sequence
    padded: bool = False  # to q_len; else sequences with lengths are packed
    v_dim: int = 0  # 0: as dim
    softcap: float = 0.0
    alibi: bool = False

    def __str__(self) -> str:
        lengths = f"{self.q_len}" if self.q_len == self.kv_len else f"{self.q_len}x{self.kv_len}"
        return f"B{self.batch} H{self.heads}/{self.kv_heads} S{lengths} D{self.dim} {self.mask}"

    @property
    def packed(self) -> bool:
        return bool(self.lengths) and not self.padded

    @property
    def values(self) -> int:
        """Columns of v and o."""
        return self.v_dim or self.dim

    def flop(self, columns: float) -> float:
        """Operations of products over so many columns, as the peers count: half of everything if causal."""
        full = 2.0 * self.batch * self.heads * self.q_len * self.kv_len * columns
        return full if self.mask == "full" else full / 2

    @property
    def both_flop(self) -> tuple[float, float]:
        """Operations of the forward pass, two products, and of the backward pass, five."""
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


def visible_pairs(length: int, left: int | None = None) -> int:
    """Pairs of a causal sequence with as many columns as rows: exactly, not as the peers count."""
    seen = length if left is None else min(length, left + 1)
    return seen * (seen + 1) // 2 + (length - seen) * seen


def live_tiles(length: int, rows: int, columns: int, left: int | None = None) -> int:
    """Tiles of a causal sequence in which anything is visible: -left <= j - i <= 0."""
    live = 0
    for top in range(0, length, rows):
        bottom = min(top + rows, length) - 1
        last = bottom // columns
        first = 0 if left is None else max(0, top - left) // columns
        live += last - first + 1
    return live


def live(contest: Any, name: str, shape: Shape, make: Any, passes: Any = ("fwd", "bwd")) -> None:
    """Add passes of what make() returns, with its visible pairs and live tiles."""
    lengths = shape.lengths or (shape.q_len,) * shape.batch
    left = shape.window[0] if shape.window else None
    full = shape.mask == "full"
    pairs = sum(x * x if full else visible_pairs(x, left) for x in lengths)

    def tiles(subject: Any, which: str) -> int:
        info = subject.plan.info
        tile = info.forward_tile if which == "fwd" else info.backward_tile
        if full:
            return sum(-(-x // tile.q) * -(-x // tile.k) for x in lengths)
        return sum(live_tiles(x, tile.q, tile.k, left) for x in lengths)

    two = 4.0 * shape.heads * shape.dim * pairs
    contest.both(name, make, (two, 2.5 * two), passes, tiles)
