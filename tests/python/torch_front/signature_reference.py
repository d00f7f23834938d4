"""What a drawn call must give: float64 values, and for each element how far a result may be off.

The bound is first order in the roundings that a pass makes, with a factor of 2 for the higher
orders. Let u be the unit roundoff of the tensors' type, w = 2^-24 that of float32, in which sums
are made, and D the head size:

    scores      E = w (D + 8) scale |q|.|k| + 8 w (|s| + largest |s| of the row) + 16 w softcap
    exp         relative error of p: E + largest E of the row + c,   c = w (columns + 16)
    o           sum p |v| (error of p + u) + u |o|         (p is rounded to the type before p v)
    lse         largest E of the row + c + 2 w |lse|
    dp          w D |dout|.|v|;   delta = dout.o: |dout|.(error of o) + w D |dout|.|o|
    ds          p (error of p)|dp - delta| + p (errors of dp and delta) + u |ds|
    dq, dk, dv  |the other factor| summed with the error of ds or p, + u |result|

float16 has subnormals of 2^-24: each rounding to it adds 2^-25.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import math64
import torch
from torch import Tensor

W = 2.0**-24
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
LEAST = {torch.float32: 2.0**-126, torch.bfloat16: 2.0**-126, torch.float16: 2.0**-25}
NAMES = ("o", "lse", "dq", "dk", "dv")


class Part(NamedTuple):
    """One sequence: where its rows and columns lie, and what is its own."""

    rows: Any  # index of q; of k and v
    columns: Any
    lse: Any  # index of lse
    slopes: Tensor | None = None  # (heads,)
    keep: Tensor | None = None  # (head, row, column)
    bias: Tensor | None = None  # added to the scores: (head or 1, row, column)


class Results(NamedTuple):
    """Of a call, or what it must give, or how far it may be off."""

    o: Tensor
    lse: Tensor
    dq: Tensor | None
    dk: Tensor | None
    dv: Tensor | None


def expected(
    q: Tensor, k: Tensor, v: Tensor, dout: Tensor, lse_shape: Any, parts: list[Part], *,
    dtype: torch.dtype, kept_scale: float = 1.0, turned: bool = False, **rules: Any,
) -> tuple[Results, Results]:  # fmt: skip
    """(values, bounds). `parts` hold each row once; in other rows o is 0 and lse -inf.

    `turned`: q and k were turned by rotary embeddings and rounded once more.
    """
    wide = [x.detach().double().cpu().requires_grad_() for x in (q, k, v)]
    dout = dout.detach().double().cpu()
    o = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    lse = torch.full(lse_shape, -torch.inf, dtype=torch.float64)
    bounds = Results(*(torch.zeros_like(x) for x in (o, lse, *wide)))
    for part in parts:
        one = [_one(x, at) for x, at in zip(wide, (part.rows, part.columns, part.columns))]
        if 0 in (one[0].shape[1], one[1].shape[1]):
            continue
        more = dict(rules, bias=part.bias, kept_scale=kept_scale)
        more["slopes"], more["keep"] = part.slopes, part.keep
        part_o, part_lse = math64.attention(*one, **more)
        made = _bounds(*(x.detach() for x in one), _one(dout, part.rows), part_o.detach(),
                       part_lse.detach(), dtype, turned, **more)  # fmt: skip
        o[part.rows] = part_o.view(o[part.rows].shape)
        lse[part.lse] = part_lse.detach().view(lse[part.lse].shape)
        for whole, at, own in zip(
            bounds, (part.rows, part.lse, part.rows, part.columns, part.columns), made
        ):
            whole[at] = own.view(whole[at].shape)
    grads = torch.autograd.grad(o, wide, dout) if o.requires_grad else [x * 0 for x in wide]
    return Results(o.detach(), lse, *grads), bounds


def _one(x: Tensor, at: Any) -> Tensor:
    """(1, row, head, dim)."""
    x = x[at]
    return x if x.dim() == 4 else x[None]


def _bounds(q, k, v, dout, o, lse, dtype, turned, *, scale=None, softcap=0.0, slopes=None,
            keep=None, kept_scale=1.0, bias=None, causal=False, window=(-1, -1)):  # fmt: skip
    """Of o, lse, dq, dk and dv of one sequence, each as that is."""
    u, least = UNIT[dtype], LEAST[dtype]
    heads, dim = q.shape[2], q.shape[3]
    groups = heads // k.shape[2]
    q, k, v, dout, o = (x[0].transpose(0, 1) for x in (q, k, v, dout, o))  # (head, row, dim)
    k, v, lse = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0), lse[0]
    scale = dim**-0.5 if scale is None else scale
    seen, distance = math64.seen_by(q.shape[1], k.shape[1], causal, window)
    s = scale * q @ k.mT
    size = abs(scale) * q.abs() @ k.abs().mT
    slope = torch.ones_like(s)
    if softcap:
        tanh = torch.tanh(s / softcap)
        s, slope = softcap * tanh, 1 - tanh**2
    if slopes is not None:
        size = size + (slopes.double()[:, None, None] * distance.abs()).abs()
        s = s - slopes.double()[:, None, None] * distance.abs()
    if bias is not None:
        s, size = s + bias.clamp(min=-1e30), size + bias.clamp(min=-1e30).abs()
        seen = seen & (bias > -torch.inf)
    alive = torch.where(seen, s.abs(), 0.0)
    error = W * (dim + 8) * size + 8 * W * (s.abs() + alive.amax(-1, keepdim=True))
    error = error + 16 * W * softcap + (4 * u * size if turned else 0.0)
    error = torch.where(seen, error, 0.0)
    row = error.amax(-1, keepdim=True)
    c = W * (k.shape[1] + 16)
    p = torch.where(seen, torch.exp(s - lse.nan_to_num(neginf=0.0)[..., None]), 0.0)
    off_p = p * (error + row + 2 * c) + torch.where(seen, least, 0.0)
    kept = torch.ones_like(p) if keep is None else keep.double() * kept_scale
    rounded = kept * (off_p + u * p)
    off_o = rounded @ v.abs() + u * o.abs() + least
    off_lse = row[..., 0] + 2 * c + 2 * W * lse.abs().nan_to_num(posinf=0.0)
    dp = dout @ v.mT
    off_dp = W * dim * dout.abs() @ v.abs().mT
    delta = (dout * o).sum(-1, keepdim=True)
    off_delta = (dout.abs() * (off_o + W * dim * o.abs())).sum(-1, keepdim=True)
    ds = p * (kept * dp - delta)
    off_ds = off_p * (kept * dp - delta).abs() + p * (kept * off_dp + off_delta)
    off_ds = slope * (off_ds + u * ds.abs()) + 4 * (error + 16 * W) * ds.abs() * bool(softcap)
    off_ds = off_ds + W * (8 + k.shape[1] + groups * q.shape[1]) * (slope * ds).abs()
    off_ds = off_ds + torch.where(seen, least, 0.0)
    ds = slope * ds
    off_dq = abs(scale) * off_ds @ k.abs() + u * (scale * ds @ k).abs() + least
    fold = lambda x: x.unflatten(0, (-1, groups)).sum(1)  # noqa: E731  over heads that share keys
    off_dk = fold(abs(scale) * off_ds.mT @ q.abs()) + u * fold(scale * ds.mT @ q).abs() + least
    more = rounded + W * groups * q.shape[1] * p * kept
    off_dv = fold(more.mT @ dout.abs()) + u * fold((p * kept).mT @ dout).abs() + least
    return [2 * (x if x is off_lse else x.transpose(0, 1))[None]
            for x in (off_o, off_lse, off_dq, off_dk, off_dv)]  # fmt: skip


def compare(got: Results, wanted: Results, bounds: Results) -> tuple[str, float]:
    """What is wrong, or ""; the largest error as a part of its bound."""
    worst = 0.0
    for name, x, y, bound in zip(NAMES, got, wanted, bounds):
        if x is None or y is None:
            continue
        if x.shape != y.shape:
            return f"{name}.shape {tuple(x.shape)}, expected {tuple(y.shape)}", worst
        x = x.detach().double().cpu()
        if not torch.equal(torch.isfinite(x), torch.isfinite(y)):
            return f"{name} is not finite where it should be, or the other way", worst
        exact = ~torch.isfinite(y)
        if not torch.equal(x[exact], y[exact]):
            return f"{name} has an infinity of the wrong sign", worst
        if not (~exact).any():
            continue
        error = (x - y).abs()[~exact]
        bound = bound[~exact]
        if (error[bound == 0] > 0).any():
            return f"{name} is not 0 where nothing is seen", worst
        part = (error / bound.clamp(min=1e-300)).max().item()
        if part > 1:
            return f"{name} is off by {error.max():.2e}, {part:.2f} of its bound", part
        worst = max(worst, part)
    return "", worst
