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


def _nodes_of(x: Any, a: int, level: int) -> list[tuple[Node, float]]:
    """Nodes that cover nodes a ... of a level, whose sums are x: at each level those without sibling."""
    made = []
    while len(x):
        b = a + len(x)
        if a & 1:
            made.append((Node(level, a), float(x[0])))
            x = x[1:]
        if b & 1 and len(x):
            made.append((Node(level, b - 1), float(x[-1])))
            x = x[:-1]
        x, a, level = x[0::2] + x[1::2], (a + 1) >> 1, level + 1
    return made


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


def _squares(shards: Sequence[_Shard]) -> list[list[tuple[Node, float]]]:
    """Nodes that cover each shard, with their sums of squares. All shards are on one device; waits for
    it once."""
    level, raw = 0, 0
    rest = [(at, x.start, x.local) for at, x in enumerate(shards)]  # (shard, first node of a level, values)
    left: list[tuple[int, int, int, Tensor]] = []  # (shard, first node, level, values) behind the blocks
    while rest:
        parts, places = [], []
        for at, a, x in rest:
            b = a + x.numel()
            last = b == -(-shards[at].elements >> level)  # it ends the tree, and zeros follow
            low, high = -(-a // _BLOCK) * _BLOCK, (-(-b // _BLOCK) if last else b // _BLOCK) * _BLOCK
            if low >= min(b, high) or (level > 0 and x.numel() == 1):
                low = high = b
            ends = ((a, low), (min(high, b), b))
            left += [(at, p, level, x[p - a : q - a]) for p, q in ends if p < q]
            if low < high:
                parts.append((x[low - a : high - a], max(high - b, 0)))
                places.append((at, low >> _LEVELS))
        raw = len(left) if level == 0 else raw  # left[:raw] are elements, not sums
        counts = [(x.numel() + zeros) >> _LEVELS for x, zeros in parts]
        sums = _add_blocks(parts, level == 0).split(counts) if parts else ()
        rest = [(at, a, x) for (at, a), x in zip(places, sums)]
        level += _LEVELS
    wide = [_wide([x for *_, x in left[:raw]], True)] if raw else []
    wide += [x for *_, x in left[raw:]]
    found = torch.cat(wide).cpu().numpy() if wide else np.empty(0)
    made: list[list[tuple[Node, float]]] = [[] for _ in shards]
    begin = 0
    for at, a, level, x in left:
        made[at] += _nodes_of(found[begin : begin + x.numel()], a, level)
        begin += x.numel()
    return made


# ---- shards ----


class _Shard(NamedTuple):
    """One gradient as this rank holds it."""

    local: Tensor  # flat
    start: int  # index of its first element
    elements: int  # in the whole gradient
    group: Any  # whose ranks hold the others; None: all are here


def _shard(gradient: Any) -> _Shard:
    start, group, local = 0, None, gradient
    if hasattr(gradient, "device_mesh"):
        mesh, (placement, *more) = gradient.device_mesh, gradient.placements
        if more or not placement.is_shard(0) or gradient.ndim == 0:
            local = gradient.full_tensor()
        else:
            rows, group, local = gradient.shape[0], mesh.get_group(), gradient.to_local()
            first = min(mesh.get_local_rank() * -(-rows // mesh.size()), rows)
            start = first * (gradient.numel() // max(rows, 1))
    return _Shard(local.detach().reshape(-1), start, gradient.numel(), group)


def _root(pairs: Iterable[tuple[Node, float]], leaves: int) -> float:
    counter: Counter[float] = Counter(lambda level, a, b: a + b, leaves)
    for node, value in sorted(pairs, key=lambda each: each[0].first):
        counter.push(node, value)
    (root,) = counter.sums
    return root


def _sums_of_squares(shards: Sequence[_Shard], group: Any) -> list[float]:
    """Of gradients that one group holds, on devices of one kind: one gather for all of them."""
    nodes = _squares(shards)
    if group is not None:
        rows = [(x, n.level, n.index, value) for x, each in enumerate(nodes) for n, value in each]
        found: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(found, np.array(rows).reshape(-1, 4), group=group)
        nodes = [[] for _ in shards]
        for x, level, index, value in np.concatenate(found).tolist():
            nodes[int(x)].append((Node(int(level), int(index)), value))
    return [_root(pairs, shard.elements) for pairs, shard in zip(nodes, shards)]


def _norm(gradients: Sequence[Tensor]) -> float:
    shards = [_shard(gradient) for gradient in gradients if gradient.numel() > 0]
    homes: dict[Any, list[int]] = {}
    for x, each in enumerate(shards):
        homes.setdefault((each.group, each.local.device), []).append(x)
    squares: dict[Node, float] = {}
    for (group, _), places in homes.items():
        sums = _sums_of_squares([shards[x] for x in places], group)
        squares |= {Node(0, x): value for x, value in zip(places, sums)}
    if not squares:
        return 0.0
    return math.sqrt(_root(squares.items(), len(squares)))  # correctly rounded; PyTorch's is not everywhere


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [x.grad for x in given if x.grad is not None]


def _scalar(norm: float, gradients: Sequence[Tensor]) -> Tensor:
    """The norm on the device of the gradients; not a copy to it, which would wait."""
    device = gradients[0].device if gradients else "cpu"
    made = torch.full((), norm, dtype=torch.float64, device=device)
    return made.to(torch.float32)  # infinite if it is too large


def _multiply(gradients: Sequence[Any], factor: float) -> None:
    """Those of float32 in one call, which takes no mix of sharded and whole ones; of 16 bits, that
    call rounds the factor first."""
    own = [x.to_local() if hasattr(x, "device_mesh") else x for x in gradients]
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
