"""The norm of gradients by one tree over their elements: its bits do not depend on the ranks.

The squares of a gradient's elements are added in float64 by the tree of _tree.py over their
positions in the whole gradient. A shard of it, elements a ... b - 1, adds up to a few nodes of that
tree, wherever it begins; the nodes of all shards are gathered and the rest is added on the host.

Squares are not negative, so that adding zeros changes no bit: a tree that ends inside a block of
2^8 nodes is filled up with zeros. The blocks of all gradients are then added together, in a few
operations, to sums of 2^8 nodes; and these again, until a whole gradient is one number. While the
host adds what is left, the device has nothing to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ..._library import Error
from ._tree import Counter, Node

_LEVELS = 8  # that are added at once, in blocks of 2^8 nodes
_BLOCK = 1 << _LEVELS
_PIECE = {"cpu": 18, "cuda": 24}  # log2 of the nodes that are taken at once: these stay in cache


class _Step(NamedTuple):
    """Nodes of one level: those of whole blocks go up, others stay behind."""

    level: int
    start: int
    low: int  # blocks are low ... high - 1; high may lie past the end of the tree: zeros
    high: int
    end: int


@lru_cache(1 << 16)  # of equal gradients in every step of a run
def _steps(a: int, b: int, elements: int) -> list[_Step]:
    """How elements a ... b - 1 of a gradient are added."""
    made: list[_Step] = []
    level = 0
    while level == 0 or b - a > 1:
        low = -(-a // _BLOCK) * _BLOCK
        last = b == -(-elements >> level)  # of the tree
        high = (-(-b // _BLOCK) if last else b // _BLOCK) * _BLOCK
        if low >= min(b, high):
            break
        made.append(_Step(level, a, low, high, b))
        a, b, level = low >> _LEVELS, high >> _LEVELS, level + _LEVELS
    return [*made, _Step(level, a, b, b, b)]


def _left(step: _Step) -> list[tuple[int, int]]:
    """The nodes that stay behind: before the blocks, and behind them."""
    ends = ((step.start, step.low), (min(step.high, step.end), step.end))
    return [(a, b) for a, b in ends if a < b]


def _halves(a: int, b: int) -> Iterable[tuple[int, int, bool, bool]]:
    """Per level, for nodes a ... b - 1: (a, b, whether a and b - 1 have no sibling there)."""
    while a < b:
        yield a, b, bool(a & 1), bool(b & 1) and b - 1 >= a + (a & 1)
        a, b = (a + 1) >> 1, b >> 1


def _nodes_from(a: int, b: int, level: int) -> list[Node]:
    """Nodes that cover nodes a ... b - 1 of a level, in the order of _sums_from()."""
    made = []
    for up, (start, end, first, last) in enumerate(_halves(a, b)):
        made += [Node(level + up, start)] * first + [Node(level + up, end - 1)] * last
    return made


def _sums_from(x: Any, a: int) -> list[float]:
    """The sums of those nodes; x holds nodes a ... of the level."""
    made = []
    for _, _, first, last in _halves(a, a + len(x)):
        if first:
            made.append(float(x[0]))
            x = x[1:]
        if last:
            made.append(float(x[-1]))
            x = x[:-1]
        x = x[0::2] + x[1::2]
    return made


@lru_cache(1 << 16)
def _nodes(a: int, b: int, elements: int) -> list[Node]:
    """Nodes that cover elements a ... b - 1, in the order of _squares()."""
    spans = [(*span, step.level) for step in _steps(a, b, elements) for span in _left(step)]
    return [node for span in spans for node in _nodes_from(*span)]


def _pieces(parts: Sequence[tuple[Tensor, int]], most: int) -> Iterable[list[Tensor]]:
    """Parts, each with the zeros that fill its last block, in lists of at most `most` nodes."""
    piece: list[Tensor] = []
    room = most
    zero = parts[0][0].new_zeros(_BLOCK)
    for x, zeros in parts:
        while x.numel() + zeros > room:
            piece.append(x[:room])
            x = x[room:]
            yield piece
            piece, room = [], most
        piece += [x, zero[:zeros]] if zeros else [x]
        room -= x.numel() + zeros
    if piece:
        yield piece


def _add_blocks(parts: Sequence[tuple[Tensor, int]], square: bool) -> Tensor:
    """The sums of all blocks of the parts, as one tensor."""
    made = []
    for piece in _pieces(parts, 1 << _PIECE.get(parts[0][0].device.type, 18)):
        x = _wide(piece, square)
        for _ in range(_LEVELS):
            x = x[0::2] + x[1::2]
        made.append(x)
    return torch.cat(made)


def _wide(parts: Sequence[Tensor], square: bool) -> Tensor:
    x = parts[0] if len(parts) == 1 else torch.cat(list(parts))
    return x.to(torch.float64, copy=True).square_() if square else x


def _squares(shards: Sequence[tuple[Tensor, int, int]]) -> list[list[float]]:
    """Sums of squares of the nodes of shards: flat tensors, their first elements, and how many
    elements the gradient has. All are on one device; waits for it once."""
    steps = [_steps(a, a + x.numel(), elements) for x, a, elements in shards]
    values = [x for x, _, _ in shards]
    left: list[tuple[int, int, Tensor]] = []  # shard, first node, values
    raw = 0  # of these, so many are elements, not sums
    for turn in range(max(map(len, steps))):
        parts, owners = [], []
        for shard, each in enumerate(steps):
            if turn >= len(each):
                continue
            step, x = each[turn], values[shard]
            left += [(shard, a, x[a - step.start : b - step.start]) for a, b in _left(step)]
            if step.low < step.high:
                body = x[step.low - step.start : step.high - step.start]
                parts.append((body, step.high - step.low - body.numel()))
                owners.append(shard)
        if turn == 0:
            raw = len(left)
        if parts:
            counts = [(x.numel() + zeros) >> _LEVELS for x, zeros in parts]
            for shard, x in zip(owners, _add_blocks(parts, turn == 0).split(counts)):
                values[shard] = x
    return _on_host(left, raw, len(shards))


def _on_host(
    left: Sequence[tuple[int, int, Tensor]], raw: int, shards: int
) -> list[list[float]]:
    """Add what stays behind, by shard; the first `raw` ones are elements, to be squared."""
    wide = [_wide([x for _, _, x in left[:raw]], True)] if raw else []
    wide += [x for _, _, x in left[raw:]]
    found = torch.cat(wide).cpu().numpy() if wide else np.empty(0)
    made: list[list[float]] = [[] for _ in range(shards)]
    at = 0
    for shard, a, x in left:
        count = x.numel()
        values = found[at : at + count]
        made[shard] += _sums_from(values, a) if count > 1 else values.tolist()
        at += count
    return made


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
    values: Sequence[float], counts: Sequence[int], group: Any, device: Any
) -> Sequence[Sequence[float]]:
    """The numbers of every rank of a group, `counts` of them each."""
    if group is None:
        return [values]
    room = torch.zeros(max(counts), dtype=torch.float64)
    room[: len(values)] = torch.tensor(values, dtype=torch.float64)
    room = room.to(device)
    found = room.new_empty(len(counts) * room.numel())
    dist.all_gather_into_tensor(found, room, group=group)
    rows: list[list[float]] = found.view(len(counts), -1).tolist()
    return [row[:count] for row, count in zip(rows, counts)]


def _root(nodes: Sequence[Node], values: Sequence[float], leaves: int) -> float:
    if len(nodes) == 1:
        return values[0]
    counter: Counter[float] = Counter(lambda level, a, b: a + b, leaves)
    for node, value in sorted(zip(nodes, values), key=lambda each: each[0].first):
        counter.push(node, value)
    (root,) = counter.sums
    return root


def _sums_of_squares(all_shards: Sequence[_Shards], group: Any, device: Any) -> list[float]:
    """Of gradients that one group holds, on devices of one kind: one gather for all of them."""
    ranks = len(all_shards[0].spans)
    nodes = [
        [_nodes(*shards.spans[rank], shards.elements) for shards in all_shards]
        for rank in range(ranks)
    ]
    own = [(x.local, x.spans[x.rank][0], x.elements) for x in all_shards]
    values = [value for each in _squares(own) for value in each]
    counts = [sum(len(some) for some in each) for each in nodes]
    found = [iter(row) for row in _gather(values, counts, group, device)]
    made = []
    for x, shards in enumerate(all_shards):
        pairs = [(node, next(found[rank])) for rank in range(ranks) for node in nodes[rank][x]]
        made.append(_root([n for n, _ in pairs], [value for _, value in pairs], shards.elements))
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
    total = np.array(squares)
    while len(total) > 1:
        total = np.append(total, 0.0) if len(total) & 1 else total  # changes no bit
        total = total[0::2] + total[1::2]
    return math.sqrt(total[0])  # correctly rounded, which PyTorch's is not everywhere


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [x.grad for x in given if x.grad is not None]


def _scalar(norm: float, gradients: Sequence[Tensor]) -> Tensor:
    """The norm on the device of the gradients; not a copy to it, which would wait."""
    device = gradients[0].device if gradients else "cpu"
    made = torch.full((), norm, dtype=torch.float64, device=device)
    return made.to(torch.float32)  # infinite if it is too large


def _own(gradient: Any) -> Tensor:
    """This rank's part."""
    part: Tensor = gradient.to_local() if hasattr(gradient, "device_mesh") else gradient
    return part


def _multiply(gradients: Sequence[Tensor], factor: float) -> None:
    """Those of float32 in one call, which takes no mix of sharded and whole ones; of 16 bits, that
    call rounds the factor first."""
    own = [_own(x) for x in gradients]
    wide = [x for x in own if x.dtype == torch.float32]
    if wide:
        torch._foreach_mul_(wide, factor)
    for x in own:
        if x.dtype != torch.float32:
            x.mul_(factor)


@torch.no_grad()
def ordered_grad_norm(parameters: Tensor | Iterable[Tensor]) -> Tensor:
    """The 2-norm of the gradients of `parameters`: a float32 scalar, the same on every rank.

    Gradients are whole on every rank, or sharded as FSDP2 shards them (DTensor, Shard(0) of one
    mesh axis; others are gathered whole). The bits depend on the values and on the order of
    `parameters`, not on the number of ranks nor on the device. Waits for the device; once more if
    gradients are sharded.
    """
    gradients = _gradients(parameters)
    return _scalar(_norm(gradients), gradients)


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
    if not factor > 1:
        _multiply(gradients, factor)
    return _scalar(norm, gradients)
