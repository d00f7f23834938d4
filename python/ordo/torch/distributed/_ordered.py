"""Sums over all micro-batches of all ranks, by one tree: the bits do not depend on the ranks.

A rank adds its own micro-batches up to nodes of the tree (_tree.py), of which it has one where the
micro-batches divide evenly into aligned blocks. One all-to-all hands every rank its slice of the nodes
of all ranks; there the top of the tree is added: docs/guide/ordered-sums.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..._library import Error
from .._sum import check_alike
from ._agree import agree
from ._exchange import Ranks
from ._tree import Counter, Node, add_tensors, fold, nodes_of

_ALIGN = 64  # elements: slices of an all-reduce begin at a multiple of 16 bytes


def owned_micro_batches(micro_batches: int, group: Any = None) -> range:
    """The micro-batches of this rank: contiguous, and at most one more than another rank's."""
    _, rank, size = Ranks.of(group, alone=True)
    return _share(micro_batches, size, rank)


def _share(micro_batches: int, ranks: int, rank: int) -> range:
    each, more = divmod(micro_batches, ranks)
    first = rank * each + min(rank, more)
    return range(first, first + each + (rank < more))


class Shares:
    """Who owns which of the micro-batches 0 ... leaves - 1; checked, and the same on every rank."""

    def __init__(
        self, what: str, ranks: Ranks, owned: Sequence[Sequence[int]], leaves: int
    ) -> None:
        wrong = _wrong_with(owned, leaves)
        if wrong:
            raise Error("argument", f"{what}: {wrong}")
        self.ranks, self.owned, self.leaves = ranks, owned, leaves
        self.nodes = [nodes_of(each) for each in owned]


def _wrong_with(owned: Sequence[Sequence[int]], leaves: int) -> str | None:
    if leaves < 1:
        return f"micro_batches {leaves}: expected at least 1"
    owners: dict[int, int] = {}
    for rank, each in enumerate(owned):
        if list(each) != sorted(set(each)):
            return f"rank {rank} owns micro-batches {list(each)}: expected ascending ones"
        for leaf in each:
            if not 0 <= leaf < leaves:
                return f"rank {rank} owns micro-batch {leaf}: expected 0 to {leaves - 1}"
            if leaf in owners:
                return f"ranks {owners[leaf]} and {rank} both own micro-batch {leaf}"
            owners[leaf] = rank
    if len(owners) < leaves:
        return f"no rank owns micro-batch {min(set(range(leaves)) - set(owners))} of {leaves}"
    return None


# ---- the exchange ----


def reduce_slice(
    sums: Sequence[Tensor], shares: Shares, width: int, like: Tensor, mean: bool
) -> Tensor:
    """This rank's slice, of `width` elements, of the root of the tree, or of the mean.

    `sums` are the flat sums of this rank's nodes, each of at most width * ranks elements; what is
    missing counts as 0. The leaves have the type and the device of `like`. Returns float32; with
    one rank the whole root instead.
    """
    group, rank, ranks = shares.ranks
    nodes = shares.nodes[rank]
    if ranks > 1:
        leaf_only = all(node.level == 0 for each in shares.nodes for node in each)
        wire = like.dtype if leaf_only else torch.float32
        send = like.new_empty((len(nodes), ranks * width), dtype=wire)
        for row, flat in zip(send, sums):
            row[: flat.numel()] = flat
            row[flat.numel() :] = 0
        slices = send.view(len(nodes), ranks, width).transpose(0, 1).reshape(-1)
        counts = [len(each) * width for each in shares.nodes]
        received = like.new_empty(sum(counts), dtype=wire)
        given = [len(nodes) * width] * ranks
        dist.all_to_all_single(received, slices, counts, given, group=group)
        nodes = [node for each in shares.nodes for node in each]
        sums = received.view(len(nodes), width).unbind(0)
    root = fold(nodes, sums, shares.leaves)
    return root.div_(shares.leaves) if mean else root


