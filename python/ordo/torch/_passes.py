"""Passes on real tensors, below autograd.

Tensors that the library does not take as they are become others that it takes: strided or
misaligned ones are copied, head sizes are filled up with zeros. Each is planned by itself.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._library import Error
from . import _compiled
from ._call import (
    CALL_BYTES,
    DENSE,
    NO_TENSOR,
    SINK,
    SINK_BYTES,
    STRIDED,
    run_backward,
    run_forward,
)
from ._inputs import Lists, check_one, refuse_negative
from ._layout import CUDA, strides, takes_strides
from ._lengths import check as check_lengths
from ._lengths import checked
from ._plans import Ready, ready

watchers: list[Callable[[Ready, Lists], None]] = []  # each is called before a forward pass


def forward(
    made: Ready,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lists: Lists,
    out: Tensor | None = None,
    bits: Tensor | None = None,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(o, lse). `out` is overwritten if given, with any strides; else o is contiguous. `bits` are
    the keep bits of the call if they have been made, `sink` is float32 and contiguous."""
    if made.empty:
        o = q.new_empty_strided(*made.o) if out is None else out
        return o.zero_(), q.new_full(made.lse.sizes, -math.inf, dtype=torch.float32)
    if checked() and made.lists:
        check_lengths(made.plan.problem, lists)
    if made.number and out is None and sink is None and _at_once(made, bits) and not watchers:
        done = _compiled.forward(made, q, k, v, lists, bits)
        if done is not None:
            return done
    if made.width:
        return _filled_forward(made, q, k, v, lists, out, bits, sink)
    places = q.data_ptr(), k.data_ptr(), v.data_ptr()
    odd = made.cuda and functools.reduce(operator.or_, places) % CUDA.tensor_align
    if made.copied or odd or q.is_neg() or k.is_neg() or v.is_neg():
        q, k, v = _readable(q), _readable(k), _readable(v)
        return forward(ready(q, k, v, lists, made.rules), q, k, v, lists, out, bits, sink)
    o = q.new_empty_strided(*made.o) if out is None else out
    lse = q.new_empty_strided(*made.lse, dtype=torch.float32)
    size, more = CALL_BYTES, b""
    if sink is not None:
        size, more = SINK_BYTES, SINK.pack(sink.data_ptr(), 0, 0)
    if made.dense and out is None:
        head = DENSE.pack(size, *places, o.data_ptr(), 0, 0, 0, 0)
    else:
        head = STRIDED.pack(
            size, places[0], *made.q_strides, places[1], *made.k_strides, places[2],
            *made.v_strides, *_tensor(o), *NO_TENSOR, *NO_TENSOR, *NO_TENSOR, *NO_TENSOR,
        )  # fmt: skip
    for watch in watchers:
        watch(made, lists)
    run_forward(made, head, (lse.data_ptr(), 0), lists, bits, more)
    return o, lse


Grads = tuple[Tensor, Tensor, Tensor]
Sinks = tuple[Tensor, Tensor]  # sink, and dsink, which is written


def backward(
    made: Ready,
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    grads: Grads | None = None,
    bits: Tensor | None = None,
    sinks: Sinks | None = None,
) -> Grads:
    """(dq, dk, dv): `grads` overwritten if given, with any strides; else contiguous.

    Every tensor is compared with the plan before anything is written: hooks of saved tensors, and
    an assignment to .data, may have replaced what the forward pass saved. q, k and v may have
    other strides than there: hooks may have stored them in another layout.
    """
    if made.lists:
        check_listed(made, lists)
    if made.number and grads is None and sinks is None and _at_once(made, bits):
        done = _compiled.backward(made, dout, dlse, q, k, v, o, lse, lists, bits)
        if done is not None:
            return done
    _check(made, dout, dlse, q, k, v, o, lse)
    if grads is not None:
        for name, x, like in zip(("dq", "dk", "dv"), grads, (q, k, v)):
            check_one(name, x, like.shape, like.dtype, like.device)
    if (q.stride(), k.stride(), v.stride()) != made.given_strides:
        made = ready(q, k, v, lists, made.rules)
        return backward(made, dout, dlse, q, k, v, o, lse, lists, grads, bits, sinks)
    if made.empty:
        dq, dk, dv = _new_grads(made, q) if grads is None else grads
        return dq.zero_(), dk.zero_(), dv.zero_()
    if made.width:
        return _filled_backward(made, dout, dlse, q, k, v, o, lse, lists, grads, bits, sinks)
    places = q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), dout.data_ptr()
    dense = dout.is_contiguous() and o.is_contiguous()
    odd = made.cuda and functools.reduce(operator.or_, places) % CUDA.tensor_align
    negative = q.is_neg() or k.is_neg() or v.is_neg() or o.is_neg() or dout.is_neg()
    taken = dense or (takes_strides(dout) and takes_strides(o))
    if made.copied or odd or negative or not taken:
        q, k, v, o, dout = map(_readable, (q, k, v, o, dout))
        made = ready(q, k, v, lists, made.rules)
        return backward(made, dout, dlse, q, k, v, o, lse, lists, grads, bits, sinks)
    dq, dk, dv = _new_grads(made, q) if grads is None else grads
    size, more = CALL_BYTES, b""
    if sinks is not None:
        size, more = SINK_BYTES, SINK.pack(sinks[0].data_ptr(), sinks[1].data_ptr(), 0)
    if dense and made.dense and grads is None:
        head = DENSE.pack(size, *places, dq.data_ptr(), dk.data_ptr(), dv.data_ptr())
    else:
        head = STRIDED.pack(
            size, places[0], *made.q_strides, places[1], *made.k_strides, places[2],
            *made.v_strides, *_tensor(o), *_tensor(dout), *_tensor(dq), *_tensor(dk), *_tensor(dv),
        )  # fmt: skip
    lse = lse.resolve_neg().contiguous()
    if dlse is not None:
        dlse = dlse.resolve_neg().contiguous()
    ends = lse.data_ptr(), 0 if dlse is None else dlse.data_ptr()
    run_backward(made, head, ends, lists, bits, more)
    return dq, dk, dv


