"""Ordered sums as the reduce-scatter of FSDP2 (fully_shard)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ..._library import Error
from ._ordered import reduce_slice
from ._ordered_gradients import Owner
from ._tree import Counter, Node, add_tensors


class OrderedFSDP(Owner):
    """OrderedGradients for a model under fully_shard(), as its reduce-scatter: gradients stay sharded.

    FSDP2 adds the reduced gradients of micro-batches in the order of arrival. Here the gradients of
    every micro-batch but the last are kept whole, as nodes of the tree, and FSDP2 gets -0 to add,
    which changes no bit; the last one brings the sum of all. Gradients of at most log2(own
    micro-batches) + 1 micro-batches are kept on each rank, unsharded.

    All ranks run the micro-batches of `rounds`, since forward and backward gather parameters: a rank
    that owns fewer gets None in its first rounds, and runs any batch there; its gradients are dropped.

    The bits are those of OrderedGradients, if reduce_dtype is float32 or the type of the parameters
    (a 16-bit reduce_dtype rounds the mean to it). One mesh axis: a second one, which replicates,
    would add in an order of its own, and is refused. Gradients must be None when a step begins.
    """

    def __init__(
        self, model: Any, micro_batches: int, *, owned: Sequence[int] | None = None
    ) -> None:
        modules = [x for x in model.modules() if isinstance(x, FSDPModule) and _param_group(x)]
        if not modules:
            raise Error("argument", "model: expected a module under fully_shard(), with parameters")
        groups = [_param_group(x) for x in modules]
        found = {None if x._is_hsdp else x._reduce_scatter_process_group for x in groups}
        if len(found) != 1 or None in found:
            expected = "expected all of it under fully_shard() on one mesh of one axis"
            raise Error("unsupported", f"model: {expected}")
        (process_group,) = found
        super().__init__(model.parameters(), micro_batches, owned, process_group)
        most = max(len(each) for each in self.shares.owned)
        self.rounds: list[int | None] = [None] * (most - len(self.owned)) + self.owned
        self._round = 0
        self._leaf: tuple[int | None, bool] | None = None  # its micro-batch, and whether it is the last
        self._comms = [_install(self, module) for module in modules]

    @contextmanager
    def micro_batch(self, index: int | None) -> Iterator[None]:
        """Around forward and backward of the next of `rounds`."""
        expected = self.rounds[self._round]
        if index != expected:
            raise Error(
                "argument", f"micro-batch {index}: expected {expected}, the next of {self.rounds}"
            )
        if self._round == 0:
            self._expect_none(index)
        self._leaf = index, self._round + 1 == len(self.rounds)
        try:
            yield
        finally:
            self._leaf = None
        for comm in self._comms:
            comm.close(self._round + 1)
        self._round = (self._round + 1) % len(self.rounds)
        if self._round == 0:
            for comm in self._comms:
                comm.restart()


class _ReduceScatter:
    """The reduce-scatter of one module's parameters; FSDP2 calls it once in every backward pass."""

    def __init__(self, owner: OrderedFSDP) -> None:
        self._owner = owner
        self.restart()

    def restart(self) -> None:
        self._summed = Counter(add_tensors)
        self._calls, self._elements = 0, 0

    def close(self, rounds: int) -> None:
        """Raise Error unless it was called in each of the rounds so far."""
        if self._calls != rounds:
            raise Error(
                "unsupported",
                f"gradients of a module were reduced {self._calls} times in {rounds} "
                "micro-batches: expected one backward pass through every module in each",
            )

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    @torch.no_grad()
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any,
        async_op: bool = False,
    ) -> None:  # fmt: skip
        if self._owner._leaf is None:
            raise Error("argument", "backward pass outside OrderedFSDP.micro_batch()")
        index, last = self._owner._leaf
        self._calls += 1
        if self._calls > 1 and input_tensor.numel() != self._elements:
            raise Error(
                "unsupported",
                f"gradients of a module have {input_tensor.numel()} elements in one micro-batch "
                f"and {self._elements} in another: expected the same parameters to be used in all",
            )
        self._elements = input_tensor.numel()
        if index is not None:
            if input_tensor.device.type == "cuda":
                input_tensor.record_stream(torch.cuda.current_stream())
            self._summed.push(Node(0, index), [input_tensor])
        if not last:
            output_tensor.fill_(-0.0)  # x + -0 is x, also for zeros of either sign
            return
        sums = [each[0] for each in self._summed.sums]
        shares, width = self._owner.shares, output_tensor.numel()
        output_tensor.copy_(reduce_slice(sums, shares, width, input_tensor, mean=True))

    def alone(self, reduce_output: Tensor) -> None:
        """With one rank FSDP2 calls no reduce-scatter, but a hook with the gradients themselves."""
        self(reduce_output, reduce_output.clone(), None, None)


def _param_group(module: Any) -> Any:
    return module._get_fsdp_state()._fsdp_param_group


def _install(owner: OrderedFSDP, module: Any) -> _ReduceScatter:
    comm = _ReduceScatter(owner)
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
    if owner.shares.ranks.size > 1:
        module.set_custom_reduce_scatter(comm)
    else:
        module.set_all_reduce_hook(comm.alone)
    return comm
