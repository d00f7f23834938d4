"""Ordered sums as the communication hook of DistributedDataParallel.

Annotations are evaluated here, because DDP compares those of the hook with types.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..._library import Error
from ._ordered_gradients import Owner


class OrderedDDP(Owner):
    """OrderedGradients for a DDP model, whose communication hook does what reduce() does there.

    DDP's no_sync() adds micro-batches in the order of arrival. Here every micro-batch but the last
    runs under no_sync() and its gradients are taken away. The last one brings the hook the
    gradients of that one alone, bucket by bucket; the hook adds and exchanges them together with
    what was taken. Every rank owns at least one micro-batch; ranks may own different numbers of them.
    """

    def __init__(
        self, model: Any, micro_batches: int, *, owned: Sequence[int] | None = None
    ) -> None:
        super().__init__(model.module.parameters(), micro_batches, owned, model.process_group)
        self.model = model
        for rank, each in enumerate(self._shares.owned):
            if not each:
                raise Error(
                    "argument",
                    f"OrderedDDP: rank {rank} owns no micro-batch of {micro_batches}: expected at "
                    "least one, for the backward pass that exchanges gradients",
                )
        self._places = {id(p): x for x, p in enumerate(self.parameters)}
        self._current: int | None = None
        self._reduced = 0
        model.register_comm_hook(None, self._hook)

    @contextmanager
    def micro_batch(self, index: int) -> Iterator[None]:
        """Around forward and backward of micro-batch `index`."""
        self._expect(index)
        if index != self.owned[-1]:
            with self.model.no_sync():
                yield
            self._take(index)  # no_sync() leaves buckets alone
            return
        self._current, self._reduced = index, 0
        try:
            yield
        finally:
            self._current = None
        if self._reduced != len(self.parameters):
            raise Error(
                "argument",
                f"micro-batch {index}: {self._reduced} of {len(self.parameters)} parameters were "
                "reduced: expected one backward pass, and find_unused_parameters where it does "
                "not reach all",
            )
        self._restart()

    def _hook(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        if self._current is None:
            raise Error("argument", "backward pass outside OrderedDDP.micro_batch()")
        buffer, gradients = bucket.buffer(), bucket.gradients()
        places = [self._places[id(p)] for p in bucket.parameters()]
        with torch.no_grad():
            reduced = self._reduce(places, gradients, last=self._current)
            torch._foreach_copy_(gradients, reduced)
        self._reduced += len(places)
        devices = [buffer.device] if buffer.device.type == "cuda" else None
        made: Any = torch.futures.Future(devices=devices)
        made.set_result(buffer)
        return made
