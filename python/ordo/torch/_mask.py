"""Which elements dropout keeps, and the probabilities, as tensors: for tests and the curious."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import dropout
from ._plans import Lists, Rules, ready, sequences


def keep_mask(q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules) -> Tensor:
    """(batch, head, row, column), True = kept; shorter sequences end in False.

    Made on the host, whatever the device: the mask is the same function everywhere.
    """
    prepared = ready(q, k, v, lists, rules)
    problem = prepared.plan.problem
    seed, offset = (int(x) % 2**64 for x in lists.rng.tolist())  # type: ignore[union-attr]
    cu_q, cu_kv, ids = (
        None if x is None else x.cpu().numpy()
        for x in (lists.cu_q, lists.cu_kv, lists.sequence_ids)
    )
    made = torch.zeros(
        problem.batch, problem.heads, problem.q_len, problem.kv_len, dtype=torch.bool
    )
    for b in range(problem.batch):
        for h in range(problem.heads):
            part = dropout.export(
                problem, sequence=b, head=h, seed=seed, offset=offset, cu_q=cu_q, cu_kv=cu_kv,
                sequence_ids=ids,
            )  # fmt: skip
            made[b, h, : part.shape[0], : part.shape[1]] = torch.from_numpy(part)
    return made.to(q.device)


def signed_probabilities(
    lse: Tensor, q: Tensor, k: Tensor, v: Tensor, lists: Lists, rules: Rules
) -> Tensor:
    """FlashAttention's S_dmask: probabilities before dropout, the sign set where dropped.

    (batch, head, row, column), rows and columns filled up to multiples of 128. Computed beside
    the pass, in float32, and rounded to the type of q.
    """
    keep = keep_mask(q, k, v, lists, rules)
    batch, heads, rows, columns = keep.shape
    made = q.new_zeros(batch, heads, -(-rows // 128) * 128, -(-columns // 128) * 128)
    for b in range(sequences(q, lists)):
        one_q, one_k, one_lse = _sequence(q, k, lse, lists, b)
        p = _probabilities(one_q, one_k, one_lse, b, lists, rules)
        p = torch.where(keep[b, :, : p.shape[1], : p.shape[2]], p, -p)
        made[b, :, : p.shape[1], : p.shape[2]] = p.to(q.dtype)
    return made


def _sequence(q: Tensor, k: Tensor, lse: Tensor, lists: Lists, b: int) -> tuple[Any, Any, Any]:
    """(head, row, dim) of queries and keys, (head, row) of lse: one sequence, in float32."""
    if lists.cu_q is None or lists.cu_kv is None:
        one_q, one_k, one_lse = q[b], k[b], lse[b]
    else:
        rows = slice(*lists.cu_q[b : b + 2].tolist())
        one_q, one_k, one_lse = q[rows], k[slice(*lists.cu_kv[b : b + 2].tolist())], lse[:, rows]
    one_k = one_k.repeat_interleave(q.shape[-2] // k.shape[-2], dim=1)
    return one_q.transpose(0, 1).float(), one_k.transpose(0, 1).float(), one_lse


def _probabilities(q: Tensor, k: Tensor, lse: Tensor, b: int, lists: Lists, rules: Rules) -> Tensor:
    rows, columns = q.shape[1], k.shape[1]
    delta = 0 if rules.mask == "causal-top-left" else columns - rows
    row = torch.arange(rows, device=q.device)[:, None]
    distance = torch.arange(columns, device=q.device)[None, :] - row - delta
    seen = torch.ones_like(distance, dtype=torch.bool)
    if rules.mask != "full":
        seen &= distance <= 0
    if rules.left >= 0:
        seen &= distance >= -rules.left
    if rules.right >= 0:
        seen &= distance <= rules.right
    logit = rules.scale * q @ k.transpose(1, 2)
    if rules.softcap > 0:
        logit = rules.softcap * torch.tanh(logit / rules.softcap)
    if lists.slopes is not None:
        slopes = lists.slopes if lists.slopes.dim() == 1 else lists.slopes[b]
        logit = logit - slopes[:, None, None] * distance.abs()
    return torch.where(seen, torch.exp(logit - lse[..., None]), 0.0)
