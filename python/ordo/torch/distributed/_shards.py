"""Which rows of a sequence are on which rank, and tensors in the order of the whole sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ..._library import Error
from ._exchange import Form, Ranks, gather

Layout = Literal["contiguous", "zigzag"]


class Chunk(NamedTuple):
    """Adjacent rows of a sequence that a rank holds."""

    rank: int
    start: int  # in the sequence
    end: int
    at: int  # index of the first row in the rank's tensor

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def here(self) -> tuple[int, int]:
        """Its rows in the rank's tensor."""
        return self.at, self.at + self.length


class Rows(NamedTuple):
    """The rows of a sequence over the ranks."""

    counts: tuple[int, ...]  # rows of each rank
    chunks: tuple[Chunk, ...]  # all ranks' chunks, in the order of the sequence; none is empty

    @property
    def total(self) -> int:
        return sum(self.counts)

    def of(self, rank: int) -> list[Chunk]:
        return [x for x in self.chunks if x.rank == rank]

    def within(self, span: tuple[int, int]) -> list[Chunk]:
        """Who holds rows span[0] ... span[1] - 1, in their order and counted from the first one."""
        found = []
        for x in self.chunks:
            first, last = max(span[0], x.start), min(span[1], x.end)
            if first < last:
                found.append(Chunk(x.rank, first - span[0], last - span[0], first - x.start + x.at))
        return found


def rows_of(counts: Sequence[int], layout: str) -> Rows:
    """The rows where rank r holds counts[r] of them.

    contiguous: in the order of the ranks. zigzag: the first half of a rank's rows, the longer one
    if they differ, is chunk r of 2n, the other half is chunk 2n - 1 - r.
    """
    n = len(counts)
    if layout == "contiguous":
        ranges = [(r, 0, count) for r, count in enumerate(counts)]
    else:
        ranges = [(r, 0, -(-count // 2)) for r, count in enumerate(counts)]
        ranges += [(r, -(-counts[r] // 2), counts[r]) for r in range(n - 1, -1, -1)]
    chunks, start = [], 0
    for rank, first, last in ranges:
        if last > first:
            chunks.append(Chunk(rank, start, start + last - first, first))
        start += last - first
    return Rows(tuple(counts), tuple(chunks))


def even(total: int, ranks: int, layout: str) -> Rows:
    """The rows of a sequence that is divided as evenly as possible, longer parts first."""
    if layout == "contiguous":
        return rows_of([total // ranks + (r < total % ranks) for r in range(ranks)], layout)
    chunks = [total // (2 * ranks) + (c < total % (2 * ranks)) for c in range(2 * ranks)]
    return rows_of([chunks[r] + chunks[-1 - r] for r in range(ranks)], layout)


def part_of(x: Tensor, axis: int, chunks: Sequence[Chunk]) -> Tensor:
    """The rows of chunks, taken from the whole sequence, one behind the other."""
    parts = [x.narrow(axis, c.start, c.length) for c in chunks]
    return joined(parts, axis) if parts else x.narrow(axis, 0, 0)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), axis)


def whole_of(parts: Sequence[Tensor], axis: int, rows: Rows) -> Tensor:
    """The whole sequence from the parts of all ranks."""
    pieces = [parts[c.rank].narrow(axis, c.at, c.length) for c in rows.chunks]
    return torch.cat(pieces, axis) if pieces else parts[0]


def gather_rows(
    ranks: Ranks, what: str, rows: Rows, tensors: Sequence[Tensor], axes: Sequence[int]
) -> list[Tensor]:
    """Whole sequences of tensors whose rows are along these axes."""
    forms = [[Form.of(x, {axis: n}) for x, axis in zip(tensors, axes)] for n in rows.counts]
    found = gather(ranks, what, tensors, forms)
    return [whole_of([each[i] for each in found], axis, rows) for i, axis in enumerate(axes)]


def check_layout(layout: Any) -> None:
    if layout not in get_args(Layout):
        raise Error("argument", f"layout {layout!r}: expected contiguous or zigzag")


def shard_sequence(
    x: Tensor, dim: int = 1, *, group: Any = None, layout: Layout = "contiguous"
) -> Tensor:
    """This rank's rows of a tensor that holds the whole sequence along `dim`, as even as possible: the
    first chunks of a layout are the longer ones. Differentiable.
    """
    check_layout(layout)
    ranks = Ranks.of(group)
    return part_of(x, dim, even(x.shape[dim], ranks.size, layout).of(ranks.rank))


def unshard_sequence(
    x: Tensor, dim: int = 1, *, group: Any = None, layout: Layout = "contiguous"
) -> Tensor:
    """The whole sequence along `dim`, on every rank, from the rows of each; without gradients.

    The rows of a rank may be as many as shard_sequence() gives it, or any other number.
    """
    check_layout(layout)
    ranks = Ranks.of(group)
    here = torch.tensor([x.shape[dim]], device=x.device)
    what = "unshard_sequence"
    counts = gather(ranks, what, [here], [[Form((1,), torch.int64)]] * ranks.size)
    rows = rows_of([int(each[0]) for each in counts], layout)
    return gather_rows(ranks, what, rows, [x.detach()], [dim])[0]
