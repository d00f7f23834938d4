"""Backward passes over parts of a problem: some of the gradients, and sums that are carried on.

A pass over some rows of a sequence leaves the sums of dk and dv in memory, and the pass over the
next rows goes on from there: ordo_call.carry in ordo/attention.h.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ._call import PART_BYTES, STRIDED, SUMS, run_backward
from ._inputs import Lists
from ._passes import _check, _filled, _readable, _tensor
from ._plans import Ready, ready

CARRY_IN, CARRY_OUT = 1, 2
_NOTHING = (0, 0, 0, 0, 0)


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


class Wanted(NamedTuple):
    dq: bool
    keys: bool  # dk and dv; not with CARRY_OUT


def backward(
    made: Ready, rows: Saved, k: Tensor, v: Tensor, lists: Lists, want: Wanted,
    sums: Sums | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """(dq, dk, dv), None where they are not wanted. Neither rows nor columns may be empty."""
    if made.width:
        return _filled_backward(made, rows, k, v, lists, want, sums)
    q, o, dout, k, v = map(_readable, (rows.q, rows.o, rows.dout, k, v))
    made = ready(q, k, v, lists, made.rules)
    _check(made, dout, rows.dlse, q, k, v, o, rows.lse)
    new = q.new_empty_strided
    dq = new(*made.dq) if want.dq else None
    dk, dv = (new(*made.dk), new(*made.dv)) if want.keys else (None, None)
    head = STRIDED.pack(
        PART_BYTES, q.data_ptr(), *made.q_strides, k.data_ptr(), *made.k_strides, v.data_ptr(),
        *made.v_strides, *_tensor(o), *_tensor(dout),
        *(number for x in (dq, dk, dv) for number in (_NOTHING if x is None else _tensor(x))),
    )  # fmt: skip
    lse = rows.lse.resolve_neg().contiguous()
    dlse = None if rows.dlse is None else rows.dlse.resolve_neg().contiguous()
    ends = (lse.data_ptr(), 0 if dlse is None else dlse.data_ptr())
    tail = (0, 0, 0) if sums is None else (sums.dk.data_ptr(), sums.dv.data_ptr(), sums.carry)
    run_backward(made, head, ends, lists, None, SUMS.pack(*tail))
    return dq, dk, dv


def _filled_backward(
    made: Ready, rows: Saved, k: Tensor, v: Tensor, lists: Lists, want: Wanted, sums: Sums | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """With head sizes filled up with zeros; so are the sums."""
    q, o, dout, wide_k, wide_v = _filled(made, rows.q, rows.o, rows.dout, k, v)
    wide_sums = None
    if sums is not None:
        dk, dv = _filled(made, sums.dk, sums.dv)
        wide_sums = Sums(dk, dv, sums.carry)
    wide = ready(q, wide_k, wide_v, lists, made.rules)
    found = backward(
        wide, rows._replace(q=q, o=o, dout=dout), wide_k, wide_v, lists, want, wide_sums
    )
    if sums is not None and wide_sums is not None:
        for x, y in zip(sums[:2], wide_sums[:2]):
            x.copy_(y[..., : x.shape[-1]])

    def narrow(x: Tensor | None, dim: int) -> Tensor | None:
        return None if x is None else x[..., :dim].contiguous()

    dim, v_dim = k.shape[-1], v.shape[-1]
    return narrow(found[0], dim), narrow(found[1], dim), narrow(found[2], v_dim)
