"""The norm of gradients by one tree over their elements: its bits do not depend on the ranks.

The squares of a gradient's elements are added in float64 by the tree of _tree.py over their
positions in the whole gradient. A shard of it, elements a ... b - 1, adds up to a few nodes of that
tree, wherever it begins; the nodes of all shards are gathered and the rest is added on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..._library import Error
from ._tree import Counter, Node

_CHUNK = {"cpu": 16, "cuda": 22}  # log2 of the elements that are squared at once


def _halves(a: int, b: int, level: int) -> Iterable[tuple[int, bool, bool, int]]:
    """Per level, for nodes a ... b - 1: (level, whether a and b - 1 have no sibling there, a)."""
    while a < b:
        first, last = bool(a & 1), bool(b & 1) and b - 1 >= a + (a & 1)
        yield level, first, last, a
        a, b, level = (a + 1) >> 1, b >> 1, level + 1


def _nodes_from(a: int, b: int, level: int) -> list[Node]:
    """Nodes that cover nodes a ... b - 1 of a level, in the order of _sums_from()."""
    made, end = [], b
    for at, first, last, start in _halves(a, b, level):
        if first:
            made.append(Node(at, start))
        if last:
            made.append(Node(at, end - 1))
        end >>= 1
    return made


def _sums_from(x: Tensor, a: int, level: int) -> list[Tensor]:
    """The sums of those nodes; x holds nodes a ... of the level."""
    made = []
    for _, first, last, _ in _halves(a, a + x.numel(), level):
        if first:
            made.append(x[:1])
            x = x[1:]
        if last:
            made.append(x[-1:])
            x = x[:-1]
        x = x[0::2] + x[1::2]
    return made


def _cut(a: int, b: int, chunk: int) -> tuple[int, int]:
    """The whole chunks of elements a ... b - 1: from the first to past the last, as elements."""
    low, high = -(-a >> chunk) << chunk, b >> chunk << chunk
    return (low, high) if low < high else (b, b)


def _nodes(a: int, b: int, chunk: int) -> list[Node]:
    """Nodes that cover elements a ... b - 1, in the order of _squares()."""
    low, high = _cut(a, b, chunk)
    return (
        _nodes_from(a, low, 0)
        + _nodes_from(low >> chunk, high >> chunk, chunk)
        + _nodes_from(high, b, 0)
    )


def _squares(flat: Tensor, a: int, chunk: int) -> list[Tensor]:
    """Sums of squares of those nodes; `flat` holds elements a ... of a gradient."""
    b = a + flat.numel()
    low, high = _cut(a, b, chunk)
    tops = [_chunk_square(flat[x - a : x - a + (1 << chunk)]) for x in range(low, high, 1 << chunk)]
    head, tail = flat[: low - a], flat[high - a :]
    body = _sums_from(torch.cat(tops), low >> chunk, chunk) if tops else []
    before, behind = head.double().square(), tail.double().square()
    return _sums_from(before, a, 0) + body + _sums_from(behind, high, 0)


def _chunk_square(x: Tensor) -> Tensor:
    x = x.double().square()
    while x.numel() > 1:
        x = x[0::2] + x[1::2]
    return x


# ---- shards ----


class _Shards:
    """One gradient as its ranks hold it: the group, and the elements of each rank."""

    def __init__(self, gradient: Tensor) -> None:
        self.elements = gradient.numel()
        self.group: Any = None
        self.spans = [(0, self.elements)]
        self.rank = 0
        self.local = gradient
        if hasattr(gradient, "device_mesh"):
            self._open(gradient)
        self.local = self.local.detach().reshape(-1)
        start, end = self.spans[self.rank]
        if self.local.numel() != end - start:
            raise Error(
                "internal",
                f"shard of {self.local.numel()} elements: expected {end - start}, as Shard(0) cuts",
            )

    def _open(self, gradient: Any) -> None:
        mesh, (placement, *more) = gradient.device_mesh, gradient.placements
        if more or not placement.is_shard(0) or gradient.ndim == 0:
            self.local = gradient.full_tensor()
            return
        ranks, rows = mesh.size(), gradient.shape[0]
        each, row = -(-rows // ranks), self.elements // max(rows, 1)
        ends = [min(rank * each, rows) * row for rank in range(ranks + 1)]
        self.group, self.rank = mesh.get_group(), mesh.get_local_rank()
        self.spans = list(zip(ends, ends[1:]))
        self.local = gradient.to_local()


def _gather(
    values: Sequence[Tensor], counts: Sequence[int], group: Any, device: Any
) -> list[list[float]]:
    """The numbers of every rank of a group, `counts` of them each."""
    room = torch.zeros(max(counts), dtype=torch.float64, device=device)
    if values:
        torch.cat(list(values), out=room[: len(values)])
    if group is None:
        return [room.tolist()]
    found = room.new_empty(len(counts) * room.numel())
    dist.all_gather_into_tensor(found, room, group=group)
    rows: list[list[float]] = found.view(len(counts), -1).tolist()
    return [row[:count] for row, count in zip(rows, counts)]


def _root(nodes: Sequence[Node], values: Sequence[float], leaves: int) -> float:
    counter: Counter[float] = Counter(lambda level, a, b: a + b, leaves)
    for node, value in sorted(zip(nodes, values), key=lambda each: each[0].first):
        counter.push(node, value)
    (root,) = counter.sums
    return root


def _chunk_of(shards: _Shards) -> int:
    return _CHUNK.get(shards.local.device.type, 16)


def _sums_of_squares(all_shards: Sequence[_Shards], group: Any, device: Any) -> list[float]:
    """Of gradients that one group holds, on devices of one kind: one gather for all of them."""
    ranks = len(all_shards[0].spans)
    nodes = [
        [_nodes(*shards.spans[rank], _chunk_of(shards)) for shards in all_shards]
        for rank in range(ranks)
    ]
    values = [
        value
        for shards in all_shards
        for value in _squares(shards.local, shards.spans[shards.rank][0], _chunk_of(shards))
    ]
    counts = [sum(len(some) for some in each) for each in nodes]
    found = [iter(row) for row in _gather(values, counts, group, device)]
    made = []
    for x, shards in enumerate(all_shards):
        own = [(node, next(found[rank])) for rank in range(ranks) for node in nodes[rank][x]]
        made.append(_root([node for node, _ in own], [value for _, value in own], shards.elements))
    return made


def _norm(gradients: Sequence[Tensor]) -> float:
    shards = [_Shards(gradient) for gradient in gradients if gradient.numel() > 0]
    squares = [0.0] * len(shards)
    homes = [(each.group, each.local.device) for each in shards]
    for home in dict.fromkeys(homes):
        places = [x for x, each in enumerate(homes) if each == home]
        for x, value in zip(places, _sums_of_squares([shards[x] for x in places], *home)):
            squares[x] = value
    if not squares:
        return 0.0
    total = _root([Node(0, x) for x in range(len(squares))], squares, len(squares))
    return float(torch.tensor(total, dtype=torch.float64).sqrt())


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [x.grad for x in given if x.grad is not None]


@torch.no_grad()
def ordered_grad_norm(parameters: Tensor | Iterable[Tensor]) -> Tensor:
    """The 2-norm of the gradients of `parameters`: a float32 scalar, the same on every rank.

    Gradients are whole on every rank, or sharded as FSDP2 shards them (DTensor, Shard(0) of one
    mesh axis; others are gathered whole). The bits depend on the values and on the order of
    `parameters`, not on the number of ranks nor on the device. Waits for the device once.
    """
    gradients = _gradients(parameters)
    device = gradients[0].device if gradients else "cpu"
    return torch.tensor(_norm(gradients), dtype=torch.float32, device=device)


@torch.no_grad()
def ordered_clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, *, error_if_nonfinite: bool = False
) -> Tensor:
    """As torch.nn.utils.clip_grad_norm_(), with the norm of ordered_grad_norm(), which it returns.

    Every gradient is multiplied by max_norm / (norm + 1e-6), or by 1 if that is smaller.
    """
    gradients = _gradients(parameters)
    norm = _norm(gradients)
    if error_if_nonfinite and norm - norm != 0:
        raise Error("argument", f"norm of the gradients {norm}: expected a finite number")
    factor = max_norm / (norm + 1e-6)
    for gradient in gradients:
        gradient.mul_(1.0 if factor > 1 else factor)
    device = gradients[0].device if gradients else "cpu"
    return torch.tensor(norm, dtype=torch.float32, device=device)
