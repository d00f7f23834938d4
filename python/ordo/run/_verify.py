"""Run a training step again and compare every gradient, bit for bit."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .._library import Error
from ._verify_group import Group
from ._verify_run import Run, run_step


@dataclass(frozen=True)
class Verdict:
    """What verify() found. True if all runs agreed."""

    equal: bool
    first: str | None  # the first thing that differs, in the order it was computed
    run: int | None  # in which run it differed from run 0
    runs: int
    digests: dict[str, str] = field(repr=False)  # run 0: "loss", then gradients by parameter
    module: str | None = None  # whose output differed first in the forward pass
    rank: int | None = None  # on which it differed; None without ranks
    kills: int = 0  # processes that were killed

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        killed = f", {self.kills} kills" if self.kills else ""
        if self.equal:
            return f"equal: {len(self.digests)} tensors, {self.runs} runs{killed}"
        where = f"run {self.run}" + ("" if self.rank is None else f", rank {self.rank}")
        forward = (
            f"in the forward pass, the output of {self.module} differed first"
            if self.module
            else "in the forward pass, no output of a module differed"
        )
        return f"DIFFERENT: {self.first} in {where}{killed}; before it, all equal; {forward}"


def verify(
    step: Callable[..., Any],
    model: torch.nn.Module | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    runs: int = 2,
    seed: int = 0,
    ranks: int | Sequence[int] | None = None,
    kill: int = 0,
) -> Verdict:
    """Run `step` several times from the same state and compare what it computed.

    `step()` runs forward and backward on `model`, and may return the loss, or tensors by name.
    Without `model`, the modules and the optimizer are those that the function refers to. Before
    each run parameters, buffers, the optimizer's state and the random number generators are set
    back and gradients dropped. Each gradient is hashed as it is complete; `first` names the
    earliest that differs, so that what ran before it in the backward pass is not to blame. `module`
    names the module whose output differed first in the forward pass. Afterwards the model is as it
    was. With the xxhash package hashing is at memory speed.

    With `ranks=n` every run is made by n processes, on one thread each, that form a gloo process
    group; each rank is compared with itself in run 0. With several numbers, ranks=(1, 2, 4), there
    are `runs` runs on each, and rank 0 of all of them is compared with the first. With `kill=n`
    every run but the first is killed n times, one of its processes with SIGKILL at a random
    moment, and started again. A step that takes an argument gets the path of a folder, which is
    empty at the start of a run and stays when the run is killed: for checkpoints. In both cases
    the weights after the step are compared too. These processes are forked, so that CUDA must not be
    in use, and they leave this process and its model alone.
    """
    if not callable(step):
        raise Error("argument", f"step {step!r}: expected a function that runs one step")
    if runs < 2:
        raise Error("argument", f"runs {runs}: expected 2 or more")
    if kill < 0:
        raise Error("argument", f"kill {kill}: expected 0 or more")
    if ranks is not None or kill:
        sizes = [ranks] if ranks is None or isinstance(ranks, int) else list(ranks)
        if model is None:
            model, optimizer = _used_by(step, optimizer, needed=False)
        return _verify_group(Group(step, model, seed), sizes, runs, kill)
    if model is None:
        model, optimizer = _used_by(step, optimizer)
    results: list[Run] = []
    with preserved(model, optimizer) as restore:
        for _ in range(runs):
            restore()
            torch.manual_seed(seed)
            results.append(run_step(step, model))
    for run, result in enumerate(results[1:], 1):
        first = results[0].difference(result)
        if first is not None:
            module = results[0].forward_difference(result)
            return Verdict(False, first, run, runs, results[0].digests, module)
    return Verdict(True, None, None, runs, results[0].digests)


def _verify_group(group: Group, sizes: Sequence[int | None], runs: int, kill: int) -> Verdict:
    """Compare each rank with itself in the first run of its number of ranks, and rank 0 with that
    of the very first run."""
    kills, run = 0, 0
    base: Run | None = None
    for size in sizes:
        first: list[Run] = []
        for again in range(runs):
            made = group.run(size, kill if run > 0 else 0)
            kills += made.kills
            base = base or made.ranks[0]
            pairs = [(0, base, made.ranks[0]), *zip(range(len(first)), first, made.ranks)]
            for rank, expected, found in pairs:
                name = expected.difference(found, made.kills > 0)
                if name is not None:
                    module = expected.forward_difference(found, made.kills > 0)
                    total = len(sizes) * runs
                    at = None if size is None else rank
                    return Verdict(False, name, run, total, base.digests, module, at, kills)
            first = first or made.ranks
            run += 1
    assert base is not None
    return Verdict(True, None, None, run, base.digests, kills=kills)


def _used_by(
    step: Any, optimizer: torch.optim.Optimizer | None, needed: bool = True
) -> tuple[Any, torch.optim.Optimizer | None]:
    """The outermost modules, and the optimizer if there is one, that a function refers to."""
    named = _names_in(step)
    modules = {name: x for name, x in named.items() if isinstance(x, torch.nn.Module)}
    inner = {id(part) for x in modules.values() for part in list(x.modules())[1:]}
    outer = {name: x for name, x in modules.items() if id(x) not in inner}
    if not outer and not needed:
        return None, optimizer
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


@contextlib.contextmanager
def preserved(model: Any, optimizer: Any) -> Iterator[Callable[[], None]]:
    """A context after which the model, the optimizer and the random number generators are as they were
    before; it gives a function that sets the first two back. Both leave no gradients."""
    saved = copy.deepcopy(model.state_dict())
    states = None if optimizer is None else copy.deepcopy(optimizer.state_dict())
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    generator = torch.get_rng_state()

    def restore() -> None:
        with torch.no_grad():
            model.load_state_dict(saved)
        if optimizer is not None:
            optimizer.load_state_dict(copy.deepcopy(states))
        for parameter in model.parameters():
            parameter.grad = None

    try:
        yield restore
    finally:
        restore()
        torch.set_rng_state(generator)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
