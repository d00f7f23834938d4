"""One call of attention: the formula of autograd around the operators, and their fake kernels.

eager() goes below autograd, inside Node where a gradient is asked for; watched() to the operators, in
graphs by name. The kernels at the key Autograd are the same Node, so that graphs that are run again,
and callers of the operators, have gradients.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._library import Error
from . import _front as f
from ._inputs import Call, check, check_saved, lists_of


Pair = tuple[Tensor, Tensor]  # o and lse

_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_grad_enabled = torch.is_grad_enabled
_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_DROPS = f.RNG | f.DRAW


def eager(q: Tensor, k: Tensor, v: Tensor, call: Call, sink: Tensor | None = None) -> Pair:
    """(o, lse) of plain tensors, with gradients for q, k, v and sink from both."""
    try:
        if forward_ad._current_level >= 0 or (
            _grad_enabled()
            and (
                q.requires_grad or k.requires_grad or v.requires_grad
                or (sink is not None and sink.requires_grad)
            )
        ):  # fmt: skip
            pair: Pair = _apply(q, k, v, sink, call, True)
            return pair
        o, lse, _, _ = f.eager_forward(q, k, v, *call)
        return o, lse
    except RuntimeError as error:
        raise f.error_of(error) from None


def watched(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Pair:
    """The same of other tensors."""
    if _compiling() or torch._C._get_tracing_state():  # never Node: in torch.func.grad Dynamo drops its formula
        return torch.ops.ordo.forward(q, k, v, *call)[:2]  # type: ignore[no-any-return]
    if torch._C._functorch.peek_interpreter_stack():
        raise Error(
            "unsupported",
            "torch.func (grad, vjp, jacrev, jvp, vmap): not supported for attention; expected "
            "torch.autograd.grad() or backward()",
        )
    try:
        return _forward(q, k, v, *call)[:2]  # type: ignore[no-any-return]
    except RuntimeError as error:
        raise f.error_of(error) from None


class Node(torch.autograd.Function):
    """Attention with its gradients. Saved are q, k, v, o, lse and what `more` holds."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sink: Any, call: Call, plain: bool) -> Any:
        if not plain:
            with f.below():
                o, lse, _ = torch.ops.ordo.forward(q, k, v, *call)
        elif call[0] & _DROPS:
            o, lse, call = _dropped(q, k, v, *call)
        else:
            o, lse, _, _ = f.eager_forward(q, k, v, *call)
        flags, scale, more, *rest = call
        ctx.materialize_grads = False
        ctx.to_save = (q, k, v, o, lse, *more)  # as save_for_backward() does
        ctx.call = flags, scale, rest, k.shape, plain
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse, *more = ctx.saved_tensors  # once: a second time fails under a checkpoint
        flags, scale, rest, keys, plain = ctx.call
        if k.shape != keys:  # autograd would sum dk to the old shape
            shape, expected = tuple(k.shape), tuple(keys)
            raise Error("shape", f"k.shape {shape}: expected {expected}")
        if dout is None:  # only lse was used
            dout = torch.zeros_like(o)
        if not flags & f.SINK:
            needs = ctx.needs_input_grad
            flags |= (0 if needs[0] else f.NO_DQ) | (0 if needs[1] or needs[2] else f.NO_DKV)
        given = dout, dlse, q, k, v, o, lse, flags, scale, more, *rest
        if not plain or _grad_enabled() or _compiling() or _modes():  # create_graph is refused there
            return (*torch.ops.ordo.backward(*given), None, None)
        try:
            return (*f.eager_backward(*given), None, None)
        except RuntimeError as error:
            raise f.error_of(error) from None


def _dropped(q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, *rest: Any) -> Any:
    """(o, lse, call): with the seed and offset that were drawn, and the bits that were kept."""
    keep = 0 if _hooks(True) else f.KEEP  # under hooks (checkpoints, offloading) bits are made again
    o, lse, bits, rng = f.eager_forward(q, k, v, flags | keep, scale, more, *rest)
    if rng is not None:
        flags, more = flags ^ f.DRAW | f.RNG, (rng, *more)
    at = bin(flags & (f.BITS - 1)).count("1")
    if flags & f.BITS:  # given: kept if the pass says so by an empty tensor
        given, more = more[at], (*more[:at], *more[at + 1 :])
        bits = None if bits is None else given
        flags ^= f.BITS
    if bits is not None:
        held(bits)
        flags, more = flags | f.BITS, (*more[:at], bits, *more[at:])
    return o, lse, (flags, scale, more, *rest)


def held(bits: Tensor) -> None:
    """Count bits as kept until they are released."""
    device = bits.device.index if bits.is_cuda else -1
    f.hold(device, bits.numel())
    weakref.finalize(bits, f.hold, device, -bits.numel()).atexit = False


# Function.apply() itself, without a look for functorch: plain() has made sure of that.
_apply = super(torch.autograd.Function, Node).apply
_checked_apply = Node.apply
Node._backward_cls.apply = Node.backward  # without a look for vjp()


# ---- the operators with gradients ----


def _forward(q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, *rest: Any) -> Any:
    sink = more[-1] if flags & f.SINK else None
    if forward_ad._current_level >= 0 or (
        _grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, sink))
    ):
        return (*_checked_apply(q, k, v, sink, (flags, scale, more, *rest), False), None)
    with f.below():
        return torch.ops.ordo.forward(q, k, v, flags, scale, more, *rest)


