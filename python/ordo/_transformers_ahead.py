"""Keep bits made while a module of transformers projects its queries, keys and values.

A hook of the attention module begins to make the bits before its forward runs, for a call like the
last one; modules whose bits are made inside a pass get none. Seed and offset are drawn there, too. That leaves every later random number as it is,
because nothing between the hook and the attention draws any: modules with dropout inside their
projections (LoRA) get no hook.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from .torch._call import Arguments, plain, prepare
from .torch._dropout import PreparedDropout, draw, dropout_mode, made_ahead, make_ahead
from .torch._inputs import Lists

_RULES = Arguments._fields.index("seed")
_Dropout = torch.nn.modules.dropout._DropoutNd


class Ahead:
    """What the hook of one attention module knows of its next call."""

    def __init__(self, module: torch.nn.Module | None = None) -> None:
        self.module = None if module is None else weakref.ref(module)
        self.look: Any = None  # of the last call
        self.inputs: Any = None  # its tensors, rules and lists; none if its bits are made inside
        self.prepared: PreparedDropout | None = None
        self.hooked = False

    def __reduce__(self) -> Any:  # a copy of a module begins anew, with a hook of its own
        return Ahead, ()

    def hook(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        mine = self.module is not None and self.module() is module  # a replica has its own
        if not mine or self.inputs is None:
            return
        hidden = args[0] if args else kwargs.get("hidden_states")
        if not module.training or torch.compiler.is_compiling() or not isinstance(hidden, Tensor):
            return
        shape, device = self.look[0], self.look[1]
        if hidden.shape[:2] == shape[:2] and hidden.device == device:
            q, k, v, rules = self.inputs
            self.prepared = make_ahead(q, k, v, Lists(draw(hidden)), rules)

    def learn(self, look: Any, q: Tensor, k: Tensor, v: Tensor, a: Arguments) -> None:
        """Expect the next call to be like this one."""
        unread = torch.zeros(2, dtype=torch.int64, device=q.device)
        with torch.no_grad():
            q, k, v, lists, rules = prepare(q, k, v, a._replace(rng_state=unread))
        made = made_ahead(q, k, v, lists, rules)
        empty = [x.new_empty(1).expand(x.shape) for x in (q, k, v)]  # which hold no memory
        self.look, self.inputs = look, ((*empty, rules) if made else None)
        module = None if self.module is None else self.module()
        if made and not self.hooked and module is not None:
            module.register_forward_pre_hook(self.hook, with_kwargs=True)
            self.hooked = True


_modules: weakref.WeakKeyDictionary[torch.nn.Module, Ahead | None] = weakref.WeakKeyDictionary()
_UNKNOWN = Ahead()


def with_prepared(
    module: torch.nn.Module, q: Tensor, k: Tensor, v: Tensor, a: Arguments, dense: bool
) -> Arguments:
    """The arguments of a call with what the hook of its module has prepared.

    The first call of a module whose bits are made before it adds the hook. `dense` calls are
    expected to come again.
    """
    if not a.dropout_p > 0 or not plain(q, k, v):
        return a
    ahead = _modules.get(module, _UNKNOWN)
    if ahead is _UNKNOWN:
        ahead = _modules[module] = _add(module)
    if ahead is None:
        return a
    prepared, ahead.prepared = ahead.prepared, None
    look = None
    if dense:
        auto = torch.is_autocast_enabled(q.device.type)
        look = q.shape, q.device, k.shape, v.shape, q.dtype, auto, a[:_RULES]
    if prepared is not None and look != ahead.look:
        prepared = PreparedDropout(Lists(prepared.rng_state), None)  # seed and offset count
    if look is not None and look != ahead.look:
        ahead.learn(look, q, k, v, a)
    return a if prepared is None else a._replace(prepared=prepared)


def _add(module: torch.nn.Module) -> Ahead | None:
    inside = [x for name, x in module.named_modules() if "." in name and isinstance(x, _Dropout)]
    if inside or dropout_mode() not in ("auto", "overlapped"):
        return None
    return Ahead(module)
