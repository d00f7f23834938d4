"""Ordered sums of the gradients of a DistributedDataParallel model.

Annotations are evaluated here, because DDP compares those of the hook with types.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..._library import Error
from ._ordered_gradients import OrderedGradients


class OrderedDDP:
    """OrderedGradients for a DDP model, whose reduce() runs at the end of the last micro-batch.

    DDP's no_sync() adds micro-batches in the order of arrival. Here every micro-batch but the last
    runs under no_sync(), and a communication hook leaves the gradients of the last one as they are:
    all of them are taken away, added and exchanged. Every rank owns at least one micro-batch, for
    the pass after which DDP sends its buffers; ranks may own different numbers of them.
    """

    def __init__(
        self, model: Any, micro_batches: int, *, owned: Sequence[int] | None = None
    ) -> None:
        parameters, group = model.module.parameters(), model.process_group
        self._gradients = OrderedGradients(parameters, micro_batches, owned=owned, group=group)
        self.owned = self._gradients.owned
        for rank, each in enumerate(self._gradients.shares.owned):
            if not each:
                raise Error(
                    "argument",
                    f"OrderedDDP: rank {rank} owns no micro-batch of {micro_batches}: expected at "
                    "least one, for the backward pass after which gradients are exchanged",
                )
        self.model = model
        self._inside = False
        model.register_comm_hook(None, self._hook)

    @contextmanager
    def micro_batch(self, index: int) -> Iterator[None]:
        """Around forward and backward of micro-batch `index`."""
        last = index == self.owned[-1]
        with self._gradients.micro_batch(index), nullcontext() if last else self.model.no_sync():
            self._inside = True
            try:
                yield
            finally:
                self._inside = False
        if last:
            self._gradients.reduce()

    def _hook(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        if not self._inside:
            raise Error("argument", "backward pass outside OrderedDDP.micro_batch()")
        buffer = bucket.buffer()
        made: Any = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
        made.set_result(buffer)
        return made
