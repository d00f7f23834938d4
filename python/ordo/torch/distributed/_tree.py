"""The binary tree over micro-batches: which of its nodes ranks own, and how they are added.

Node (level, index) is the sum of the leaves index * 2^level ... (index + 1) * 2^level - 1, those
that exist; it is one addition of its two children, or its left child where there is no right one
(ordo/sum.h). A leaf is one micro-batch. A rank adds what it owns up to the largest nodes that are
all its own; the rest of the tree is added where the nodes of all ranks meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from .._sum import add_two, tree_sum

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    level: int
    index: int

    @property
    def first(self) -> int:
        """Its first leaf."""
        return self.index << self.level


class Counter(Generic[T]):
    """Sums of nodes that arrive in ascending order, as the digits of a binary counter.

    Leaves of an aligned block of n need at most log2(n) + 1 sums; any others twice that.
    `add(level, left, right)` adds two nodes of one level. `leaves`, if given, is the number of
    leaves of the whole tree: then a node without a right sibling stands for its parent.
    """

    def __init__(self, add: Callable[[int, T, T], T], leaves: int | None = None) -> None:
        self._add, self._leaves = add, math.inf if leaves is None else leaves
        self.nodes: list[Node] = []
        self.sums: list[T] = []

    def push(self, node: Node, value: T) -> None:
        while self.nodes:
            if self.nodes[-1] == Node(node.level, node.index ^ 1):  # its left sibling
                self.nodes.pop()
                value = self._add(node.level, self.sums.pop(), value)
            elif node.index & 1 or node.index == 0 or node.first + (1 << node.level) < self._leaves:
                break  # a right child, or a left one with a right sibling
            node = Node(node.level + 1, node.index >> 1)
        self.nodes.append(node)
        self.sums.append(value)


def nodes_of(leaves: Iterable[int]) -> list[Node]:
    """The largest nodes that these leaves, in ascending order, add up to."""
    counter: Counter[None] = Counter(lambda level, left, right: None)
    for leaf in leaves:
        counter.push(Node(0, leaf), None)
    return counter.nodes


def add_tensors(level: int, left: Sequence[Tensor], right: Sequence[Tensor]) -> list[Tensor]:
    """left + right, tensor by tensor; sums of level 1 and above are ours, and are overwritten."""
    return [add_two(a, b, a if level > 0 else None) for a, b in zip(left, right)]


def fold(nodes: Sequence[Node], sums: Sequence[Tensor], leaves: int) -> Tensor:
    """The root of the tree over `leaves` leaves from nodes that cover it, in any order.

    Sums of level 1 and above, and those of several ranks, are overwritten.
    """
    order = sorted(range(len(nodes)), key=lambda x: nodes[x].first)
    if len(nodes) == 1 and nodes[0].level > 0:
        return sums[0]
    if all(nodes[x] == Node(nodes[0].level, at) for at, x in enumerate(order)):
        return tree_sum([sums[x] for x in order])  # nodes of one level are a tree themselves
    counter: Counter[Tensor] = Counter(lambda level, a, b: tree_sum([a, b], out=a), leaves)
    for x in order:
        counter.push(nodes[x], sums[x].to(torch.float32))
    (root,) = counter.sums
    return root
