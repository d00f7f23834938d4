"""What ordo.Recorder takes from PyTorch: digests on the device, tensors of a model in backward
order, and the seeds and plans of attention."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _pieces
from .._plan import Plan
from ._watch import unwatch, watch

_MOST_CALLS = 1 << 16  # between two steps; a program that never records keeps no more


class Fetch:
    """Digests of tensors and values of int64 tensors, computed on their devices.

    Each CUDA device hashes on its current stream and sends everything home in one copy, for which
    nobody waits before wait(). Arrays of NumPy count as CPU tensors.
    """

    def __init__(self, tensors: Sequence[Any], words: Sequence[Tensor]) -> None:
        self._digests = [0] * len(tensors)
        self._words: list[list[int]] = [[] for _ in words]
        self._copies: list[tuple[Any, list[int], list[int], Tensor, Any]] = []
        ready = [_laid_out(x) for x in tensors]
        for device in {x.device: None for x in (*ready, *words)}:
            places = [at for at, x in enumerate(ready) if x.device == device]
            numbers = [at for at, x in enumerate(words) if x.device == device]
            chosen = [ready[at] for at in places], [words[at] for at in numbers]
            if device.type == "cuda":
                self._on_cuda(device, places, numbers, *chosen)
            else:
                self._on_cpu(places, numbers, *chosen)

    def ready(self) -> bool:
        return all(event.query() for event, *_ in self._copies)

    def wait(self) -> tuple[list[int], list[list[int]]]:
        for event, places, numbers, host, sizes in self._copies:
            event.synchronize()
            found = host.tolist()
            for at, value in zip(places, found):
                self._digests[at] = value & 2**64 - 1
            start = len(places)
            for at, size in zip(numbers, sizes):
                self._words[at] = found[start : start + size]
                start += size
        self._copies = []
        return self._digests, self._words

    def _on_cpu(
        self, places: list[int], numbers: list[int], tensors: list[Tensor], words: list[Tensor]
    ) -> None:
        found = _pieces.on_cpu([_span(x) for x in tensors], torch.get_num_threads()).tolist()
        for at, value in zip(places, found):
            self._digests[at] = value
        for at, x in zip(numbers, words):
            self._words[at] = x.detach().reshape(-1).tolist()

    def _on_cuda(
        self,
        device: torch.device,
        places: list[int],
        numbers: list[int],
        tensors: list[Tensor],
        words: list[Tensor],
    ) -> None:
        with torch.cuda.device(device):
            call = _pieces.Digests([_span(x) for x in tensors])
            out = torch.empty(call.count, dtype=torch.int64, device=device)
            work = torch.empty(call.workspace_bytes // 8, dtype=torch.int64, device=device)
            stream = torch.cuda.current_stream()
            call.run(out.data_ptr(), work.data_ptr(), backend="cuda", stream=stream.cuda_stream)
            everything = torch.cat([out, *[x.detach().reshape(-1) for x in words]])
            host = torch.empty(everything.shape, dtype=torch.int64, pin_memory=True)
            host.copy_(everything, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._copies.append((event, places, numbers, host, [x.numel() for x in words]))


def _laid_out(x: Any) -> Tensor:
    """The bytes of a tensor in one piece, aligned to 8: its elements in C order."""
    if not isinstance(x, Tensor):
        array = np.ascontiguousarray(x)
        return torch.from_numpy(array.reshape(-1).view(np.uint8).copy())
    x = x.detach()
    if hasattr(x, "to_local"):  # a part of a distributed tensor
        x = x.to_local()
    x = x.to_dense() if x.is_sparse else x
    x = x.contiguous()
    return x.clone() if x.is_cuda and x.data_ptr() % 8 else x


def _span(x: Tensor) -> _pieces.Span:
    return x.data_ptr(), x.numel() * x.element_size()


# ---- a model ----


class Order:
    """Names of parameters in the order in which the first backward pass completes gradients."""

    def __init__(self, named: Iterable[tuple[str, Tensor]]) -> None:
        self._named = dict(named)
        self._done: dict[str, None] = {}
        self._hooks = [
            x.register_post_accumulate_grad_hook(self._note(name))
            for name, x in self._named.items()
            if x.requires_grad
        ]

    def _note(self, name: str) -> Callable[[Tensor], None]:
        return lambda parameter: self._done.setdefault(name)

    def end(self) -> list[str]:
        """Stop watching. Parameters without a gradient come last, from the last one on."""
        for hook in self._hooks:
            hook.remove()
        return [*self._done, *[name for name in reversed(self._named) if name not in self._done]]


class Model:
    """The parameters of a model, and the calls of attention in this process."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._named = {_plain(name): x for name, x in model.named_parameters()}
        self._order: Order | list[str] = Order(self._named.items())
        self._seeds: list[Any] = []
        self._plans: dict[int, Plan] = {}
        watch("forward", self._watch)

    def release(self) -> None:
        unwatch("forward", self._watch)
        if isinstance(self._order, Order):
            self._order.end()

    @property
    def device(self) -> torch.device:
        return next((x.device for x in self._named.values()), torch.device("cpu"))

    def tensors(self, weights: bool, gradients: bool) -> dict[str, dict[str, Tensor]]:
        """Weights and gradients by name, in backward order."""
        if isinstance(self._order, Order):
            self._order = self._order.end()
        named = {name: self._named[name] for name in self._order}
        return {
            "weights": named if weights else {},
            "gradients": {
                name: x.grad for name, x in named.items() if gradients and x.grad is not None
            },
        }

    def take_calls(self) -> tuple[list[Any], list[str]]:
        """Seeds and plan lines since the last time; seeds on a device are tensors."""
        taken = self._seeds, list(dict.fromkeys(plan.line for plan in self._plans.values()))
        self._seeds, self._plans = [], {}
        return taken

    def _watch(self, plan: Plan, rng: Tensor | None) -> None:
        if len(self._plans) < _MOST_CALLS:
            self._plans[id(plan)] = plan
        if rng is not None and len(self._seeds) < _MOST_CALLS:
            self._seeds.append(rng.tolist() if rng.is_cpu else rng)


def _plain(name: str) -> str:
    """The name without what DistributedDataParallel and torch.compile put before it."""
    return name.removeprefix("module.").replace("_orig_mod.", "")


# ---- the process ----


def versions_of() -> dict[str, str]:
    versions = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        versions["cuda"] = str(torch.version.cuda)
    return versions


def device_of(model: Model | None) -> str:
    """The device as it counts for bits: PyTorch's CPU code depends on instructions and threads."""
    device = torch.device("cpu") if model is None else model.device
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    capability = torch.backends.cpu.get_cpu_capability()
    return f"cpu {platform.machine()} {capability}, {torch.get_num_threads()} threads"
