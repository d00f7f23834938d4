"""Both passes of attention with dropout in segments of rows on one H200, ms.

32 heads of size 128, p = 0.1, at 16k tokens (1 to 16 segments) and 128k tokens (8 to 64; the bits of
all rows would take 64 GiB), and bits made inside. The results of all must have the same bits.
"""

from __future__ import annotations

from functools import partial

import shapes
from show import time_over

P, MIB = 0.1, 1 << 20
COLUMNS = [time_over(f"{n} / inside", str(n), "inside") for n in (1, 2, 4, 8, 16, 32, 64)]


def rows() -> list[dict]:
    kinds = [(16384, mask, [1, 2, 4, 8, 16]) for mask in ("full", "causal")]
    kinds.append((131072, "causal", [8, 16, 32, 64]))
    return [
        shapes.row("", f"{seq} {mask}", seq, 128, mask, heads=32, segments=counts)
        for seq, mask, counts in kinds
    ]


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu

    shape = shapes.shape_of(row, p=P)
    given, side = gpu.inputs(shape), gpu.torch.cuda.Stream()

    def make(count: int):
        subject = gpu.Ours(shape, given, segments=count)
        subject.call.side_stream = side.cuda_stream
        return subject

    memory = contest.notes["memory_mib"] = {}
    contest.ours(contest.both("inside", partial(gpu.Ours, shape, given), (0, 0)), close=0.0)
    for count in row["segments"]:
        subject = contest.both(str(count), partial(make, count), (0, 0))
        if subject:
            info = subject.plan.info
            memory[count] = [info.segment_bytes / MIB, subject.workspace.numel() / MIB]


def remarks(rows: list[dict]) -> list[str]:
    return [
        f"{row['name']}: {count} segments: keep bits {bits:.0f} MiB, workspace {workspace:.0f} MiB"
        for row in rows for count, (bits, workspace) in row["memory_mib"].items()
    ]  # fmt: skip
