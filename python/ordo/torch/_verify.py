"""Run a training step again and compare every gradient, bit for bit."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .._digest import digest
from .._library import Error


@dataclass(frozen=True)
class Verdict:
    """What verify() found. True if all runs agreed."""

    equal: bool
    first: str | None  # the first thing that differs, in the order it was computed
    run: int | None  # in which run it differed from run 0
    runs: int
    digests: dict[str, str] = field(repr=False)  # of run 0: "loss", then gradients by parameter

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.equal:
            return f"equal: {len(self.digests)} tensors, {self.runs} runs"
        return f"DIFFERENT: {self.first} in run {self.run}; before it, all equal"


def verify(
    step: Callable[[], Any],
    model: torch.nn.Module | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    runs: int = 2,
    seed: int = 0,
) -> Verdict:
    """Run `step` several times from the same state and compare what it computed.

    `step()` runs forward and backward on `model`, and may return the loss. Without `model`, the
    modules and the optimizer are those that the function refers to. Before each run parameters, buffers, the optimizer's state and the random number generators are set back and
    gradients dropped. Each gradient is hashed as it is complete; `first` names the earliest that
    differs, so that what ran before it in the backward pass is not to blame. Afterwards the
    model is as it was. With the xxhash package hashing is at memory speed.
    """
    if runs < 2:
        raise Error("argument", f"runs {runs}: expected 2 or more")
    if model is None:
        model, optimizer = _used_by(step, optimizer)
    saved = copy.deepcopy(model.state_dict())
    states = None if optimizer is None else copy.deepcopy(optimizer.state_dict())
    generators = _random_state()
    results: list[dict[str, str]] = []
    try:
        for _ in range(runs):
            _restore(model, optimizer, saved, states)
            torch.manual_seed(seed)
            results.append(_run(step, model))
    finally:
        _restore(model, optimizer, saved, states)
        _set_random_state(generators)
    for run, result in enumerate(results[1:], 1):
        first = _difference(results[0], result)
        if first is not None:
            return Verdict(False, first, run, runs, results[0])
    return Verdict(True, None, None, runs, results[0])


def _used_by(
    step: Any, optimizer: torch.optim.Optimizer | None
) -> tuple[torch.nn.Module, torch.optim.Optimizer | None]:
    """The outermost modules, and the optimizer if there is one, that a function refers to."""
    named = _names_in(step)
    modules = {name: x for name, x in named.items() if isinstance(x, torch.nn.Module)}
    inner = {id(part) for x in modules.values() for part in list(x.modules())[1:]}
    outer = {name: x for name, x in modules.items() if id(x) not in inner}
    if not outer:
        raise Error("argument", "model None: expected one, for step refers to no module by itself")
    optimizers = {id(x): x for x in named.values() if isinstance(x, torch.optim.Optimizer)}
    if optimizer is None and len(optimizers) > 1:
        raise Error("argument", f"optimizer None: expected one of the {len(optimizers)} of step")
    chosen = optimizer or next(iter(optimizers.values()), None)
    if len({id(x) for x in outer.values()}) == 1:
        return next(iter(outer.values())), chosen
    return torch.nn.ModuleDict(outer), chosen


def _names_in(step: Any) -> dict[str, Any]:
    """What a function can reach in one step: its object, its closure, the globals it names."""
    if isinstance(step, functools.partial):
        given = {str(at): x for at, x in enumerate(step.args)}
        return {**_names_in(step.func), **given, **step.keywords}
    named: dict[str, Any] = {}
    owner = getattr(step, "__self__", None if hasattr(step, "__code__") else step)
    if owner is not None:
        named.update({"self": owner}, **getattr(owner, "__dict__", {}))
    function = getattr(step, "__func__", step)
    code = getattr(function, "__code__", None)
    if code is not None:
        cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        named.update({name: x for name in code.co_names if (x := function.__globals__.get(name))
                      is not None})  # fmt: skip
        named.update({name: cell.cell_contents for name, cell in cells.items()})
    return named


def _restore(model: Any, optimizer: Any, saved: Any, states: Any) -> None:
    with torch.no_grad():
        model.load_state_dict(saved)
    if optimizer is not None:
        optimizer.load_state_dict(copy.deepcopy(states))
    for parameter in model.parameters():
        parameter.grad = None


def _run(step: Callable[[], Any], model: torch.nn.Module) -> dict[str, str]:
    """Digests by name, in the order in which gradients were complete."""
    order: dict[str, str] = {}
    hooks = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:

            def note(at: Any, name: str = name) -> None:
                order[name] = ""

            hooks.append(parameter.register_post_accumulate_grad_hook(note))
    try:
        loss = step()
    finally:
        for hook in hooks:
            hook.remove()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    digests = {"loss": _hash(loss)} if isinstance(loss, torch.Tensor) else {}
    for name in [*order, *(name for name in gradients if name not in order)]:
        if name in gradients:
            digests[f"gradient of {name}"] = _hash(gradients[name])
    return digests


def _hash(tensor: torch.Tensor) -> str:
    return digest(tensor.detach().reshape(-1))


def _difference(one: dict[str, str], other: dict[str, str]) -> str | None:
    for name, value in one.items():
        if other.get(name) != value:
            return name
    return next((name for name in other if name not in one), None)


def _random_state() -> tuple[Any, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda


def _set_random_state(state: tuple[Any, Any]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])
