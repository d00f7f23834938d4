"""A backward pass over some rows of a sequence, and of some gradients: no autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from .._attention import CARRIES, Carry, Gradient, wanted_gradients
from .._library import Error
from .._problem import Shard
from .._words import Keying
from . import _inputs, _parts
from ._call import Arguments, prepare
from ._plans import plan_of

Some = tuple[Tensor | None, Tensor | None, Tensor | None]
Sums = tuple[Tensor, Tensor] | None


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
    causal: bool | Literal["bottom-right", "top-left"] = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Tensor | None = None,
    dropout_p: float = 0.0,
    seed: int | Sequence[int] | None = None,
    rng_state: Tensor | None = None,
    keying: Keying = "ordo",
    cu_q: Tensor | None = None,
    cu_kv: Tensor | None = None,
    max_q: int | None = None,
    max_kv: int | None = None,
    q_lens: Tensor | None = None,
    kv_lens: Tensor | None = None,
    sequence_ids: Tensor | None = None,
    shard: Shard | None = None,
) -> Some:
    """(dq, dk, dv) of one backward pass, for those who cut sequences. It records no gradients.

    q, k, v, o, lse and the keywords are what attention() took and gave for these rows; `shard`
    says which rows of the sequence they are. The gradients are contiguous, and None if not computed.

        dout, dlse       gradients of o and of lse
        gradients        those to compute: ("dq",), ("dk", "dv") or all
        carry            "out" for the first part of the rows, "in+out" for those after it, "in" for
                         the last one: parts of whole backward tiles, in the order in which the
                         plan visits rows (last rows first under masks that cut, first rows first
                         under full ones), have the bits of one pass
        dk_sums, dv_sums float32, contiguous, of the shapes of k and v: read with "in", written with
                         "out"; with "out" dk and dv are None
    """
    if cu_q is not None and (q_lens is not None or kv_lens is not None):
        raise Error("unsupported", "q_lens or kv_lens beside cu_q: expected one of the two layouts")
    if dropout_p and seed is None and rng_state is None:
        raise Error("argument", "seed and rng_state None: expected those of the forward pass")
    wanted = wanted_gradients(gradients, carry)
    if ("dk" in wanted) != ("dv" in wanted):
        raise Error("argument", f"gradients {gradients!r}: expected dk and dv together, or neither")
    arguments = Arguments(
        causal, window, scale, softcap, dropout_p, keying, shard, seed, rng_state, None,
        slopes, cu_q, cu_kv, max_q, max_kv, q_lens, kv_lens, sequence_ids,
    )  # fmt: skip
    q, k, v, lists, rules = prepare(q, k, v, arguments)
    _inputs.check(q, k, v, lists, rules.dropout_p)
    plan_of(q, k, v, lists, rules)  # which refuses what is wrong of empty tensors, too
    _inputs.check_saved(dout, dlse, q, v, o, lse)
    sums = _sums(carry, dk_sums, dv_sums, k, v)
    if _inputs.empty(q, k, lists):
        return _empty(q, k, v, rules.scale, wanted, carry, sums)
    rows = _parts.Saved(q, o, lse, dout, dlse)
    want = _parts.Wanted("dq" in wanted, "dk" in wanted)
    carried = None if sums is None else _parts.Sums(*sums, CARRIES[carry])
    return _parts.backward(rows, k, v, lists, rules, want, carried)


def _sums(carry: Carry, dk: Tensor | None, dv: Tensor | None, k: Tensor, v: Tensor) -> Sums:
    for name, x, like in (("dk_sums", dk, k), ("dv_sums", dv, v)):
        if (x is not None) != bool(carry):
            given = "None" if x is None else "given"
            expected = "None" if x is not None else "a tensor"
            raise Error("argument", f"{name} {given}: expected {expected} with carry {carry!r}")
        if x is None:
            continue
        if x.shape != like.shape:
            raise Error("shape", f"{name}.shape {tuple(x.shape)}: expected {tuple(like.shape)}")
        if x.dtype != torch.float32:
            raise Error("argument", f"{name}.dtype {x.dtype}: expected torch.float32")
        if x.device != like.device:
            raise Error("argument", f"{name}.device {x.device}: expected {like.device}")
        if not x.is_contiguous():
            raise Error("align", f"{name}.stride {x.stride()}: expected a contiguous tensor")
    return None if dk is None or dv is None else (dk.detach(), dv.detach())


def _empty(
    q: Tensor, k: Tensor, v: Tensor, scale: float, wanted: set[str], carry: Carry, sums: Sums
) -> Some:
    """Without a row, a key or a sequence: gradients 0, and sums as they are, from 0 without "in"."""
    named = {"dq": q, "dk": k, "dv": v}
    dq, dk, dv = (x.new_zeros(x.shape) if name in wanted else None for name, x in named.items())
    if sums is not None and carry == "out":
        sums[0].zero_()
        sums[1].zero_()
    if sums is not None and carry == "in" and dk is not None and dv is not None:
        dk.copy_(sums[0] * scale)
        dv.copy_(sums[1])
    return dq, dk, dv