def reduce_all(
    sums: Sequence[Tensor], shares: Shares, elements: int, like: Tensor, mean: bool
) -> Tensor:
    """The root of the tree, or the mean, on every rank: flat, float32."""
    group, _, ranks = shares.ranks
    width = -(-elements // (ranks * _ALIGN)) * _ALIGN
    piece = reduce_slice(sums, shares, width, like, mean)
    if ranks == 1:
        return piece
    whole = piece.new_empty(ranks * width)
    dist.all_gather_into_tensor(whole, piece.contiguous(), group=group)
    return whole[:elements]


# ---- plain functions ----


def _agreed(
    what: str, leaves: Sequence[Tensor], owned: Sequence[int] | None, mean: bool, group: Any
) -> tuple[list[Tensor], Shares, Tensor]:
    """(the flat sums of this rank's nodes, shares, a tensor like each leaf), or an error on all ranks."""
    ranks = Ranks.of(group, alone=True)
    facts: dict[str, Any] = {"mean": bool(mean), "count": len(leaves), "owned given": owned is not None}
    failure = None
    try:
        if leaves:
            check_alike("leaves", leaves)
            first = leaves[0]
            facts |= {"shape": tuple(first.shape), "dtype": first.dtype, "device": first.device.type}
        if owned is not None:
            facts["owned"] = list(owned)
            if len(owned) != len(leaves):
                many = f"owned: {len(owned)} indices"
                raise Error("argument", f"{many}: expected {len(leaves)}, one per leaf")
    except Exception as error:  # raised by agree(), after the other ranks have heard of it
        failure = error
    found = agree(ranks, what, facts, failure, ("count", "owned"))
    counts = [each["count"] for each in found]
    lists = [range(sum(counts[:r]), sum(counts[: r + 1])) for r in range(ranks.size)]
    if owned is not None:
        lists = [each["owned"] for each in found]
    shares, summed = Shares(what, ranks, lists, sum(counts)), Counter(add_tensors)
    for leaf, index in zip(leaves, lists[ranks.rank]):
        summed.push(Node(0, index), [leaf.detach().reshape(-1)])
    known = next(each for each in found if "shape" in each)
    device = leaves[0].device if leaves else _device_of(known["device"])
    like = torch.empty(known["shape"], dtype=known["dtype"], device=device)
    return [sums[0] for sums in summed.sums], shares, like


def _device_of(kind: str) -> Any:
    """Where a rank without micro-batches has its buffers."""
    return torch.device(kind, torch.cuda.current_device() if kind == "cuda" else None)


@torch.no_grad()
def ordered_all_reduce(
    leaves: Sequence[Tensor],
    *,
    mean: bool = False,
    owned: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """The float32 sum, or mean, of one tensor per micro-batch over all ranks, on every rank.

    `leaves` are the tensors of this rank's micro-batches, float32, bfloat16 or float16, of one
    shape and type on all ranks. Micro-batches are numbered through the ranks in order: those of
    rank 0, then of rank 1, and so on; `owned` gives other numbers, ascending, for `leaves`. A rank
    may have none. The bits depend on the tensors and their numbers alone, not on the ranks.

    Ranks that disagree get an ordo.Error, on all of them.
    """
    sums, shares, like = _agreed("ordered_all_reduce", leaves, owned, mean, group)
    return reduce_all(sums, shares, like.numel(), like, mean).view(like.shape)


@torch.no_grad()
def ordered_reduce_scatter(
    leaves: Sequence[Tensor],
    *,
    mean: bool = False,
    owned: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """As ordered_all_reduce(), but rank r gets only its slice of the flattened result.

    The slice is elements r * w ... (r + 1) * w - 1, those that exist, where w is the number of
    elements divided by the number of ranks, rounded up.
    """
    sums, shares, like = _agreed("ordered_reduce_scatter", leaves, owned, mean, group)
    elements, (_, rank, ranks) = like.numel(), shares.ranks
    width = -(-elements // ranks)
    piece = reduce_slice(sums, shares, width, like, mean)
    return piece[: max(0, min(width, elements - rank * width))]


def ordered_mean(
    values: Sequence[Tensor | float], *, owned: Sequence[int] | None = None, group: Any = None
) -> Tensor:
    """The mean of one number per micro-batch over all ranks, such as the loss: a float32 scalar.

    `values` are the numbers of this rank's micro-batches; see ordered_all_reduce().
    """
    ranks = Ranks.of(group, alone=True)
    nccl = ranks.size > 1 and dist.get_backend(ranks.group) == "nccl"  # which takes no others
    device = _device_of("cuda") if nccl else None
    leaves = [torch.as_tensor(x, dtype=torch.float32, device=device).detach() for x in values]
    return ordered_all_reduce([x.reshape(()) for x in leaves], mean=True, owned=owned, group=group)
