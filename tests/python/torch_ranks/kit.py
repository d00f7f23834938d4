"""Processes of a group on one machine: gloo, or nccl with a GPU each, forked from one that has
imported torch."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Reporter = Callable[[str], None]


def differing(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> str:
    """Which tensors have another shape or type, or how many elements other bits."""
    faults = []
    for name, y in expected.items():
        x, bits = found[name], torch.int16 if y.element_size() == 2 else torch.int32
        if x.shape != y.shape or x.dtype != y.dtype:
            faults.append(f"{name} {x.dtype} {tuple(x.shape)} instead of {y.dtype} {tuple(y.shape)}")
        elif count := int((x.contiguous().view(bits) != y.contiguous().view(bits)).sum()):
            faults.append(f"{name}: {count} of {y.numel()}")
    return ", ".join(faults)


def launch(
    work: Callable[..., None], ranks: int, *args: Any, seconds: float = 600, device: str = "cpu"
) -> int:
    """Run work(rank, report, *args) on each rank; 1 if any of them reports or raises, else 0.

    `seconds` is the group's time-out. Device cuda: rank r has GPU r, over nccl.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(
                target=_rank, args=(work, r, ranks, f"{folder}/store", seconds, device, args)
            )
            for r in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    return int(any(process.exitcode for process in processes))


def _rank(
    work: Callable[..., None], rank: int, ranks: int, store: str, seconds: float, device: str,
    args: Any,
) -> None:  # fmt: skip
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    failed = []

    def report(text: str) -> None:
        failed.append(text)
        print(text, flush=True)

    try:
        if device == "cuda":
            torch.cuda.set_device(rank)
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks,
            timeout=datetime.timedelta(seconds=seconds),
        )  # fmt: skip
        work(rank, report, *args)
    except BaseException:
        report(f"rank {rank}:\n{traceback.format_exc()}")
    sys.stdout.flush()
    os._exit(int(bool(failed)))  # at once: others may be waiting, and would at an orderly end
