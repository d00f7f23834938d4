"""Sums over all micro-batches of all ranks, by one tree: the bits do not depend on the ranks.

A rank adds its own micro-batches up to nodes of the tree (_tree.py). One all-to-all hands every
rank its slice of the nodes of all ranks; there the top of the tree is added. The slice is the
result of a reduce-scatter, and gathered that of an all-reduce.

Where the micro-batches divide evenly into aligned blocks, a rank has one node, and the volume is
that of a ring reduce-scatter in float32; other numbers give a rank a few nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..._library import Error
from ._facts import Facts, gather_facts, rank_in, same, size_of
from ._tree import Counter, Node, add_tensors, fold, nodes_of

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ALIGN = 64  # elements: slices of an all-reduce begin at a multiple of 16 bytes


def owned_micro_batches(micro_batches: int, group: Any = None) -> range:
    """The micro-batches of this rank: contiguous, and at most one more than another rank's."""
    return _share(micro_batches, size_of(group), rank_in(group))


def _share(micro_batches: int, ranks: int, rank: int) -> range:
    each, more = divmod(micro_batches, ranks)
    first = rank * each + min(rank, more)
    return range(first, first + each + (rank < more))


class Shares:
    """Who owns which of the micro-batches 0 ... leaves - 1; checked, and the same on every rank.

    `dtype` and `device` are those of the leaves.
    """

    def __init__(
        self, what: str, owned: Sequence[Sequence[int]], leaves: int, dtype: Any, device: Any
    ) -> None:
        self.leaves, self.dtype, self.device = leaves, dtype, device
        self.nodes = [nodes_of(each) for each in owned]
        found = sorted((leaf, rank) for rank, each in enumerate(owned) for leaf in each)
        for place, (leaf, rank) in enumerate(found):
            if not 0 <= leaf < leaves:
                raise Error(
                    "argument",
                    f"{what}: rank {rank} owns micro-batch {leaf}: expected 0 to {leaves - 1}",
                )
            if place and found[place - 1][0] == leaf:
                raise Error(
                    "argument",
                    f"{what}: ranks {found[place - 1][1]} and {rank} both own micro-batch {leaf}",
                )
        if len(found) < leaves:
            missing = min(set(range(leaves)) - {leaf for leaf, _ in found})
            raise Error("argument", f"{what}: no rank owns micro-batch {missing} of {leaves}")


def check_owned(owned: Sequence[int]) -> Error | None:
    """What is wrong with a rank's own micro-batches, apart from those of others."""
    if list(owned) != sorted(set(owned)):
        return Error("argument", f"owned {list(owned)}: expected ascending indices")
    return None


# ---- the exchange ----


def reduce_slice(sums: Sequence[Tensor], shares: Shares, width: int, group: Any) -> Tensor:
    """This rank's slice, of `width` elements, of the root of the tree.

    `sums` are the flat sums of this rank's nodes, each of at most width * ranks elements; what is
    missing counts as 0. Returns float32; with one rank the whole root instead.
    """
    ranks, rank = size_of(group), rank_in(group)
    if ranks == 1:
        return fold(shares.nodes[0], sums, shares.leaves)
    mine = len(shares.nodes[rank])
    leaf_only = all(node.level == 0 for each in shares.nodes for node in each)
    wire = shares.dtype if leaf_only else torch.float32
    send = torch.empty((ranks, mine, width), dtype=wire, device=shares.device)
    for x, flat in enumerate(sums):
        _scatter_rows(send[:, x], flat)
    counts = [len(each) for each in shares.nodes]
    received = torch.empty((sum(counts), width), dtype=wire, device=shares.device)
    dist.all_to_all_single(
        received.view(-1), send.view(-1), [count * width for count in counts],
        [mine * width] * ranks, group=group,
    )  # fmt: skip
    nodes = [node for each in shares.nodes for node in each]
    return fold(nodes, received.unbind(0), shares.leaves)


def _scatter_rows(rows: Tensor, flat: Tensor) -> None:
    """rows[r] = part r of `flat`, zeros behind its end."""
    width = rows.shape[1]
    whole, rest = divmod(flat.numel(), width) if width else (0, 0)
    rows[:whole].copy_(flat[: whole * width].view(whole, width))
    if whole < rows.shape[0]:
        rows[whole:].zero_()
        rows[whole, :rest].copy_(flat[whole * width :])


def gather_slices(piece: Tensor, elements: int, group: Any) -> Tensor:
    """The first `elements` of the slices of all ranks, on every rank."""
    ranks = size_of(group)
    if ranks == 1:
        return piece[:elements]
    whole = piece.new_empty(ranks * piece.numel())
    dist.all_gather_into_tensor(whole, piece.contiguous(), group=group)
    return whole[:elements]


