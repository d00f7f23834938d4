"""Who is told of each forward pass: its plan, and seed and offset; in graphs too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._plan import Plan
from ..torch._inputs import lists_of, rules_of
from ..torch._node import rows_first
from ..torch._plans import plan_of

Watch = Callable[[Plan, Tensor | None], None]
watchers: list[Watch] = []
_libraries: list[Any] = []


def watch(function: Watch) -> None:
    """Call `function` before each forward pass. As long as anybody watches, the operators have
    kernels in Python, which go on to the compiled ones."""
    watchers.append(function)
    if _libraries:
        return
    for key in ("CPU", "CUDA"):
        library = torch.library.Library("ordo", "IMPL", key)
        for name in ("forward", "eager_forward"):
            library.impl(name, _watched(key, torch.library.get_kernel(f"ordo::{name}", key)))
        _libraries.append(library)


def unwatch(function: Watch) -> None:
    watchers.remove(function)
    if not watchers:
        for library in _libraries:
            library._destroy()
        _libraries.clear()


def _watched(key: str, kernel: Any) -> Any:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def forward(
        q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, softcap: float = 0.0,
        dropout_p: float = 0.0, sizes: Any = (),
    ) -> Any:  # fmt: skip
        made = kernel.call_boxed(keys, q, k, v, flags, scale, more, softcap, dropout_p, sizes)
        lists, rules = lists_of(flags, more), rules_of(flags, scale, softcap, dropout_p, sizes)
        rng = lists.rng if len(made) == 3 or made[3] is None else made[3]
        q, k, v = rows_first(flags, q, k, v)
        plan = plan_of(q, k, v, lists, rules)
        for function in watchers:
            function(plan, rng)
        return made

    return forward

