"""What FlashAttention's functions below autograd share: passes without a gradient of their own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._library import Error
from ..torch import _parts
from ..torch._attention import run_inputs
from ..torch._call import Arguments, prepare, rng_of, without_gaps
from ..torch._kept import signed_probabilities


def forward(
    q: Tensor, k: Tensor, v: Tensor, arguments: Arguments, return_softmax: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, lse, S_dmask, rng_state). S_dmask is empty unless wanted and there is dropout;
    rng_state is what the backward pass needs with dropout, and zeros without."""
    with torch.no_grad():
        dropped = arguments.dropout_p > 0
        rng = rng_of(q) if dropped else torch.zeros(2, dtype=torch.int64, device=q.device)
        out, lse, inputs = run_inputs(q, k, v, arguments._replace(rng_state=rng))
        mask = signed_probabilities(*inputs) if return_softmax else q.new_empty(0)
        return out, lse, mask, rng


def paged(arguments: Arguments, table: Tensor, used: Tensor | None) -> Arguments:
    """Packed queries over keys in pages: lengths of keys are `used`, or those between the ends."""
    if used is None:
        if arguments.cu_kv is None:
            raise Error("argument", "seqused_k None, cu_seqlens_k None: expected one of them")
        used = arguments.cu_kv.diff()
    return arguments._replace(cu_kv=None, kv_lens=used, page_table=table)


def backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grads: tuple[Tensor | None, Tensor | None, Tensor | None],
    arguments: Arguments,
) -> Tensor:
    """Write dq, dk and dv into `grads`; returns the sums of dout * out over the head, as lse is."""
    if arguments.dropout_p > 0 and arguments.rng_state is None:
        raise Error("argument", "rng_state None: expected the one that the forward pass gave")
    for name, given, like in zip(("dq", "dk", "dv"), grads, (q, k, v)):
        if given is not None and given.shape != like.shape:
            shape = tuple(given.shape)
            raise Error("shape", f"{name}.shape {shape}: expected {tuple(like.shape)}")
        check_floats(**{name: given})
    sums = (dout.detach().float() * out.detach().float()).sum(-1).transpose(-1, -2).contiguous()
    gaps = arguments.cu_q is not None and (arguments.q_lens is not None or arguments.kv_lens is not None)
    q, k, v = leaves = [x.detach().requires_grad_(gaps) for x in (q, k, v)]
    back = None
    if gaps:  # each row goes to one place, and its gradient back
        with torch.enable_grad():
            q, k, v, arguments, back = without_gaps(q, k, v, arguments)
    moved = q, k, v
    with torch.no_grad():
        if back is not None:
            rows = back.argsort()
            out, dout, lse = out.index_select(0, rows), dout.index_select(0, rows), lse.index_select(-1, rows)
        q, k, v, lists, rules = prepare(q, k, v, arguments)
        lse = torch.where(lse == math.inf, -math.inf, lse)  # FlashAttention-2's empty rows
        made: Any = _parts.backward(_parts.Saved(q, out, lse, dout, None), k, v, lists, rules)
    if gaps:
        made = torch.autograd.grad(moved, leaves, [x.to(y.dtype) for x, y in zip(made, moved)])
    with torch.no_grad():
        for given, grad in zip(grads, made):
            if given is not None:
                given.copy_(grad)
    return sums


def infinite(lse: Tensor) -> Tensor:
    """lse with FlashAttention-2's +inf for rows without a visible key."""
    return torch.where(lse == -math.inf, math.inf, lse)


def refuse(**given: Any) -> None:
    """Raise Error if an argument that ordo does not have is given."""
    for name, value in given.items():
        if value is not None:
            raise Error("unsupported", f"{name} given: not supported")


def check_tensors(**given: Any) -> None:
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise Error("argument", f"{name} {x!r}: expected a tensor")


def check_integers(**given: Any) -> None:
    """Raise Error if one that is given is no tensor of integers: a cast would change numbers."""
    for name, x in given.items():
        if x is None:
            continue
        if not isinstance(x, Tensor):
            raise Error("argument", f"{name} {x!r}: expected a tensor of integers")
        if x.dtype is torch.bool or x.is_floating_point() or x.is_complex():
            raise Error("argument", f"{name}.dtype {x.dtype}: expected torch.int32 or torch.int64")


def check_floats(**given: Tensor | None) -> None:
    """Raise Error if a result that is given cannot hold fractions."""
    for name, x in given.items():
        if x is not None and not x.is_floating_point():
            raise Error("argument", f"{name}.dtype {x.dtype}: expected a floating-point type")


def check_packed(cu_seqlens_q: Any, cu_seqlens_k: Any = None, **used: Any) -> None:
    """Raise Error if ends of sequences are missing, or lists are no tensors of integers."""
    if cu_seqlens_q is None:
        raise Error("argument", "cu_seqlens_q None: expected the ends of the sequences, a tensor")
    check_integers(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, **used)