class _Once(torch.autograd.Function):
    """The backward operator, which has no derivative."""

    @staticmethod
    def forward(ctx: Any, flags: int, *given: Any) -> Any:
        saved, (scale, count, *rest) = given[:7], given[7:]
        rest, more = rest[: len(rest) - count], rest[len(rest) - count :]
        with f.below():
            return torch.ops.ordo.backward(*saved, flags, scale, more, *rest)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise Error("unsupported", "second derivatives of attention: not supported")


def _backward(*given: Any) -> Any:
    saved, flags, scale, more, rest = given[:7], *given[7:10], given[10:]
    some = *saved, *more
    if _grad_enabled() and any(x is not None and x.requires_grad for x in some):
        return _Once.apply(flags, *saved, scale, len(more), *rest, *more)
    with f.below():
        return torch.ops.ordo.backward(*given)


f.library.impl("forward", _forward, "Autograd")
f.library.impl("backward", _backward, "Autograd")
for _name in ("eager_forward", "eager_backward", "backward_part", "keep_bits", "draw"):
    f.library.impl(_name, torch.library.fallthrough_kernel, "Autograd")


# ---- fake kernels ----


def rows_first(flags: int, *tensors: Tensor) -> list[Tensor]:
    """As attention() takes them."""
    if not flags & f.HEADS_FIRST:
        return list(tensors)
    transposed = [x.transpose(1, 2) for x in tensors]
    return [x.flatten(0, 1) for x in transposed] if flags & f.CU_Q else transposed


def _check(q: Tensor, k: Tensor, v: Tensor, flags: int, more: Any, dropout_p: float) -> Any:
    """(rows-first q and v), or an Error where tensors contradict each other."""
    if flags & f.HEADS_FIRST:
        for name, x in (("q", q), ("k", k), ("v", v)):
            if x.dim() != 4:
                raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected four axes")
    rows, keys, values = rows_first(flags, q, k, v)
    check(rows, keys, values, lists_of(flags, more), dropout_p)
    return rows, keys, values


@torch.library.register_fake("ordo::forward", lib=f.library)
def _forward_fake(
    q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, softcap: float = 0.0,
    dropout_p: float = 0.0, sizes: Any = (),
) -> Any:  # fmt: skip
    rows, _, values = _check(q, k, v, flags, more, dropout_p)
    lse = q.new_empty((*rows.shape[:-3], rows.shape[-2], rows.shape[-3]), dtype=torch.float32)
    if flags & f.HEADS_FIRST:
        b, h, r, _ = q.shape
        o = q.new_empty((b, r, h, v.shape[-1]))
        return o.transpose(1, 2) if flags & f.LIKE_Q else o, lse, None
    return q.new_empty((*q.shape[:-1], v.shape[-1])), lse, None


@torch.library.register_fake("ordo::eager_forward", lib=f.library)
def _eager_forward_fake(*given: Any) -> Any:
    return *_forward_fake(*given), None


@torch.library.register_fake("ordo::eager_backward", lib=f.library)
@torch.library.register_fake("ordo::backward", lib=f.library)
def _backward_fake(
    dout: Tensor, dlse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, flags: int,
    scale: float, more: Any, softcap: float = 0.0, dropout_p: float = 0.0, sizes: Any = (),
) -> Any:  # fmt: skip
    _check_places(dict(dout=dout, q=q, k=k, v=v, o=o, lse=lse, dlse=dlse), flags, more)
    _check(q, k, v, flags, more, dropout_p)
    if not flags & f.HEADS_FIRST:
        check_saved(dout, dlse, q, v, o, lse)

    def grad(x: Tensor, wanted: bool) -> Any:
        if not wanted:
            return None
        if flags & f.HEADS_FIRST:
            return x.new_empty(x.transpose(1, 2).shape).transpose(1, 2)
        return x.new_empty(x.shape)

    keys = not flags & f.NO_DKV
    sink = more[-1].new_empty(more[-1].shape) if flags & f.SINK else None
    return grad(q, not flags & f.NO_DQ), grad(k, keys), grad(v, keys), sink


def _check_places(given: dict[str, Any], flags: int, more: Any) -> None:
    """Tensors with data come here too if a single one is on the meta device."""
    given.update(lists_of(flags, more)._asdict())
    if flags & f.SINK:
        given["sink"] = more[-1]
    places = {name: x.device for name, x in given.items() if x is not None}
    expected = next((x for x in places.values() if x.type != "meta"), None)
    for name, place in places.items():
        if expected is not None and place != expected:
            raise Error("argument", f"{name}.device {place}: expected {expected}")


@torch.library.register_fake("ordo::keep_bits", lib=f.library)
def _keep_bits_fake(
    q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, softcap: float = 0.0,
    dropout_p: float = 0.0, sizes: Any = (),
) -> Any:  # fmt: skip
    rows, keys, _ = _check(q, k, v, flags, more, dropout_p)
    down, across = (-(-x // 16) for x in (rows.shape[-3], keys.shape[-3]))
    return q.new_empty(down * across, dtype=torch.uint8)


@torch.library.register_fake("ordo::draw", lib=f.library)
def _draw_fake(like: Tensor) -> Tensor:
    return like.new_empty(2, dtype=torch.int64)
