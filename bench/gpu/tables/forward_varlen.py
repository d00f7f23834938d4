"""What a tile costs in the varlen forward kernels, feature by feature: live tiles per time (tiles that the mask
does not hide) over those of the same mask in the dense kernel. backward_varlen has the backward
pass.

16k tokens, 2048 channels. `packed one` is a packed batch of one sequence: the dense problem in the
kernels of the others.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import shapes
from show import tile_rate

MIXED = (6000, 3000, 2500, 2000, 1200, 800, 500, 300, 84)
LONGEST = {"batch": len(MIXED), "q_len": max(MIXED), "kv_len": max(MIXED), "lengths": MIXED}
CAUSAL = {  # by name: what differs from a dense causal problem
    "causal": {},
    "packed one": {"lengths": (shapes.TOKENS,)},
    "f16": {"dtype": "f16"},
    "window 1024": {"window": (1023, 0)},
    "window 256": {"window": (255, 0)},
    "packed": LONGEST,
    "padded": {**LONGEST, "padded": True},
    "softcap": {"softcap": 30.0},
    "ALiBi": {"alibi": True},
    "made inside": {"p": 0.1},
    "bits given": {"p": 0.1},
}
FULL = {
    "full": {},
    "f16": {"dtype": "f16"},
    "packed": LONGEST,
    "softcap": {"softcap": 30.0},
    "softcap reached": {"softcap": 0.25},  # most scores are beyond half of it
    "ALiBi": {"alibi": True},
    "softcap, ALiBi": {"softcap": 30.0, "alibi": True},
    "made inside": {"p": 0.1},
}
KINDS = {"causal": CAUSAL, "full": FULL}
COLUMNS = {
    mask: [tile_rate(f"{x} / {mask}", x, mask) for x in kinds if x != mask]
    for mask, kinds in KINDS.items()
}
PASSES = ("fwd",)


def rows() -> list[dict]:
    return [
        shapes.row(mask, f"{dim}", shapes.TOKENS, dim, mask)
        for mask in KINDS
        for dim in (128, 64, 256)
    ]


def enter(contest, row: dict, passes: tuple[str, ...] = PASSES) -> None:
    import attention_gpu as gpu

    dense = shapes.shape_of(row)
    for name, changes in KINDS[row["mask"]].items():
        shape = replace(dense, **changes)
        bits = None
        if name == "bits given":
            bits = gpu.Bits(gpu.problem_of(shape), shape)
            bits.make()
        make = partial(gpu.Ours, shape, gpu.inputs(shape), bits)
        shapes.live(contest, name, shape, make, passes)
