"""One run of a step: digests of what it computed, and of what its modules returned on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._digest import digest
from ._record import Fetch, Order

GRADIENT = "gradient of "


@dataclass
class Run:
    """Digests by name in the order in which gradients were complete, and outputs of modules in the
    order of the forward pass. It pickles."""

    digests: dict[str, str] = field(default_factory=dict)
    outputs: list[tuple[str, list[int]]] = field(default_factory=list)

    def difference(self, other: Run, resumed: bool = False) -> str | None:
        """The first name whose digest is another one. A run that was resumed after its last step
        has no gradients: these are not compared then."""
        for name, value in self.digests.items():
            if resumed and name.startswith(GRADIENT) and name not in other.digests:
                continue
            if other.digests.get(name) != value:
                return name
        return next((name for name in other.digests if name not in self.digests), None)

    def forward_difference(self, other: Run, resumed: bool = False) -> str | None:
        """The first module whose output is another one. A run that was resumed makes the last
        calls only."""
        skipped = max(0, len(self.outputs) - len(other.outputs)) if resumed else 0
        for mine, theirs in zip(self.outputs[skipped:], other.outputs):
            if mine != theirs:
                return mine[0]
        return None


def run_step(
    step: Callable[[], Any], model: torch.nn.Module | None, *, weights: bool = False
) -> Run:
    """Run the step and hash the loss or the tensors that it returns, the gradients of the model,
    and on request its weights after the step."""
    order = Order([] if model is None else model.named_parameters())
    outputs: list[tuple[str, Fetch]] = []
    try:
        with _watched(model, outputs):
            returned = step()
    finally:
        names = order.end()
    run = Run(_returned(returned), [(name, fetch.wait()[0]) for name, fetch in outputs])
    if model is None:
        return run
    parameters = dict(model.named_parameters())
    for name in names:
        gradient = parameters[name].grad
        if gradient is not None:
            run.digests[GRADIENT + name] = _hash(gradient)
    for name in names if weights else ():
        run.digests[f"weight of {name}"] = _hash(parameters[name])
    return run


def _returned(value: Any) -> dict[str, str]:
    if isinstance(value, Tensor):
        return {"loss": _hash(value)}
    if isinstance(value, Mapping):
        named = {str(name): x for name, x in value.items() if isinstance(x, Tensor)}
        return {name: _hash(x) for name, x in named.items()}
    return {}


def _hash(tensor: Tensor) -> str:
    return digest(tensor.detach().reshape(-1))


# ---- the forward pass ----


@contextlib.contextmanager
def _watched(
    model: torch.nn.Module | None, outputs: list[tuple[str, Fetch]]
) -> Iterator[None]:
    """Hash what each module of the model returns, as it returns it."""
    hooks = [
        module.register_forward_hook(_note(f"{name or 'the model'} ({type(module).__name__})",
                                           outputs))
        for name, module in ([] if model is None else model.named_modules())
        if not isinstance(module, torch.jit.ScriptModule)  # which takes no hooks
    ]  # fmt: skip
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _note(name: str, outputs: list[tuple[str, Fetch]]) -> Callable[[Any, Any, Any], None]:
    def note(module: Any, inputs: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not _can_be_read():
            return
        try:
            outputs.append((name, Fetch(list(_tensors(output)), [])))
        except (RuntimeError, NotImplementedError):
            pass  # a tensor without memory of its own: the gradients are compared all the same

    return note


def _can_be_read() -> bool:
    """Not inside vmap and the like, nor while a CUDA graph is captured."""
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    return not capturing and torch._C._functorch.peek_interpreter_stack() is None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for x in value.values():
            yield from _tensors(x)
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from _tensors(x)
