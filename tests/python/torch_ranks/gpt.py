"""examples/torch_ranks_gpt.py on 1, 2 and 4 ranks: 20 steps with equal losses and digests.

PYTHONPATH=python python3 tests/python/torch_ranks/gpt.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist
from kit import Reporter, launch

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import torch_ranks_gpt  # noqa: E402

STEPS = 20


def work(rank: int, report: Reporter) -> None:
    found = {}
    for n in (1, 2, 4):
        group = dist.new_group(list(range(n)))
        if rank < n:
            found[n] = torch_ranks_gpt.train(STEPS, group)
    if rank > 0:
        return
    for n, lines in found.items():
        for one, line in zip(found[1], lines):
            if one != line:
                report(f"{n} ranks: {line}\n1 rank:  {one}")
    if len(set(found[1])) != STEPS:
        report("two steps gave the same line")
    first, last = (float(found[1][at].split()[3]) for at in (0, -1))
    if not last < first:
        report(f"loss {first} became {last}")


if __name__ == "__main__":
    sys.exit(launch(work, 4))
