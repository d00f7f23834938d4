"""Errors of context_parallel_attention on several ranks: the same on each, and soon.

PYTHONPATH=python python3 tests/python/torch_ranks/agreement.py disagree|dead|slow
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

import ordo
import torch
import torch.distributed as dist
from kit import Reporter, launch
from ordo.torch.distributed import context_parallel_attention

RANKS = 3
TIMEOUT = {"disagree": 600.0, "dead": 600.0, "slow": 10.0}  # seconds, of the group


def tensors(rows: int = 8, heads: int = 2, dtype: Any = torch.float32, dim: int = 8) -> list[Any]:
    return [torch.ones(1, rows, heads, dim, dtype=dtype, requires_grad=True) for _ in range(3)]


# What rank 1 does differently: its tensors, its keywords, those of the others, the error of all.
CASES: list[tuple[list[Any], dict[str, Any], dict[str, Any], str]] = [
    (tensors(dtype=torch.bfloat16), {}, {}, "dtype: rank 0 has torch.float32, rank 1 has torch.bfloat"),
    (tensors(heads=4), {}, {}, "heads: rank 0 has 2, rank 1 has 4"),
    (tensors(dim=16), {}, {}, "head_dim: rank 0 has 8, rank 1 has 16"),
    (tensors(), {"causal": True}, {}, "mask: rank 0 has full, rank 1 has causal"),
    (tensors(), {"scale": 0.5}, {"scale": 0.25}, "scale: rank 0 has 0.25, rank 1 has 0.5"),
    (tensors(), {"method": "gather"}, {}, "method: rank 0 has auto, rank 1 has gather"),
    (tensors(), {"layout": "zigzag"}, {}, "layout: rank 0 has contiguous, rank 1 has zigzag"),
    (tensors(), {"seed": 3, "dropout_p": 0.5}, {"seed": 4, "dropout_p": 0.5},
     "seed: rank 0 has .4, 0., rank 1 has .3, 0."),
    (tensors(), {"seed": 3, "dropout_p": 0.5}, {"dropout_p": 0.5},
     "seed: rank 0 has drawn, rank 1 has .3"),
    (tensors(), {"dropout_p": 0.5, "seed": 1}, {}, "dropout_p: rank 0 has 0.0, rank 1 has 0.5"),
    (tensors(), {"window": (4, 4)}, {}, "left: rank 0 has -1, rank 1 has 4"),
    (tensors(), {"slopes": torch.ones(2)}, {"slopes": torch.zeros(2)},
     "slopes: rank 0 has .0.0, 0.0., rank 1 has .1.0"),
    ([x.detach() for x in tensors()], {}, {}, "q.requires_grad: rank 0 has True, rank 1 has False"),
    (tensors(), {"softcap": -1.0}, {}, "softcap -1"),  # refused by rank 1 alone
    (tensors(), {"method": "ring"}, {}, "method 'ring': expected auto"),
    (tensors(heads=4), {"shard": ordo.Shard(row0=5)}, {}, "shard.row0 5: expected 0"),
    # refused by all alike, after they have agreed
    (tensors(), {"method": "heads"}, {"method": "heads"}, "expected a multiple of 3"),
    (tensors(), {"q_lens": torch.tensor([99])}, {"q_lens": torch.tensor([99])}, "q_lens.*99"),
]  # fmt: skip


def disagree(rank: int, report: Reporter) -> None:
    for theirs, words, others, expected in CASES:
        try:
            if rank == 1:
                context_parallel_attention(*theirs, **words)
            else:
                context_parallel_attention(*tensors(), **others)
            report(f"rank {rank}: no error, expected {expected}")
        except ordo.Error as error:
            if not re.search(expected, str(error)):
                report(f"rank {rank}: {error}; expected {expected}")
    context_parallel_attention(*tensors())  # the group still works
    dist.barrier()


def expect_named(rank: int, report: Reporter, call: Any) -> None:
    try:
        call()
        report(f"rank {rank}: no error")
    except ordo.Error as error:
        if "ordo.torch.distributed.context_parallel_attention" not in str(error):
            report(f"rank {rank}: the operation is not named: {error}")
        if error.status != "device":
            report(f"rank {rank}: status {error.status}")


def dead(rank: int, report: Reporter) -> None:
    """A rank ends between the forward and the backward pass."""
    qkv = tensors()
    o, _ = context_parallel_attention(*qkv, method="gather", causal=True)
    if rank == 1:
        os._exit(0)
    expect_named(rank, report, lambda: torch.autograd.grad(o.sum(), qkv))


def slow(rank: int, report: Reporter) -> None:
    """A rank does not come at all: the group's time-out ends the others."""
    if rank == 1:
        time.sleep(1.5 * TIMEOUT["slow"])
        os._exit(0)
    expect_named(rank, report, lambda: context_parallel_attention(*tensors()))


if __name__ == "__main__":
    work = {"disagree": disagree, "dead": dead, "slow": slow}[sys.argv[1]]
    sys.exit(launch(work, RANKS, seconds=TIMEOUT[sys.argv[1]]))