def reduce_all(sums: Sequence[Tensor], shares: Shares, elements: int, group: Any) -> Tensor:
    """The root of the tree on every rank: flat, float32."""
    step = size_of(group) * _ALIGN
    width = -(-elements // step) * _ALIGN
    return gather_slices(reduce_slice(sums, shares, width, group), elements, group)


def _device_of(kind: str) -> Any:
    """Where a rank without micro-batches has its buffers."""
    return torch.device(kind, torch.cuda.current_device() if kind == "cuda" else None)


# ---- plain functions ----


def _check_leaf(name: str, leaf: Any, first: Any) -> Error | None:
    if not isinstance(leaf, Tensor):
        return Error("argument", f"{name} {type(leaf).__name__}: expected a tensor")
    if leaf.dtype not in _DTYPES:
        expected = "float32, bfloat16 or float16"
        return Error("argument", f"{name}.dtype {leaf.dtype}: expected {expected}")
    for what in ("shape", "dtype", "device"):
        got, expected = getattr(leaf, what), getattr(first, what)
        if got != expected:
            return Error("shape", f"{name}.{what} {got}: expected {expected}, as leaves[0]")
    return None


def _describe(leaves: Sequence[Tensor], owned: Sequence[int] | None) -> tuple[Facts, Error | None]:
    """What other ranks must know of a call, and why it is refused."""
    facts: dict[str, Any] = dict.fromkeys(("shape", "dtype", "device", "owned"))
    facts["count"], failure = len(leaves), None
    for index, leaf in enumerate(leaves):
        failure = _check_leaf(f"leaves[{index}]", leaf, leaves[0])
        if failure is not None:
            break
        facts["shape"], facts["dtype"] = tuple(leaf.shape), str(leaf.dtype)
        facts["device"] = leaf.device.type
    if owned is not None and failure is None:
        facts["owned"] = list(owned)
        failure = check_owned(owned)
        if len(owned) != len(leaves):
            failure = Error(
                "argument", f"owned: {len(owned)} indices: expected {len(leaves)}, one per leaf"
            )
    return facts, failure


def _agree(what: str, leaves: Sequence[Tensor], owned: Any, extra: Facts, group: Any) -> Any:
    """(shares, this rank's micro-batches, the shape), the same for all ranks or an error on all."""
    facts, failure = _describe(leaves, owned)
    found = gather_facts(what, {**facts, **extra}, group, failure)
    same(what, found, ["shape", "dtype", "device", *extra])
    if any((each["owned"] is None) != (found[0]["owned"] is None) for each in found):
        raise Error("argument", f"{what}: owned: given on some ranks; expected on all or on none")
    total = sum(each["count"] for each in found)
    if total == 0:
        raise Error("argument", f"{what}: leaves []: expected a micro-batch on some rank")
    lists = [each["owned"] for each in found]
    if found[0]["owned"] is None:
        ends = [0]
        for each in found:
            ends.append(ends[-1] + each["count"])
        lists = [list(range(a, b)) for a, b in zip(ends, ends[1:])]
    known = next(each for each in found if each["shape"] is not None)
    dtype = next(x for x in _DTYPES if str(x) == known["dtype"])
    device = leaves[0].device if leaves else _device_of(known["device"])
    shares = Shares(what, lists, total, dtype, device)
    return shares, lists[rank_in(group)], torch.Size(known["shape"])


def _add_leaves(leaves: Sequence[Tensor], owned: Sequence[int]) -> list[Tensor]:
    """The sums of this rank's nodes, flat."""
    counter: Counter[Sequence[Tensor]] = Counter(add_tensors)
    for leaf, index in zip(leaves, owned):
        counter.push(Node(0, index), [leaf.detach().reshape(-1)])
    return [sums[0] for sums in counter.sums]


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
    what = "ordered_all_reduce"
    shares, mine, shape = _agree(what, leaves, owned, {"mean": bool(mean)}, group)
    sums = _add_leaves(leaves, mine)
    made = reduce_all(sums, shares, shape.numel(), group)
    if mean:
        made = made.div_(shares.leaves)
    return made.view(shape)


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
    what = "ordered_reduce_scatter"
    shares, mine, shape = _agree(what, leaves, owned, {"mean": bool(mean)}, group)
    sums = _add_leaves(leaves, mine)
    elements, ranks = shape.numel(), size_of(group)
    width = -(-elements // ranks)
    piece = reduce_slice(sums, shares, width, group)
    if mean:
        piece = piece.div_(shares.leaves)
    return piece[: max(0, min(width, elements - rank_in(group) * width))]


def ordered_mean(
    values: Sequence[Tensor | float], *, owned: Sequence[int] | None = None, group: Any = None
) -> Tensor:
    """The mean of one number per micro-batch over all ranks, such as the loss: a float32 scalar.

    `values` are the numbers of this rank's micro-batches; see ordered_all_reduce().
    """
    nccl = size_of(group) > 1 and dist.get_backend(group) == "nccl"  # which takes no others
    device = _device_of("cuda") if nccl else None
    leaves = [torch.as_tensor(x, dtype=torch.float32, device=device).detach() for x in values]
    return ordered_all_reduce([x.reshape(()) for x in leaves], mean=True, owned=owned, group=group)
