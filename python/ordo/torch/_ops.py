"""The operators torch.ops.ordo.*: pure functions of their arguments, seed and offset included.

`attend()` is the way in. Under torch.compile, dispatch modes and tensor subclasses it calls the
operators, with their fake kernels and autograd formula. On plain tensors it goes through an
autograd.Function straight to the same passes: the dispatcher with an autograd formula in Python
costs some 200 us per call (docs/adr/0050-two-ways-to-one-pass.md).
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._library import Error
from . import _inputs, _passes
from ._compiled import front
from ._inputs import NO_LISTS, ONLY_RNG, Lists, Rules
from ._kept import kept_bits
from ._plans import Ready, ready

_LISTS = (
    "Tensor? rng, Tensor? cu_q, Tensor? cu_kv, Tensor? q_lens, Tensor? kv_lens, "
    "Tensor? sequence_ids, Tensor? slopes"
)
_RULES = (
    "SymInt max_q, SymInt max_kv, float scale, str mask, SymInt left, SymInt right, "
    "float softcap, float dropout_p, str keying, SymInt[] shard"
)
_COUNT = len(Lists._fields)
_LIMIT = 2**32

_library = torch.library.Library("ordo", "DEF")
_tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
_library.define(
    f"attention_forward(Tensor q, Tensor k, Tensor v, {_LISTS}, {_RULES}) -> (Tensor, Tensor)",
    tags=_tags,
)
_library.define(
    "attention_backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, "
    f"Tensor lse, {_LISTS}, {_RULES}) -> (Tensor, Tensor, Tensor)",
    tags=_tags,
)


_library.define(  # as an operator of its own, so that a compiler leaves it to PyTorch's generator
    "draw(Tensor like) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,)
)


def draw(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Seed and offset, on the device of `like`.

    Both below 2^32: an offset has to be, and a pair of 64 bits suffices.
    """
    if torch.compiler.is_compiling() and generator is None:
        drawn: Tensor = torch.ops.ordo.draw(like)
        return drawn
    return torch.randint(_LIMIT, (2,), device=like.device, generator=generator)


def _draw(like: Tensor) -> Tensor:
    return torch.randint(_LIMIT, (2,), device=like.device)


@torch.library.register_fake("ordo::draw", lib=_library)
def _draw_fake(like: Tensor) -> Tensor:
    return like.new_empty(2, dtype=torch.int64)


def _split(rest: Any) -> tuple[Lists, Rules]:
    rules = Rules(*rest[_COUNT:])
    return Lists(*rest[:_COUNT]), rules._replace(shard=tuple(rules.shard))


def _forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    lists, rules = _split(rest)
    _inputs.check(q, k, v, lists, rules)
    return _passes.forward(ready(q, k, v, lists, rules), q, k, v, lists)


