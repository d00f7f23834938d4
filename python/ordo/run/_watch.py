"""Who is told of each pass of attention, forward or backward; in graphs too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..torch._inputs import lists_of, plan_of

watchers: dict[str, list[Callable[..., None]]] = {"forward": [], "backward": []}
_libraries: dict[str, list[Any]] = {"forward": [], "backward": []}


def watch(which: str, function: Callable[..., None]) -> None:
    """Call `function` after each forward pass, with its plan, and seed and offset; or after each
    backward pass, with what the operator was given and what it made. As long as anybody watches,
    the operators have kernels in Python, which go on to the compiled ones."""
    watchers[which].append(function)
    if _libraries[which]:
        return
    for key in ("CPU", "CUDA"):
        library = torch.library.Library("ordo", "IMPL", key)
        for name in (which, f"eager_{which}"):
            kernel = torch.library.get_kernel(f"ordo::{name}", key)
            library.impl(name, _WATCHED[which](key, kernel))
        _libraries[which].append(library)


def unwatch(which: str, function: Callable[..., None]) -> None:
    watchers[which].remove(function)
    if not watchers[which]:
        for library in _libraries[which]:
            library._destroy()
        _libraries[which].clear()


_REST = (0.0, 0.0, ())  # softcap, dropout_p and sizes where they are left out


def _keys(key: str) -> Any:
    return torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))


def _forward(key: str, kernel: Any) -> Any:
    keys = _keys(key)

    def forward(q: Tensor, k: Tensor, v: Tensor, *call: Any) -> Any:
        given = *call, *_REST[len(call) - 3 :]
        made = kernel.call_boxed(keys, q, k, v, *given)
        rng = lists_of(call[0], call[2]).rng if len(made) == 3 or made[3] is None else made[3]
        plan = plan_of(q, k, v, given)
        for function in watchers["forward"]:
            function(plan, rng)
        return made

    return forward


def _backward(key: str, kernel: Any) -> Any:
    keys = _keys(key)

    def backward(
        dout: Tensor, dlse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
        *call: Any,
    ) -> Any:  # fmt: skip
        given = dict(dout=dout, dlse=dlse, q=q, k=k, v=v, o=o, lse=lse)
        rest = *call, *_REST[len(call) - 3 :]
        made = kernel.call_boxed(keys, *given.values(), *rest)
        for function in watchers["backward"]:
            function({**given, **dict(zip(("dq", "dk", "dv"), made))}, rest)
        return made

    return backward


_WATCHED = {"forward": _forward, "backward": _backward}
