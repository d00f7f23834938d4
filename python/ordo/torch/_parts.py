"""Passes below autograd: of a whole problem, and backward passes over parts of one.

A pass over some rows of a sequence leaves the sums of dk and dv in memory, and the pass over the
next rows goes on from there: ordo_call.carry in ordo/attention.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._attention import CARRIES, Carry, Gradient, wanted_gradients
from .._library import Error
from . import _front as f
from ._call import arguments, filled, prepare, widened, width_of
from ._inputs import Lists, Rules, call_of, empty

CARRY_IN, CARRY_OUT = 1, 2
Some = tuple[Tensor | None, Tensor | None, Tensor | None]


class Saved(NamedTuple):
    """What a backward pass reads of its query rows."""

    q: Tensor
    o: Tensor
    lse: Tensor
    dout: Tensor
    dlse: Tensor | None


class Sums(NamedTuple):
    """f32, contiguous, in the shapes of k and v. Read and written as `carry` says."""

    dk: Tensor
    dv: Tensor
    carry: int


def forward(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules, flags: int = 0
) -> tuple[Tensor, Tensor]:
    """(o, lse). `flags`: HEADS_FIRST or LIKE_Q, which take head sizes as they are."""
    more, *rest = call_of(lists, rules)
    with f.below():
        o, lse, _ = f.run(f.forward, *widened(q, k, v), more | flags, *rest)
    return _narrow(o, v.shape[-1], q if flags & f.LIKE_Q else None), lse


def _narrow(x: Tensor, dim: int, like: Tensor | None) -> Tensor:
    """x without the columns with which its head size was filled up, laid out as `like` if given."""
    if x.shape[-1] == dim:
        return x
    if like is None or like.shape[-1] != dim:
        return x[..., :dim].contiguous()
    return torch.empty_like(like).copy_(x[..., :dim])


def backward(
    rows: Saved, k: Tensor, v: Tensor, lists: Lists, rules: Rules, flags: int = 0, sums: Sums | None = None
) -> Some:
    """(dq, dk, dv), None where they are not wanted: NO_DQ, NO_DKV; the latter with CARRY_OUT."""
    q, o, lse, dout, dlse = rows
    width, likes, carried, run = width_of(q, v), (q, k, v), [], f.backward
    q, k, v, o, dout = filled(width, q, k, v, o, dout)
    if sums is not None:
        carried, run = [*filled(width, sums.dk, sums.dv), sums.carry], f.backward_part
    more, *rest = call_of(lists, rules)
    with f.below():
        made = f.run(run, dout, dlse, q, k, v, o, lse, *carried, more | flags, *rest)[:3]
    if width and sums is not None:
        for x, y in zip((sums.dk, sums.dv), carried):
            x.copy_(y[..., : x.shape[-1]])
    dq, dk, dv = (
        None if x is None else _narrow(x, y.shape[-1], y if flags & f.LIKE_Q else None)
        for x, y in zip(made, likes)
    )
    return dq, dk, dv


# ---- for those who cut sequences ----


def backward_part(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    *,
    dlse: Tensor | None = None,
    gradients: Sequence[Gradient] = ("dq", "dk", "dv"),
    carry: Carry = "",
    dk_sums: Tensor | None = None,
    dv_sums: Tensor | None = None,
    **keywords: Any,
) -> Some:
    """(dq, dk, dv) of one backward pass, for those who cut sequences. It records no gradients.

    q, k, v, o, lse and the other keywords are what attention() took and gave for these rows (no sink, block
    mask or generator); `shard` says which rows of the sequence they are. The gradients are contiguous, and None if not computed.

        dout, dlse       gradients of o and of lse
        gradients        those to compute: ("dq",), ("dk", "dv") or all
        carry            "out" for the first part of the rows, "in+out" for those after it, "in" for
                         the last one; docs/guide/torch.md says which parts have the bits of one pass
        dk_sums, dv_sums float32, contiguous, of the shapes of k and v: read with "in", written with
                         "out"; with "out" dk and dv are None
    """
    a = arguments(keywords, "generator", "prepared", "sink", "block_mask", "seen", "bias")
    if a.cu_q is not None and (a.q_lens is not None or a.kv_lens is not None):
        raise Error("unsupported", "q_lens or kv_lens beside cu_q: expected one of the two layouts")
    if a.dropout_p and a.seed is None and a.rng_state is None:
        raise Error("argument", "seed and rng_state None: expected those of the forward pass")
    wanted = wanted_gradients(gradients, carry)
    if ("dk" in wanted) != ("dv" in wanted):
        raise Error("argument", f"gradients {gradients!r}: expected dk and dv together, or neither")
    for name, x in (("dk_sums", dk_sums), ("dv_sums", dv_sums)):
        if (x is not None) != bool(carry):
            given, expected = ("None", "a tensor") if x is None else ("given", "None")
            raise Error("argument", f"{name} {given}: expected {expected} with carry {carry!r}")
    q, k, v, lists, rules = prepare(q, k, v, a)
    sums = None
    if dk_sums is not None and dv_sums is not None:
        sums = Sums(dk_sums.detach(), dv_sums.detach(), CARRIES[carry])
    flags = (0 if "dq" in wanted else f.NO_DQ) | (0 if "dk" in wanted else f.NO_DKV)
    made = backward(Saved(q, o, lse, dout, dlse), k, v, lists, rules, flags, sums)
    if sums is not None and carry == "out" and empty(q, k, lists):  # nothing was written
        sums.dk.zero_()
        sums.dv.zero_()
    return made
