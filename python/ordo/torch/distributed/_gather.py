"""Method gather: keys come to the queries, and for dk and dv queries come to the keys.

Each gradient is computed where it is kept, by seven products instead of five, and no sum crosses
ranks. Any number of ranks, heads and rows will do. A rank holds all keys and values during a pass,
and in the backward pass all q, o and dout too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._parts import Saved
from ._job import (
    ROW_AXES,
    WHAT,
    Heads,
    Job,
    backward_columns,
    backward_rows,
    forward,
    new_key_gradients,
    new_results,
)
from ._shards import gather_rows


def _all_keys(job: Job, k: Tensor, v: Tensor) -> list[Tensor]:
    return gather_rows(job.ranks, f"{WHAT} (keys and values)", job.columns, [k, v], [1, 1])


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, job: Job) -> Any:
        o, lse = new_results(q, v)
        keys, values = _all_keys(job, k, v)
        forward(job, Heads(0, job.kv_heads), q, keys, values, o, lse)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.job = job
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        q, k, v, o, lse = ctx.saved_tensors
        job: Job = ctx.job
        heads = Heads(0, job.kv_heads)
        dq, (dk, dv) = torch.zeros_like(q), new_key_gradients(job, k, v)
        here = Saved(q, o, lse, dout, dlse)
        keys, values = _all_keys(job, k, v)
        backward_rows(job, heads, here, keys, values, dq)
        what = f"{WHAT} (queries and gradients)"
        rows = Saved(*gather_rows(job.ranks, what, job.rows, here, ROW_AXES))
        backward_columns(job, heads, rows, keys, values, dk, dv)
        return dq, dk, dv, None
