"""Attention over ranks inside programs: DTensors, DDP, FSDP2 and activation checkpointing.

PYTHONPATH=python python3 tests/python/torch_ranks/programs.py
"""

from __future__ import annotations

import sys
from typing import Any

import ordo
import ordo.torch
import torch
import torch.distributed as dist
from kit import Reporter, launch
from ordo.torch.distributed import context_parallel_attention, shard_sequence
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

RANKS = 2


# ---- DTensors ----


def dtensors(rank: int, report: Reporter) -> None:
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, 70, heads, 16) for heads in (4, 2, 2))
    slopes = torch.tensor([0.1, 0.2, 0.3, 0.4])
    for words in ({"causal": True}, {"slopes": slopes, "window": (20, 5)},
                  {"q_lens": torch.tensor([70, 33], dtype=torch.int32)}):  # fmt: skip
        plain = [x.clone().requires_grad_() for x in (q, k, v)]
        o, lse = ordo.torch.attention(*plain, **words)
        expected = [o, lse, *torch.autograd.grad(o.sum() + lse[lse > -1e9].sum(), plain)]
        for placement in (Shard(0), Shard(2), Replicate(), Shard(1)):
            shards = [distribute_tensor(x, mesh, [placement]).requires_grad_() for x in (q, k, v)]
            o, lse = ordo.torch.attention(*shards, **words)
            if placement in (Shard(0), Shard(2)) and o.placements != (placement,):
                report(f"{placement}: o is {o.placements}")
            whole = lse.full_tensor()
            loss = o.full_tensor().sum() + whole[whole > -1e9].sum()
            found = [o, lse, *torch.autograd.grad(loss, shards)]
            for name, x, y in zip(("o", "lse", "dq", "dk", "dv"), expected, found):
                assert isinstance(y, DTensor)
                if not torch.equal(x, y.full_tensor()):
                    report(f"rank {rank}, {placement}, {list(words)}: {name} differs")
    try:
        ordo.torch.attention(*shards, dropout_p=0.5, seed=1)
        report("dropout of a DTensor was not refused")
    except ordo.Error as error:
        if "to_local" not in str(error):
            report(f"dropout of a DTensor: {error}")


def few_heads(rank: int, report: Reporter) -> None:
    """One key head cannot be divided: gathered, with the same bits."""
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(4)
    q, k, v = (torch.randn(1, 40, heads, 8) for heads in (2, 1, 1))
    expected = ordo.torch.attention(q, k, v)[0]
    shards = [distribute_tensor(x, mesh, [Shard(2)]) for x in (q, k, v)]
    if not torch.equal(ordo.torch.attention(*shards)[0].full_tensor(), expected):
        report(f"rank {rank}: one key head on {RANKS} ranks differs")


# ---- programs ----


class Layer(torch.nn.Module):
    """Attention over the ranks of the world, or alone, between products of single elements: their
    bits do not depend on the number of rows, as those of matrix products do."""

    def __init__(self, over_ranks: bool) -> None:
        super().__init__()
        self.inward = torch.nn.Parameter(torch.randn(3, 16))
        self.outward = torch.nn.Parameter(torch.randn(16))
        self.over_ranks = over_ranks
        self.seen: list[torch.Tensor] = []
        self.grads: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = ((x * w).unflatten(-1, (2, 8)) for w in self.inward)
        for at, y in enumerate((q, k, v)):
            y.register_hook(lambda grad, at=at: self.grads.__setitem__(at, grad))
        words: Any = {"causal": True, "dropout_p": 0.25, "seed": 9}
        if self.over_ranks:
            o, _ = context_parallel_attention(q, k, v, method="gather", layout="zigzag", **words)
        else:
            o, _ = ordo.torch.attention(q, k, v, **words)
        self.seen.append(o.detach())
        return o.flatten(2) * self.outward


class Model(torch.nn.Module):
    def __init__(self, over_ranks: bool, recompute: bool) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(over_ranks) for _ in range(2))
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + (checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x))
        return x


def step(model: Any, x: torch.Tensor) -> None:
    model(x.clone().requires_grad_()).square().sum().backward()


def programs(rank: int, report: Reporter) -> None:
    torch.manual_seed(5)
    whole = torch.randn(1, 90, 16)
    torch.manual_seed(6)
    alone = Model(False, False)
    step(alone, whole)
    here = shard_sequence(whole, 1, layout="zigzag")
    for name in ("plain", "checkpoint", "ddp", "fsdp2", "fsdp2 checkpoint"):
        torch.manual_seed(6)
        model: Any = Model(True, "checkpoint" in name)
        inner = model
        if name == "ddp":
            model = DistributedDataParallel(model)
        if "fsdp2" in name:
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)
        step(model, here)
        for mine, other in zip(inner.layers, alone.layers):
            part = shard_sequence(other.seen[0], 1, layout="zigzag")
            for o in mine.seen:
                if not torch.equal(o, part):
                    report(f"rank {rank}, {name}: attention differs from one process")
            if len(mine.seen) != 1 + ("checkpoint" in name):
                report(f"rank {rank}, {name}: {len(mine.seen)} forward passes")
        for at, name_of in enumerate(("dq", "dk", "dv")):  # the last layer's, the first in time
            near = shard_sequence(alone.layers[-1].grads[at], 1, layout="zigzag")
            if not torch.equal(inner.layers[-1].grads[at], near):
                report(f"rank {rank}, {name}: {name_of} differs from one process")


def work(rank: int, report: Reporter) -> None:
    for part in (dtensors, few_heads, programs):
        part(rank, report)
        dist.barrier()


if __name__ == "__main__":
    sys.exit(launch(work, RANKS))