def _backward(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    lists, rules = _split(rest)
    _inputs.check(q, k, v, lists, rules)
    made = ready(q, k, v, lists, rules)
    _inputs.check_saved(dout, dlse, q, v, o, lse)
    return _passes.backward(made, dout, dlse, q, k, v, o, lse, lists)


front.open()

for _device in ("CPU", "CUDA"):
    _library.impl("draw", _draw, _device)
    _library.impl("attention_forward", _forward, _device)
    _library.impl("attention_backward", _backward, _device)


@torch.library.register_fake("ordo::attention_forward", lib=_library)
def _forward_fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    _inputs.check(q, k, v, *_split(rest))
    o = q.new_empty(_inputs.o_shape(q, v))
    return o, q.new_empty(_inputs.lse_shape(q), dtype=torch.float32)


@torch.library.register_fake("ordo::attention_backward", lib=_library)
def _backward_fake(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[: 3 + _COUNT], *output)
    ctx.rules = inputs[3 + _COUNT :]


def _gradient(ctx: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
    *inputs, o, lse = ctx.saved_tensors
    if dout is None:  # only lse was used
        dout = torch.zeros_like(o)
    grads = torch.ops.ordo.attention_backward(
        dout, dlse, *inputs[:3], o, lse, *inputs[3:], *ctx.rules
    )
    return (*grads, *[None] * (_COUNT + len(ctx.rules)))


torch.library.register_autograd(
    "ordo::attention_forward", _gradient, setup_context=_setup, lib=_library
)


def _no_second(ctx: Any, *grads: Any) -> Any:
    raise Error("unsupported", "second derivatives of attention: not supported")


torch.library.register_autograd("ordo::attention_backward", _no_second, lib=_library)


class _Attention(torch.autograd.Function):
    """The operator without the dispatcher."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lists: Lists,
        made: Ready,
        bits: Tensor | None = None,
    ) -> Any:
        ctx.kept = False
        if made.bits_bytes:
            bits, ctx.kept = kept_bits(made, lists, bits)
        o, lse = _passes.forward(made, q, k, v, lists, None, bits)
        ctx.set_materialize_grads(False)
        if made.lists:
            more = [bits] if ctx.kept else []
            ctx.save_for_backward(q, k, v, o, lse, *more, *[lists[at] for at in made.lists])
        else:
            ctx.save_for_backward(q, k, v, o, lse)
        ctx.made = made
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse, *given = ctx.saved_tensors
        bits = given.pop(0) if ctx.kept else None
        if bits is not None:
            _passes.check_bits(ctx.made, bits)
        lists = NO_LISTS
        if ctx.made.lists == ONLY_RNG:
            lists = Lists(given[0])
        elif given:
            places = iter(given)
            lists = Lists(*[next(places) if at in ctx.made.lists else None for at in range(_COUNT)])
        grads = gradients(ctx.made, dout, dlse, q, k, v, o, lse, lists, bits)
        return (*grads, *[None] * (len(ctx.needs_input_grad) - 3))


def gradients(
    made: Ready,
    dout: Any,
    dlse: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    bits: Tensor | None,
) -> Any:
    """(dq, dk, dv) for an autograd.Function."""
    if dout is None:  # only lse was used
        dout = torch.zeros_like(o)
    if torch.is_grad_enabled():  # create_graph: let the operator refuse what may come
        return torch.ops.ordo.attention_backward(
            dout, dlse, q, k, v, o, lse, *lists, *made.rules
        )
    return _passes.backward(made, dout, dlse, q, k, v, o, lse, lists, None, bits)


_PLAIN = (Tensor, torch.nn.Parameter)

# Function.apply() itself, without a look for functorch: plain() has made sure of that.
_apply = super(torch.autograd.Function, _Attention).apply


_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_traced = torch._C._get_tracing_state  # by torch.jit.trace


def _refuse_tangents(**tensors: Tensor) -> None:
    """Inside a level of forward-mode derivatives. Operators would leave tangents out, and the
    derivative would be 0 without a word. What a transform wraps may have one further in."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    for name, x in tensors.items():
        if wrapped(x) or forward_ad.unpack_dual(x).tangent is not None:
            raise Error(
                "unsupported",
                f"{name}: a tangent (torch.func.jvp, jacfwd, torch.autograd.forward_ad): attention "
                "has no forward-mode derivatives; expected tensors without tangents",
            )


def refuse_func_grad() -> None:
    """The operators' formula is one of autograd, which torch.func.grad does not take."""
    level = None if _compiling() else _transforms()
    if level and level.key() == torch._C._functorch.TransformType.Grad:
        raise Error(
            "unsupported",
            "torch.func.grad, vjp, jacrev: not supported for attention; expected "
            "torch.autograd.grad() or backward()",
        )


def plain(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether nobody watches the dispatcher: no trace, mode, subclass, vmap or other device.

    Refuses tensors with tangents."""
    if forward_ad._current_level >= 0 and not _compiling():
        _refuse_tangents(q=q, k=k, v=v)
    return not (
        _compiling()
        or _modes()
        or _transforms()
        or _traced()
        or type(q) not in _PLAIN
        or type(k) not in _PLAIN
        or type(v) not in _PLAIN
        or not (q.is_cpu or q.is_cuda)
        or q.is_nested
        or k.is_nested
        or v.is_nested
    )


def execute(
    made: Ready, q: Tensor, k: Tensor, v: Tensor, lists: Lists, bits: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(o, lse) of plain tensors whose plan is known; `bits`: the keep bits, if they are made."""
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        pair: tuple[Tensor, Tensor] = _apply(q, k, v, lists, made, bits)
        return pair
    return _passes.forward(made, q, k, v, lists, None, bits)


def attend(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules, prepared: Any = None
) -> tuple[Tensor, Tensor]:
    """(o, lse), with gradients for q, k and v from both. `prepared` is a PreparedDropout."""
    if plain(q, k, v):
        plan = ready(q, k, v, lists, rules)
        bits = None if prepared is None else prepared.take(plan, lists)
        return execute(plan, q, k, v, lists, bits)
    refuse_func_grad()
    if type(q).__name__ == "DTensor":  # its sharding rules are registered when they are needed
        rules_of = importlib.import_module("ordo.torch.distributed._dtensor")
        lists = rules_of.replicated(q, lists)
    made: tuple[Tensor, Tensor] = torch.ops.ordo.attention_forward(q, k, v, *lists, *rules)
    return made
