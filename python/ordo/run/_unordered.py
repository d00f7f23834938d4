"""Operations of a model that have no deterministic form: by a list, and by running a step."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ._verify import preserved


class Operation(NamedTuple):
    """An operation that may give other bits next time."""

    where: str  # the name of the module, "the backward pass", or the optimizer's class
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} in {self.where or 'the model'}: {self.why}"


# PyTorch raises an error for these if deterministic algorithms are on (its documentation of
# use_deterministic_algorithms lists them), at least in the backward pass on CUDA.
_ON_CUDA = (
    "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool2d", "AvgPool3d", "CTCLoss",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "MaxPool3d", "ReflectionPad1d",
    "ReflectionPad2d", "ReflectionPad3d",
)  # fmt: skip
_ANYWHERE = ("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d")
_INTERPOLATIONS = ("linear", "bilinear", "bicubic", "trilinear")


def by_module(model: torch.nn.Module) -> list[Operation]:
    """The modules of a known kind. What functions are called within others cannot be seen."""
    cuda = any(x.is_cuda for x in (*model.parameters(), *model.buffers()))
    found = []
    for name, module in model.named_modules():
        why = _why_not(module, cuda)
        if why:
            found.append(Operation(name, type(module).__name__, why))
    return found


def _why_not(module: torch.nn.Module, cuda: bool) -> str:
    kinds = {kind.__name__ for kind in type(module).__mro__}
    if kinds.intersection(_ANYWHERE):
        return "writes of equal indices have no order"
    if not cuda:
        return ""
    if kinds.intersection(_ON_CUDA):
        return "its backward pass on CUDA adds in no fixed order"
    if "Upsample" in kinds and module.mode in _INTERPOLATIONS:
        return f"the backward pass of mode {module.mode} on CUDA adds in no fixed order"
    if "EmbeddingBag" in kinds and module.mode == "max":
        return "the backward pass of mode max on CUDA adds in no fixed order"
    return ""


def by_optimizer(optimizer: torch.optim.Optimizer) -> list[Operation]:
    for group in optimizer.param_groups:
        if group.get("fused") and any(x.device.type == "cpu" for x in group["params"]):
            return [
                Operation(
                    type(optimizer).__name__, "fused=True",
                    "on the CPU it rounds an element by its place in a tensor, so that bits "
                    "depend on threads and shards; fused=False does not",
                )
            ]  # fmt: skip
    return []


_MESSAGE = re.compile(r"(\S+) does not have a deterministic implementation")


def by_running(
    step: Callable[[], Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> list[Operation]:
    """What PyTorch warns about in one step. Afterwards everything is as it was."""
    gradients, mode = [x.grad for x in model.parameters()], torch.get_deterministic_debug_mode()
    try:
        with preserved(model, optimizer):
            for parameter in model.parameters():
                parameter.grad = None
            torch.use_deterministic_algorithms(True, warn_only=True)
            return _heard(step, model)
    finally:
        torch.set_deterministic_debug_mode(mode)
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = gradient


def _heard(step: Callable[[], Any], model: torch.nn.Module) -> list[Operation]:
    inside: list[str] = []  # the modules whose forward() runs, innermost last
    found: dict[tuple[str, str], Operation] = {}

    def hear(message: Any, *others: Any, **more: Any) -> None:
        match = _MESSAGE.match(str(message))
        if match:
            where = inside[-1] if inside else "the backward pass, or outside of the model"
            why = "PyTorch has no deterministic form of it"
            found.setdefault((where, match[1]), Operation(where, match[1], why))

    hooks = []
    for name, module in model.named_modules():

        def enter(module: Any, arguments: Any, name: str = name) -> None:
            inside.append(name)

        def leave(module: Any, arguments: Any, result: Any) -> None:
            inside.pop()

        hooks.append(module.register_forward_pre_hook(enter))
        hooks.append(module.register_forward_hook(leave, always_call=True))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = hear
            step()
    finally:
        for hook in hooks:
            hook.remove()
    return list(found.values())
