"""Attention as PyTorch's math says it, in float64 on upcast inputs, with gradients."""

from __future__ import annotations

import torch


def seen_by(rows, columns, causal=False, window=(-1, -1)):
    """Which columns each row sees, and how far they are."""
    delta = 0 if causal == "top-left" else columns - rows
    distance = torch.arange(columns)[None, :] - torch.arange(rows)[:, None] - delta
    seen = torch.ones(rows, columns, dtype=torch.bool)
    if causal:
        seen &= distance <= 0
    if window[0] >= 0:
        seen &= distance >= -window[0]
    if window[1] >= 0:
        seen &= distance <= window[1]
    return seen, distance


def attention(q, k, v, *, causal=False, window=(-1, -1), scale=None, softcap=0.0, slopes=None,
              bias=None, keep=None, kept_scale=1.0):  # fmt: skip
    """(o, lse) of (batch, row, head, dim) tensors; `keep` is (batch, head, row, column), `bias`,
    which is added to the scores, alike; -inf hides an element, but never a whole row."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    seen, distance = seen_by(q.shape[2], k.shape[2], causal, window)
    logit = scale * q @ k.transpose(2, 3)
    if softcap:
        logit = softcap * torch.tanh(logit / softcap)
    if slopes is not None:
        slopes = slopes.double() if slopes.dim() == 2 else slopes.double()[None]
        logit = logit - slopes[:, :, None, None] * distance.abs()
    if bias is not None:
        logit = logit + bias
    logit = logit.masked_fill(~seen, -torch.inf)
    alive = seen.any(-1)
    lse = torch.logsumexp(logit[:, :, alive], -1)
    p = torch.zeros_like(logit)
    p[:, :, alive] = torch.exp(logit[:, :, alive] - lse[..., None])
    if keep is not None:
        p = p * keep * kept_scale
    full = torch.full(logit.shape[:3], -torch.inf, dtype=torch.float64)
    full[:, :, alive] = lse
    return (p @ v).transpose(1, 2), full


def close(got, expected, dtype):
    """Within a few roundings of the type, of the largest element."""
    tolerance = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    finite = torch.isfinite(expected)
    assert got.shape == expected.shape
    assert torch.equal(torch.isfinite(got), finite)
    if finite.any():
        size = expected[finite].abs().max().clamp_min(1e-30)
        worst = (got.double() - expected)[finite].abs().max() / size
        assert worst <= tolerance, f"{worst:.2e} of the largest, expected {tolerance:.0e}"


def same(one, other):
    """Equal bits, zeros' signs and NaN included."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds[one.element_size()]
    return one.dtype == other.dtype and torch.equal(
        one.detach().contiguous().view(kind), other.detach().contiguous().view(kind)
    )