def _check(
    made: Ready,
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
) -> None:
    """Raise Error unless the tensors of a backward pass are as the plan has them."""
    dtype, place, f32 = made.dtype, made.place, torch.float32
    if (
        (q.shape, k.shape, v.shape, o.shape, dout.shape, lse.shape) == made.sizes
        and dtype is q.dtype is k.dtype is v.dtype is o.dtype is dout.dtype
        and f32 is lse.dtype
        and place == q.device == k.device == v.device == o.device == dout.device == lse.device
    ):
        if dlse is not None:
            check_one("dlse", dlse, made.lse.sizes, f32, place)
        return
    given = (("q", q), ("k", k), ("v", v), ("o", o), ("dout", dout), ("lse", lse))
    for (name, x), sizes in zip(given, made.sizes):
        check_one(name, x, sizes, f32 if x is lse else dtype, place)


def check_listed(made: Ready, lists: Lists) -> None:
    """Raise Error unless the lists of a backward pass are as the plan has them."""
    for at, shape, dtype in made.kinds:
        x: Any = lists[at]
        if (
            x.shape == shape and x.dtype is dtype and x.device == made.place
            and x.is_contiguous() and not x.is_neg()
        ):  # fmt: skip
            continue
        name = Lists._fields[at]
        check_one(name, x, shape, dtype, made.place)
        if not x.is_contiguous():
            raise Error("align", f"{name}.stride {x.stride()}: expected a contiguous tensor")
        refuse_negative(name, x)


def check_bits(made: Ready, bits: Tensor) -> None:
    """The same for keep bits."""
    check_one("bits", bits, (made.bits_bytes,), torch.uint8, made.place)
    if not bits.is_contiguous():
        raise Error("align", f"bits.stride {bits.stride()}: expected a contiguous tensor")


def _at_once(made: Ready, bits: Tensor | None) -> bool:
    """Whether the compiled front may run the pass: there are no bits to be made before it."""
    return _compiled.front.on and (bits is not None or not made.bits_bytes)


def _new_grads(made: Ready, q: Tensor) -> Grads:
    new = q.new_empty_strided
    return new(*made.dq), new(*made.dk), new(*made.dv)


# ---- tensors ----


def _tensor(x: Tensor) -> tuple[int, ...]:
    return (x.data_ptr(), *strides(x))


def _readable(x: Tensor) -> Tensor:
    """The tensor itself if the library takes it; else a contiguous copy, without the negative bit,
    under which memory holds the other sign."""
    if takes_strides(x) and not (x.is_cuda and x.data_ptr() % CUDA.tensor_align or x.is_neg()):
        return x
    return x.clone(memory_format=torch.contiguous_format)


# ---- head sizes that no kernel has: filled up with zeros, which change no score ----


def _filled(made: Ready, *tensors: Tensor) -> list[Tensor]:
    return [torch.nn.functional.pad(x, (0, made.width - x.shape[-1])) for x in tensors]


def _filled_forward(
    made: Ready,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lists: Lists,
    out: Tensor | None,
    bits: Tensor | None,
    sink: Tensor | None,
) -> tuple[Tensor, Tensor]:
    if out is None:
        out = q.new_empty_strided(*made.o)
    q, k, v = _filled(made, q, k, v)
    o, lse = forward(ready(q, k, v, lists, made.rules), q, k, v, lists, None, bits, sink)
    return out.copy_(o[..., : out.shape[-1]]), lse


def _filled_backward(
    made: Ready,
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    lists: Lists,
    grads: Grads | None,
    bits: Tensor | None,
    sinks: Sinks | None,
) -> Grads:
    q, k, v, o, dout = _filled(made, q, k, v, o, dout)
    wide = ready(q, k, v, lists, made.rules)
    full = backward(wide, dout, dlse, q, k, v, o, lse, lists, None, bits, sinks)
    if grads is None:
        grads = _new_grads(made, q)
    for x, y in zip(grads, full):
        x.copy_(y[..., : x.shape[-1]])
    return grads
