"""Gradients of micro-batches, taken one by one and added by the tree over all of them.

Autograd adds the gradient of a second micro-batch to that of the first: in the order of arrival,
and then the tree is lost. So each gradient is taken away as soon as its backward pass is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..._library import Error
from ._agree import agree
from ._exchange import Ranks
from ._ordered import Shares, check_owned, owned_micro_batches, reduce_all
from ._tree import Node, Summed

_BUCKET = 16 << 20  # elements that are exchanged at once


class Leaves:
    """The micro-batches of this rank in one step: which comes next, and the sums so far.

    Raises Error on every rank unless all have the same parameters and number of micro-batches.
    """

    def __init__(
        self, what: str, parameters: Sequence[Tensor], micro_batches: int,
        owned: Sequence[int] | None, group: Any,
    ) -> None:  # fmt: skip
        self.what, self.ranks = what, Ranks.of(group, alone=True)
        self.count, failure = int(micro_batches), None
        if owned is None:
            owned = owned_micro_batches(max(self.count, 0), group)
        self.owned = list(owned)
        try:
            if self.count < 1:
                raise Error("argument", f"micro_batches {micro_batches}: expected at least 1")
            check_owned(self.owned)
        except Error as error:
            failure = error
        facts: dict[str, Any] = {"micro_batches": self.count, "parameters": len(parameters)}
        for x, p in enumerate(parameters):
            facts[f"parameter {x}"] = f"{str(p.dtype)[6:]} {tuple(p.shape)}"
        found = agree(self.ranks, what, {**facts, "owned": self.owned}, failure, ["owned"])
        self.lists: list[Sequence[int]] = [each["owned"] for each in found]
        Shares(what, self.ranks, self.lists, self.count)
        self.restart()

    def restart(self) -> None:
        """Begin the next step."""
        self.summed = Summed()
        self.taken = 0

    def shares(self, like: Tensor) -> Shares:
        """For leaves of the type and on the device of `like`."""
        return Shares(self.what, self.ranks, self.lists, self.count, like.dtype, like.device)

    def reduce(
        self, places: Sequence[int], like: Sequence[Tensor], *, last: int | None = None, mean: bool = True
    ) -> list[Tensor]:
        """The gradients of the parameters at `places`, over all micro-batches, in the shapes of `like`,
        whose type is that of the leaves: its tensors are those of micro-batch `last` if that was not
        pushed."""
        dtype, summed = like[0].dtype, Summed()
        for node, tensors in zip(self.summed.nodes, self.summed.sums):
            kind = dtype if node.level == 0 else torch.float32
            summed.push(node, [_flatten([tensors[x] for x in places], kind)])
        if last is not None:
            summed.push(Node(0, last), [_flatten(like, dtype)])
        counts = [x.numel() for x in like]
        total = reduce_all([each[0] for each in summed.sums], self.shares(like[0]), sum(counts))
        if mean:
            total.div_(self.count)
        return [flat.view(x.shape) for x, flat in zip(like, total.split(counts))]

    def expect(self, index: int) -> None:
        """Raise Error unless micro-batch `index` is the next of this rank."""
        wrong = None
        if self.taken == len(self.owned):
            wrong = f"all {self.taken} micro-batches of this rank were taken; expected the end of the step"
        elif index != self.owned[self.taken]:
            wrong = f"expected {self.owned[self.taken]}, the next of this rank's {self.owned}"
        if wrong:
            raise Error("argument", f"micro-batch {index}: {wrong}")

    def push(self, index: int, tensors: Sequence[Tensor]) -> None:
        self.summed.push(Node(0, index), tensors)
        self.taken += 1

    @property
    def last(self) -> bool:
        """Whether the micro-batch that comes next is the last of this rank."""
        return self.taken + 1 == len(self.owned)


def check_fresh(parameters: Iterable[Tensor], index: int) -> None:
    for place, parameter in enumerate(parameters):
        if parameter.grad is not None:
            raise Error(
                "argument",
                f"micro-batch {index}: parameter {place} has a gradient already, to which this one "
                "would be added; expected None (zero_grad(set_to_none=True))",
            )


def take(parameters: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of parameters, zeros where there is none, and None in their place."""
    made = []
    for parameter in parameters:
        gradient = parameter.grad
        parameter.grad = None
        if gradient is None:
            gradient = torch.zeros_like(parameter, requires_grad=False)
        made.append(gradient.detach())
    return made


