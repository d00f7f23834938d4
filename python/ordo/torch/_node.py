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

from torch.utils.flop_counter import register_flop_formula

from .._library import Error
from . import _front as f
from ._inputs import Call, fake_rows, learned, lists_of, rows_first, seen_bytes


Pair = tuple[Tensor, Tensor]  # o and lse

_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_grad_enabled = torch.is_grad_enabled
_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_DROPS = f.RNG | f.DRAW


def eager(
    q: Tensor, k: Tensor, v: Tensor, call: Call, bias: Tensor | None = None, sink: Tensor | None = None
) -> Pair:
    """(o, lse) of plain tensors, with gradients for q, k, v, bias and sink from both."""
    try:
        if _grad_enabled() and (
            q.requires_grad or k.requires_grad or v.requires_grad
            or (bias is not None and bias.requires_grad) or (sink is not None and sink.requires_grad)
        ):  # fmt: skip
            pair: Pair = _apply(q, k, v, bias, sink, call, True)
            return pair
        o, lse, _, _ = f.eager_forward(q, k, v, *call)
        return o, lse
    except RuntimeError as error:
        raise f.error_of(error) from None


def watched(q: Tensor, k: Tensor, v: Tensor, call: Call) -> Pair:
    """The same of other tensors."""
    if _compiling() or torch._C._get_tracing_state():  # never Node: in torch.func.grad Dynamo drops its formula
        return torch.ops.ordo.forward(q, k, v, *call)[:2]  # type: ignore[no-any-return]
    return f.run(_forward, q, k, v, *call)[:2]  # type: ignore[no-any-return]


class Node(torch.autograd.Function):
    """Attention with its gradients. Saved are q, k, v, o, lse and what `more` holds."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Any, sink: Any, call: Call, plain: bool) -> Any:
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
        needs = ctx.needs_input_grad
        flags |= f.NEEDS_DBIAS if needs[3] else 0
        if not flags & f.SINK:
            flags |= (0 if needs[0] else f.NO_DQ) | (0 if needs[1] or needs[2] else f.NO_DKV)
        watched = not plain or _grad_enabled() or _compiling() or _modes()  # create_graph is refused there
        run = torch.ops.ordo.backward if watched else f.eager_backward
        dq, dk, dv, dsink, dbias = f.run(run, dout, dlse, q, k, v, o, lse, flags, scale, more, *rest)
        return dq, dk, dv, dbias, dsink, None, None


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
    some = q, k, v, *learned(flags, more)
    if forward_ad._current_level >= 0 or (
        _grad_enabled() and any(x is not None and x.requires_grad for x in some)
    ):
        return (*_checked_apply(*some, (flags, scale, more, *rest), False), None)
    with f.below():
        return torch.ops.ordo.forward(q, k, v, flags, scale, more, *rest)


class _Once(torch.autograd.Function):
    """What `run` gives, as a function of tensors, but without a derivative."""

    @staticmethod
    def forward(ctx: Any, run: Any, *tensors: Any) -> Any:
        return run()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise Error("unsupported", "second derivatives of attention: not supported")


def _backward(*given: Any) -> Any:
    def run() -> Any:
        with f.below():
            return torch.ops.ordo.backward(*given)

    some = *given[:7], *given[9]
    if _grad_enabled() and any(x is not None and x.requires_grad for x in some):
        return _Once.apply(run, *some)
    return run()


f.library.impl("forward", _forward, "Autograd")
f.library.impl("backward", _backward, "Autograd")
for _name in ("eager_forward", "eager_backward", "backward_part", "keep_bits", "draw", "seen"):
    f.library.impl(_name, torch.library.fallthrough_kernel, "Autograd")


# ---- fake kernels ----

def _fake(name: str) -> Any:
    return torch.library.register_fake(f"ordo::{name}", lib=f.library)


@_fake("forward")
def _forward_fake(q: Tensor, k: Tensor, v: Tensor, flags: int, scale: float, more: Any, *rest: Any) -> Any:
    rows, *_ = fake_rows(flags, more, q, k, v)
    lse = q.new_empty((*rows.shape[:-3], rows.shape[-2], rows.shape[-3]), dtype=torch.float32)
    if not flags & f.HEADS_FIRST:
        return q.new_empty((*q.shape[:-1], v.shape[-1])), lse, None
    o = q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[-1]))
    return o.transpose(1, 2) if flags & f.LIKE_Q else o, lse, None


@_fake("backward")
def _backward_fake(
    dout: Tensor, dlse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, flags: int,
    scale: float, more: Any, *rest: Any,
) -> Any:  # fmt: skip
    fake_rows(flags, more, q, k, v, dout=dout, dlse=dlse, o=o, lse=lse)

    def grad(x: Tensor, wanted: bool) -> Any:
        if not wanted:
            return None
        if flags & f.HEADS_FIRST:
            return x.new_empty(x.transpose(1, 2).shape).transpose(1, 2)
        return x.new_empty(x.shape)

    keys = not flags & f.NO_DKV
    bias, sink = learned(flags, more)
    dsink = None if sink is None else sink.new_empty(sink.shape)
    dbias = None
    if bias is not None and flags & f.NEEDS_DBIAS:
        dbias = bias.new_empty(bias.shape, dtype=torch.float32)
    return grad(q, not flags & f.NO_DQ), grad(k, keys), grad(v, keys), dsink, dbias


@_fake("draw")
def _draw_fake(like: Tensor) -> Tensor:
    return like.new_empty(2, dtype=torch.int64)


@_fake("seen")
def _seen_fake(elements: Tensor) -> Tensor:
    *masks, rows, columns = elements.shape
    return elements.new_empty((*masks, seen_bytes(rows, columns)), dtype=torch.uint8)


# ---- formulas of torch.utils.flop_counter.FlopCounterMode ----


def _flops(q: Tensor, k: Tensor, v: Tensor, wide: int, narrow: int, call: Any) -> int:
    """As those of PyTorch's own attention: products of all keys and rows of each sequence, whatever the
    mask leaves out; padding counts, too. `wide` of them are along the axis of q, `narrow` of v."""
    flags, _, more, *rest = call
    q, k, v = rows_first(flags, q, k, v)
    lists = lists_of(flags, more)
    pairs: Any = q.shape[0] * k.shape[1] * (1 if lists.cu_q is not None else q.shape[1])
    if lists.cu_q is not None:
        keys: Any = lists.kv_lens if lists.cu_kv is None else lists.cu_kv.diff()
        ends = lists.cu_q
        if ends.is_meta or isinstance(ends, torch._subclasses.FakeTensor):  # no lengths to read
            pairs = q.shape[0] * rest[2][3]  # max_kv
        else:
            pairs = (ends.diff().long() * keys.long().to(ends.device)).sum()
    return int(2 * q.shape[-2] * int(pairs) * (wide * q.shape[-1] + narrow * v.shape[-1]))


@register_flop_formula(torch.ops.ordo.forward, get_raw=True)
def _count_forward(q: Tensor, k: Tensor, v: Tensor, *call: Any, out_val: Any = None) -> int:
    return _flops(q, k, v, 1, 1, call)


@register_flop_formula([torch.ops.ordo.backward, torch.ops.ordo.backward_part], get_raw=True)
def _count_backward(dout: Any, dlse: Any, *given: Any, out_val: Any = None) -> int:
    """Scores again, dP and dV; dQ and dK. A part has its sums before the call, which has one list of tensors."""
    q, k, v, _, _, *rest = given
    return _flops(q, k, v, 3, 2, rest if isinstance(rest[0], int) else rest[3:])
