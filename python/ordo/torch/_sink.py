"""Attention with sinks: one learned logit per query head in the softmax, with its gradient.

The operators of _ops.py with one more input, and one more gradient. Calls with sinks always go
through the dispatcher.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._library import Error
from . import _inputs, _passes
from ._inputs import Lists, Rules
from ._ops import (
    _COUNT,
    _LISTS,
    _RULES,
    _library,
    _no_second,
    _split,
    _tags,
    plain,
    refuse_func_grad,
)
from ._plans import ready

_library.define(
    f"attention_sink_forward(Tensor q, Tensor k, Tensor v, Tensor sink, {_LISTS}, {_RULES}) -> "
    "(Tensor, Tensor)",
    tags=_tags,
)
_library.define(
    "attention_sink_backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor sink, "
    f"Tensor o, Tensor lse, {_LISTS}, {_RULES}) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=_tags,
)


def attend(
    q: Tensor, k: Tensor, v: Tensor, sink: Tensor, lists: Lists, rules: Rules, prepared: Any = None
) -> tuple[Tensor, Tensor]:
    """(o, lse), with gradients for q, k, v and sink from both."""
    if not isinstance(sink, Tensor):
        raise Error("argument", f"sink {sink!r}: expected a tensor")
    if "DTensor" in (type(q).__name__, type(sink).__name__):
        raise Error("unsupported", "sink given: expected plain tensors, not DTensor")
    if prepared is not None and plain(q, k, v):
        prepared.take(ready(q, k, v, lists, rules), lists)  # the pass makes the same bits itself
    refuse_func_grad()
    sink = sink.to(device=q.device, dtype=torch.float32).contiguous()
    made: tuple[Tensor, Tensor] = torch.ops.ordo.attention_sink_forward(
        q, k, v, sink, *lists, *rules
    )
    return made


def _check(q: Tensor, k: Tensor, v: Tensor, sink: Tensor, lists: Lists, rules: Rules) -> None:
    _inputs.check(q, k, v, lists, rules)
    if sink.shape != (q.shape[-2],):
        raise Error("shape", f"sink.shape {tuple(sink.shape)}: expected ({q.shape[-2]},)")
    _inputs._check_list("sink", sink, torch.float32, q)
    if _no_keys(q, k, lists) and (lists.cu_q is not None or lists.q_lens is not None):
        raise Error(
            "unsupported", "sink given, no keys: expected a dense batch; it is packed or padded"
        )


def _no_keys(q: Tensor, k: Tensor, lists: Lists) -> bool:
    """Whether there are rows that see the sink alone."""
    return _inputs.empty(q, k, lists) and 0 not in (_inputs.sequences(q, lists), q.shape[-3])


def _forward(q: Tensor, k: Tensor, v: Tensor, sink: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    lists, rules = _split(rest)
    _check(q, k, v, sink, lists, rules)
    o, lse = _passes.forward(ready(q, k, v, lists, rules), q, k, v, lists, sink=sink)
    if _no_keys(q, k, lists):
        lse.copy_(sink[:, None])
    return o, lse


def _backward(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor,
    o: Tensor,
    lse: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lists, rules = _split(rest)
    _check(q, k, v, sink, lists, rules)
    made = ready(q, k, v, lists, rules)
    _inputs.check_saved(dout, dlse, q, v, o, lse)
    dsink = torch.zeros_like(sink)
    sinks = (sink, dsink)
    dq, dk, dv = _passes.backward(made, dout, dlse, q, k, v, o, lse, lists, sinks=sinks)
    if _no_keys(q, k, lists) and dlse is not None:
        dsink = dlse.sum((0, 2))
    return dq, dk, dv, dsink


for _device in ("CPU", "CUDA"):
    _library.impl("attention_sink_forward", _forward, _device)
    _library.impl("attention_sink_backward", _backward, _device)


@torch.library.register_fake("ordo::attention_sink_forward", lib=_library)
def _forward_fake(
    q: Tensor, k: Tensor, v: Tensor, sink: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    _check(q, k, v, sink, *_split(rest))
    o = q.new_empty(_inputs.o_shape(q, v))
    return o, q.new_empty(_inputs.lse_shape(q), dtype=torch.float32)


@torch.library.register_fake("ordo::attention_sink_backward", lib=_library)
def _backward_fake(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor,
    o: Tensor,
    lse: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), sink.new_empty(sink.shape)
    )  # fmt: skip


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[: 4 + _COUNT], *output)
    ctx.rules = inputs[4 + _COUNT :]


def _gradient(ctx: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
    *inputs, o, lse = ctx.saved_tensors
    if dout is None:  # only lse was used
        dout = torch.zeros_like(o)
    grads = torch.ops.ordo.attention_sink_backward(
        dout, dlse, *inputs[:4], o, lse, *inputs[4:], *ctx.rules
    )
    return (*grads, *[None] * (_COUNT + len(ctx.rules)))


torch.library.register_autograd(
    "ordo::attention_sink_forward", _gradient, setup_context=_setup, lib=_library
)
torch.library.register_autograd("ordo::attention_sink_backward", _no_second, lib=_library)
