"""Attention in NumPy float64, as include/ordo/problem.h defines it, one sequence at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Result:
    o: np.ndarray
    lse: np.ndarray
    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray
    dbias: np.ndarray | None = None


def visible(rows, columns, mask, window):
    """Which columns each row sees, and c - r - delta."""
    delta = 0 if mask == "causal-top-left" else columns - rows
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None] - delta
    seen = np.ones((rows, columns), bool)
    if mask != "full":
        seen &= distance <= 0
    if window is not None:
        left, right = window
        seen &= (left < 0) | (distance >= -left)
        seen &= (right < 0) | (distance <= right)
    return seen, distance


def sequence(
    problem, q, k, v, dout, *, slopes=None, keep=None, keep_scale=1.0, dlse=None, bias=None
):
    """(rows, heads, dim) arrays to o, lse (heads, rows) and gradients.

    `problem` has its defaults filled in (plan.problem); `keep` and `bias` are (heads, rows,
    columns).
    """
    q, k, v, dout = (np.asarray(x, np.float64) for x in (q, k, v, dout))
    rows, heads, _ = q.shape
    columns, kv_heads, _ = k.shape
    seen, distance = visible(rows, columns, problem.mask, problem.window)
    made = Result(
        np.zeros((rows, heads, v.shape[2])), np.full((heads, rows), -np.inf),
        np.zeros_like(q), np.zeros_like(k), np.zeros_like(v),
    )  # fmt: skip
    made.dbias = np.zeros((heads, rows, columns))
    for h in range(heads):
        g = h // (heads // kv_heads)
        raw = problem.scale * q[:, h] @ k[:, g].T
        cap = problem.softcap
        logit = cap * np.tanh(raw / cap) if cap > 0 else raw
        bend = 1 - (logit / cap) ** 2 if cap > 0 else 1.0
        if slopes is not None:
            logit = logit - np.float64(slopes[h]) * np.abs(distance)
        if bias is not None:
            logit = logit + np.float64(bias[h])
        logit = np.where(seen, logit, -np.inf)
        alive = (logit > -np.inf).any(axis=1)
        top = np.where(alive, logit.max(axis=1, initial=-np.inf), 0)[:, None]
        p = np.exp(logit - top)
        total = p.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            made.lse[h] = (top + np.log(total))[:, 0]
        p = p / np.where(total > 0, total, 1)
        kept = np.ones_like(p) if keep is None else keep[h] * keep_scale
        made.o[:, h] = (p * kept) @ v[:, g]
        dp = (dout[:, h] @ v[:, g].T) * kept
        delta = (p * dp).sum(axis=1, keepdims=True)
        extra = 0 if dlse is None else np.float64(dlse[h])[:, None]
        made.dbias[h] = p * (dp - delta + extra)
        ds = made.dbias[h] * bend * problem.scale
        made.dv[:, g] += (p * kept).T @ dout[:, h]
        made.dq[:, h] = ds @ k[:, g]
        made.dk[:, g] += ds.T @ q[:, h]
    return made


def tree(values):
    """Neighbours, then neighbouring sums; the last of an odd number goes up as it is."""
    while len(values) > 1:
        pairs = [values[x : x + 2] for x in range(0, len(values), 2)]
        values = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


def close(got, expected, tolerance):
    """Within `tolerance` of the largest element; infinities in the same places."""
    got = np.asarray(got, np.float64)
    finite = np.isfinite(expected)
    assert got.shape == expected.shape
    assert np.array_equal(np.isfinite(got), finite)
    assert np.array_equal(got[~finite], expected[~finite])
    if finite.any():
        scale = max(1e-30, np.abs(expected[finite]).max())
        assert np.abs(got[finite] - expected[finite]).max() <= tolerance * scale