def _flatten(tensors: Sequence[Tensor], dtype: Any) -> Tensor:
    return torch.cat([x.detach().reshape(-1).to(dtype) for x in tensors])


class Owner:
    """What takes the gradients of micro-batches one by one."""

    _leaves: Leaves

    @property
    def owned(self) -> Sequence[int]:
        """The numbers of this rank's micro-batches."""
        return self._leaves.owned


class OrderedGradients(Owner):
    """Gradients of all micro-batches of all ranks, added by one tree.

        gradients = OrderedGradients(model.parameters(), micro_batches=8)
        for index in gradients.owned:               # this rank's micro-batches
            with gradients.micro_batch(index):
                loss(model, batch[index]).backward()
        gradients.reduce()                          # p.grad is the mean over all micro-batches
        optimizer.step()

    The bits of the result depend on the gradients and their numbers alone, not on the number of
    ranks. Float32, bfloat16 and float16 parameters; sums are float32, rounded once to the type of
    the parameter. `model` is not wrapped (with DDP: OrderedDDP, with FSDP2: OrderedFSDP). On this
    rank the gradients of at most log2(own micro-batches) + 1 micro-batches are kept, twice that if
    they do not begin at a multiple of their number.

    parameters     those with requires_grad; the same on every rank
    micro_batches  of all ranks together
    owned          this rank's, ascending; None: owned_micro_batches()
    """

    def __init__(
        self, parameters: Iterable[Tensor], micro_batches: int, *,
        owned: Sequence[int] | None = None, group: Any = None,
    ) -> None:  # fmt: skip
        self.parameters = [p for p in parameters if p.requires_grad]
        self._leaves = Leaves("OrderedGradients", self.parameters, micro_batches, owned, group)
        self._seen = [False] * len(self.parameters)

    @contextmanager
    def micro_batch(self, index: int) -> Iterator[None]:
        """Around forward and backward of micro-batch `index`: takes its gradients at the end."""
        self._leaves.expect(index)
        check_fresh(self.parameters, index)
        yield
        self._seen = [seen or p.grad is not None for seen, p in zip(self._seen, self.parameters)]
        self._leaves.push(index, take(self.parameters))

    @torch.no_grad()
    def reduce(self, *, mean: bool = True) -> None:
        """Set the gradients of the parameters to the mean, or the sum, over all micro-batches.

        A parameter that had no gradient in any micro-batch of any rank keeps None. If ranks
        disagree about `mean`, or one has not taken all its micro-batches, all of them get an
        ordo.Error. The next step begins.
        """
        leaves, failure = self._leaves, None
        if leaves.taken != len(leaves.owned):
            failure = Error(
                "argument",
                f"{leaves.taken} of this rank's {len(leaves.owned)} micro-batches were taken: "
                "expected all",
            )
        facts = {"mean": bool(mean), "seen": self._seen}
        found = agree(leaves.ranks, "OrderedGradients.reduce", facts, failure, ["seen"])
        self._seen = [any(seen) for seen in zip(*(each["seen"] for each in found))]
        for bucket in self._buckets():
            some = [self.parameters[x] for x in bucket]
            for parameter, made in zip(some, leaves.reduce(bucket, some, mean=mean)):
                parameter.grad = made.to(parameter.dtype)
        self._seen = [False] * len(self.parameters)
        leaves.restart()

    def _buckets(self) -> Iterator[list[int]]:
        """Places of parameters of one type and device, as many as are exchanged at once."""
        kinds = [(p.dtype, p.device) for p in self.parameters]
        for kind in dict.fromkeys(kinds):
            bucket: list[int] = []
            room = _BUCKET
            for x, parameter in enumerate(self.parameters):
                if kinds[x] != kind or not self._seen[x]:
                    continue
                if bucket and parameter.numel() > room:
                    yield bucket
                    bucket, room = [], _BUCKET
                bucket.append(x)
                room -= parameter.numel()
            if bucket:
                yield bucket
