"""Peak memory of each rank and method: tensors that are alive during a call and its gradients.

PYTHONPATH=python python3 tests/python/torch_ranks/memory.py [--ranks N] [--rows N] [--heads N]

Counts the storages that PyTorch makes, without the caller's inputs, gradients of results, o, lse
and gradients. Exits with 1 if method relay takes more than it should: packets of a few key heads,
and the rows that change owner.
"""

from __future__ import annotations

import argparse
import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist
from kit import Reporter, launch
from ordo.torch.distributed import context_parallel_attention
from torch.utils._python_dispatch import TorchDispatchMode

DIM = 64


class Meter(TorchDispatchMode):
    """Bytes of the storages that operators return, while somebody holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def _ended(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for x in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(x, torch.Tensor):
                storage = x.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self.known:
                    self.known.add(key)
                    self.now += size
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._ended, key, size)
        return found


def measure(method: str, args: argparse.Namespace, rank: int) -> int:
    rows = args.rows // dist.get_world_size()
    shape = (1, rows, args.heads, DIM)
    torch.manual_seed(rank)
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dout = torch.randn(shape, dtype=torch.bfloat16)
    with Meter() as meter:
        o, lse = context_parallel_attention(q, k, v, method=method, causal=True)
        grads = torch.autograd.grad(o, (q, k, v), dout)
    kept = sum(x.untyped_storage().nbytes() for x in (o, lse, *grads))
    return meter.peak - kept


def work(rank: int, report: Reporter, args: argparse.Namespace) -> None:
    n = dist.get_world_size()
    keys = 2 * args.rows * args.heads * DIM * 2
    found = {}
    for method in ("heads", "gather", "relay"):
        mine = torch.tensor([measure(method, args, rank)])
        dist.all_reduce(mine, dist.ReduceOp.MAX)
        found[method] = int(mine)
    if rank == 0:
        print(f"{n} ranks, {args.rows} rows, {args.heads} heads, dim {DIM}, bf16, causal; "
              f"k and v of all ranks: {keys / 2**20:.1f} MiB")  # fmt: skip
        for method, peak in found.items():
            print(f"  {method:7} {peak / 2**20:8.1f} MiB at most on a rank", flush=True)
        head = 12 * args.rows * DIM  # a packet: k and v in bf16, their sums in f32
        own = 12 * args.rows // n * args.heads * DIM * 2
        if found["relay"] > 6 * head + own:
            report(f"relay: {found['relay']} bytes, expected at most {6 * head + own}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    given = parser.parse_args()
    sys.exit(launch(work, given.ranks, given))
