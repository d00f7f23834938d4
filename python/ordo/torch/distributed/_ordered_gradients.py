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
from ._ordered import Shares, owned_micro_batches, reduce_all
from ._tree import Counter, Node, add_tensors

_BUCKET = 16 << 20  # elements that are exchanged at once, and the rest of a parameter


class Owner:
    """The parameters of a step, and which rank computes which of its micro-batches.

    Raises Error on every rank unless all have the same parameters and number of micro-batches.
    """

    def __init__(
        self, parameters: Iterable[Tensor], micro_batches: int, owned: Sequence[int] | None, group: Any
    ) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        ranks, count = Ranks.of(group, alone=True), int(micro_batches)
        self.owned = list(owned_micro_batches(count, group) if owned is None else owned)
        facts: dict[str, Any] = {"micro_batches": count, "parameters": len(self.parameters)}
        for x, p in enumerate(self.parameters):
            facts[f"parameter {x}"] = f"{str(p.dtype)[6:]} {tuple(p.shape)}"
        what = type(self).__name__
        found = agree(ranks, what, {**facts, "owned": self.owned}, free=["owned"])
        self.shares = Shares(what, ranks, [each["owned"] for each in found], count)

    def _expect_none(self, index: int | None) -> None:
        """Raise Error for a gradient that is left."""
        for place, parameter in enumerate(self.parameters):
            if parameter.grad is not None:
                raise Error(
                    "argument",
                    f"micro-batch {index}: parameter {place} has a gradient already, to which this one "
                    "would be added; expected None (zero_grad(set_to_none=True))",
                )


class OrderedGradients(Owner):
    """Gradients of all micro-batches of all ranks, added by one tree; docs/guide/ordered-sums.md.

        gradients = OrderedGradients(model.parameters(), micro_batches=8)
        for index in gradients.owned:               # this rank's micro-batches
            with gradients.micro_batch(index):
                loss(model, batch[index]).backward()
        gradients.reduce()                          # p.grad is the mean over all micro-batches

    The bits of the result depend on the gradients and their numbers alone, not on the number of
    ranks. Float32, bfloat16 and float16 parameters; sums are float32, rounded once to the type of
    the parameter. On this rank the gradients of at most log2(own micro-batches) + 1 micro-batches
    are kept, twice that if they do not begin at a multiple of their number.

    parameters     those with requires_grad; the same on every rank
    micro_batches  of all ranks together
    owned          this rank's, ascending; None: owned_micro_batches()
    """

    def __init__(
        self, parameters: Iterable[Tensor], micro_batches: int, *,
        owned: Sequence[int] | None = None, group: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(parameters, micro_batches, owned, group)
        self._restart()

    def _restart(self) -> None:
        """Begin the next step."""
        self._summed, self._taken = Counter(add_tensors), 0
        self._seen = [False] * len(self.parameters)

    @contextmanager
    def micro_batch(self, index: int) -> Iterator[None]:
        """Around forward and backward of micro-batch `index`: takes its gradients at the end."""
        wrong = None
        if self._taken == len(self.owned):
            wrong = f"all {self._taken} micro-batches of this rank were taken; expected the end of the step"
        elif index != self.owned[self._taken]:
            wrong = f"expected {self.owned[self._taken]}, the next of this rank's {self.owned}"
        if wrong:
            raise Error("argument", f"micro-batch {index}: {wrong}")
        self._expect_none(index)
        yield
        gradients = [p.grad for p in self.parameters]
        self._seen = [seen or x is not None for seen, x in zip(self._seen, gradients)]
        for parameter in self.parameters:
            parameter.grad = None
        pairs = zip(self.parameters, gradients)
        made = [torch.zeros_like(p) if x is None else x.detach() for p, x in pairs]
        self._summed.push(Node(0, index), made)
        self._taken += 1

    @torch.no_grad()
    def reduce(self, *, mean: bool = True) -> None:
        """Set the gradients of the parameters to the mean, or the sum, over all micro-batches.

        A parameter that had no gradient in any micro-batch of any rank keeps None. If ranks
        disagree about `mean`, or one has not taken all its micro-batches, all of them get an
        ordo.Error. The next step begins.
        """
        failure = None
        if self._taken != len(self.owned):
            failure = Error(
                "argument",
                f"{self._taken} of this rank's {len(self.owned)} micro-batches were taken: expected all",
            )
        facts = {"mean": bool(mean), "seen": self._seen}
        found = agree(self.shares.ranks, "OrderedGradients.reduce", facts, failure, ["seen"])
        seen = [any(each) for each in zip(*(each["seen"] for each in found))]
        for bucket in self._buckets([x for x, any_ in enumerate(seen) if any_]):
            like = self.parameters[bucket[0]].detach()
            sums = []
            for node, tensors in zip(self._summed.nodes, self._summed.sums):
                kind = like.dtype if node.level == 0 else torch.float32
                sums.append(torch.cat([tensors[x].reshape(-1).to(kind) for x in bucket]))
            some = [self.parameters[x] for x in bucket]
            counts = [x.numel() for x in some]
            total = reduce_all(sums, self.shares, sum(counts), like, mean)
            for parameter, made in zip(some, total.split(counts)):
                parameter.grad = made.view(parameter.shape).to(parameter.dtype)
        self._restart()

    def _buckets(self, places: Sequence[int]) -> Iterable[list[int]]:
        """The places by types and devices of parameters, as many as are exchanged at once."""
        buckets: dict[Any, list[int]] = {}
        elements = 0
        for x in places:
            parameter = self.parameters[x]
            kind = parameter.dtype, parameter.device, elements // _BUCKET
            buckets.setdefault(kind, []).append(x)
            elements += parameter.numel()
        return buckets.values()
