"""Results over disjoint sets of keys, merged."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from .. import _attention
from .._library import Error
from .._plan import Plan
from .._problem import Problem
from ._passes import check_floats


def combine(
    out_partial: Tensor,
    lse_partial: Tensor,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """(out, lse) of float32 parts: (part, batch, row, head, dim) and (part, batch, row, head).

    On the CPU by ordo.combine. The library merges no float32 parts on CUDA, so there it is a loop
    of tensor operations: the same order of sums, other last bits.
    """
    _check(out_partial, lse_partial, out, out_dtype)
    with torch.no_grad():
        merge = _by_library if out_partial.is_cpu and out_partial.numel() else _by_tensors
        made, lse = merge(out_partial, lse_partial)
        if out is None:
            return made.to(out_dtype or torch.float32), lse
        return out.copy_(made), lse


def _check(
    out_partial: Tensor, lse_partial: Tensor, out: Tensor | None, out_dtype: torch.dtype | None
) -> None:
    shape = tuple(out_partial.shape)
    if out_partial.dim() != 5 or shape[0] == 0:
        raise Error(
            "shape", f"out_partial.shape {shape}: expected (part, batch, row, head, dim), a part"
        )
    if lse_partial.shape != shape[:-1]:
        given = tuple(lse_partial.shape)
        raise Error("shape", f"lse_partial.shape {given}: expected {shape[:-1]}")
    for name, x in (("out_partial", out_partial), ("lse_partial", lse_partial)):
        if x.dtype != torch.float32:
            raise Error("argument", f"{name}.dtype {x.dtype}: expected torch.float32")
        if x.device != out_partial.device:
            raise Error("argument", f"{name}.device {x.device}: expected {out_partial.device}")
    if out_dtype is not None and not out_dtype.is_floating_point:
        raise Error("argument", f"out_dtype {out_dtype}: expected a floating-point type")
    if out is None:
        return
    check_floats(out=out)
    if out.shape != shape[1:]:
        raise Error("shape", f"out.shape {tuple(out.shape)}: expected {shape[1:]}")
    if out_dtype is not None and out.dtype != out_dtype:
        raise Error("argument", f"out.dtype {out.dtype}: expected out_dtype, {out_dtype}")


@functools.lru_cache(maxsize=16)
def _plan(batch: int, rows: int, heads: int, dim: int) -> Plan:
    problem = Problem(batch=batch, q_len=rows, heads=heads, head_dim=1, v_head_dim=dim)
    return Plan(problem, backend="cpu")


def _by_library(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    parts = [(x.contiguous().numpy(), y.transpose(1, 2).contiguous().numpy())
             for x, y in zip(o.detach(), lse.detach())]  # fmt: skip
    made = _attention.combine(_plan(*o.shape[1:]), parts, threads=torch.get_num_threads())
    return torch.from_numpy(made[0]), torch.from_numpy(made[1]).transpose(1, 2)


def _by_tensors(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    top = lse.amax(0)
    base = torch.where(top == -torch.inf, 0.0, top)
    made, total = torch.zeros_like(o[0]), torch.zeros_like(top)
    for part, one in zip(o, lse):
        weight = torch.exp(one - base)
        total = total + weight
        made = made + torch.where(weight[..., None] == 0, 0.0, weight[..., None] * part)
    scale = torch.where(top == -torch.inf, 0.0, 1 / total)
    return made * scale[..., None], top + torch.log(total)
