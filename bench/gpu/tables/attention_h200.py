"""Both passes on one H200, and those of other libraries.

    ours       the passes of libordo; every sum in plan order
    unordered  our backward pass with dQ partials added as they come (build/bench/unordered)
    fa3        FlashAttention-3: flash_attn_interface, if it can be imported (PYTHONPATH says where)
    fa2        FlashAttention-2: flash_attn, likewise
    cudnn      PyTorch's scaled_dot_product_attention with its cuDNN backend
    flash      the same with its flash backend, which is FlashAttention-2

"det" is a peer's deterministic backward pass. Our passes are called through the C API,
FlashAttention-3's by its operators, with the arguments that its Python passes, other peers as their
users call them. --peer NAME=MODULE adds any module with flash_attn_func.
"""

from __future__ import annotations

from functools import partial

import driver
import shapes
from show import speed

PEERS = {"fa3": "flash_attn_interface", "fa2": "flash_attn"}
UNORDERED = driver.ROOT / "build" / "bench" / "unordered" / "libordo.so"
COLUMNS = [
    speed("÷ FA3 det", "ours", "fa3_det"),
    speed("÷ FA3", "ours", "fa3"),
    speed("÷ best unordered", "ours", "fa3", "cudnn", "fa2", "flash"),
    speed("÷ flash det", "ours", "flash_det"),
    speed("÷ unordered", "ours", "unordered"),
]


def load(args):
    return driver.use_torch(args, "product", "bench_unordered")


def rows() -> list[dict]:
    return shapes.of_attention()


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu

    shape = shapes.shape_of(row)
    given, flop = gpu.inputs(shape), shape.both_flop
    contest.ours(contest.both("ours", lambda: gpu.Ours(shape, given), flop))
    if UNORDERED.exists():
        make = partial(gpu.Unordered, shape, given, UNORDERED)
        contest.both("unordered", make, flop, ("bwd",))
    for name, module in contest.peers.modules.items():
        contest.both(name, partial(gpu.Flash, shape, given, module), flop)
        contest.both(f"{name}_det", partial(gpu.Flash, shape, given, module, True), flop, ("bwd",))
    gpu.add_torch(contest, shape, given)
