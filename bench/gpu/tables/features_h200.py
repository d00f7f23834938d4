"""What dropout, windows, packing, wide heads, f16, masks and biases cost on one H200.

    dropout   p = 0.1: ours without, with bits given (drop) and made inside; flash, flash
              deterministic (flash det) and cuDNN with p = 0.1
    rng       keep bits of 32 heads of 8k x 8k: 7 and 10 rounds, 4, 8 and 16 bits an element
    tiles     a window of 1024 at S = 16k, a packed batch of mixed lengths, causal: live tiles per
              time over the dense batch's
    heads     head sizes 256, 192 and 96, and 192 with values of 128
    f16       over bf16
    blocks    block masks at S = 8k (documents, every fourth block, the mask of a causal mask): live
              blocks per time over the dense batch's
    seen      element masks at S = 8k that cut every tile, by ordo.torch.attention(), which packs them
              in each call: half of the elements; with p = 0.1; without a mask
    bias      by ordo.torch.attention(): without; of all heads and sequences in the type of q and in f32,
              without a gradient; of each head, with it (grad), beside PyTorch's efficient kernel and
              compiled FlexAttention

"met" and "aim" say that a figure reaches what it must and may, SHORT that it does not. Bars of head
sizes are scaled by a product of 8192^3.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import shapes
from shapes import TOKENS, row, shape_of
from show import Column, figure, speed, tile_rate

WINDOW = 1024
MIXED = (8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1)  # TOKENS in all
# Forward and backward TFLOP/s that head sizes must reach, where a product of 8192^3 has MATMUL.
HEADS = {
    (192, 128, "causal"): (585.0, 430.0),
    (192, 128, "full"): (610.0, 445.0),
    (192, 192, "causal"): (580.0, 425.0),
}
MATMUL = 690.0
RNG = {(7, 8): (0.26, 0.20), (7, 4): (0.15, 0.13)}  # ms: must, aim
BLOCKS = {"_fwd": 0.85, "_bwd": 0.92}
SEEN = {"_fwd": 0.80, "_bwd": 0.85}
TITLES = {
    "dropout": "p = 0.1",
    "rng": "keep bits, 32 heads of 8192 x 8192, ms",
    "tiles": f"S = {TOKENS}, causal",
    "heads": "wide and odd heads; a pair is the width of queries and of values",
    "f16": "f16 and bf16",
    "blocks": "S = 8192, full",
    "seen": "S = 8192, half of the elements",
    "bias": "S = 4096, full",
}


# ---- bars ----


def strict(which: int, row: dict, suffix: str) -> float | None:
    return (0.85, 0.92)[which] if row["dim"] == 128 and row["seq"] >= 4096 else None


def over_det(row: dict, suffix: str) -> float:
    return 2.3 if row["seq"] >= 8192 else 1.6


def over_det_aim(row: dict, suffix: str) -> float | None:
    return 3.2 if row["seq"] >= 8192 and row["dim"] == 128 else None


def head_bar(row: dict, suffix: str) -> float | None:
    if row["dim"] == 256:
        return 300.0 if suffix == "_bwd" else None
    bars = HEADS.get((row["dim"], row.get("v_dim", row["dim"]), row["mask"]))
    return bars[suffix == "_bwd"] * row["matmul"] / MATMUL if bars else None


def head_aim(row: dict, suffix: str) -> float | None:
    return 450.0 if row["dim"] == 256 and suffix == "_bwd" else None


def rng_bar(which: int, row: dict, suffix: str) -> float | None:
    return RNG.get((row["rng_rounds"], row["rng_bits"]), (None, None))[which]


COLUMNS = {
    "dropout": [
        speed("p / 0", "drop", "ours", must=partial(strict, 0), aim=partial(strict, 1)),
        speed("inside / given", "inside", "drop"),
        speed("÷ flash det", "drop", "flash_det", must=over_det, aim=over_det_aim),
    ],
    "rng": [
        Column("bar", lambda row, x: None if x else row["figures"].get("ms"),
               must=partial(rng_bar, 0), aim=partial(rng_bar, 1), most=True),
    ],
    "tiles": [tile_rate(f"{x} / dense", x, "dense", must=0.8, aim=0.9) for x in ("window", "packed")],
    "heads": [
        Column("bar", lambda row, x: figure(row, f"ours{x}"), must=head_bar, aim=head_aim),
        *(speed(f"÷ {x.replace('_', ' ')}", "ours", x) for x in ("flash", "flash_det", "cudnn")),
    ],
    "f16": [speed("f16 / bf16", "f16", "bf16", must=0.98)],
    "blocks": [
        tile_rate(f"{x} / dense", x, "dense", must=lambda row, suffix: BLOCKS[suffix])
        for x in ("documents", "sparse", "causal")
    ],
    "seen": [
        speed("seen / none", "seen", "none", must=lambda row, suffix: SEEN[suffix] if row["dim"] == 128 else None),
        speed("with p / none", "seen_p", "none"),
    ],
    "bias": [
        speed("shared / none", "shared", "none", must=lambda row, suffix: 0.8 if suffix == "_fwd" else None),
        speed("f32 / none", "shared_f32", "none"),
        *(
            speed(f"grad ÷ {x}", "grad", x, must=lambda row, suffix: 1.3 if suffix == "_bwd" else None)
            for x in ("efficient", "flex")
        ),
    ],
}  # fmt: skip


# ---- rows ----


def rows() -> list[dict]:
    made = [x for x in shapes.of_attention("dropout") if 2048 <= x["seq"] <= TOKENS]
    made += [
        row("rng", f"rounds {r}, {b} bits, p {p}", 8192, 128, "full", batch=1, heads=32,
            rng_rounds=r, rng_bits=b, p=p)
        for r, b, p in ((7, 8, 0.1), (7, 8, 0.099), (7, 4, 0.1), (10, 8, 0.1), (10, 4, 0.1), (7, 16, 0.1))
    ]  # fmt: skip
    made += [row("tiles", f"{TOKENS} {dim}", TOKENS, dim, "causal") for dim in (128, 64)]
    sizes = [(256, 4096), (256, 8192), (256, 16384), (192, 8192), (96, 8192)]
    made += [row("heads", f"{seq} {dim} causal", seq, dim, "causal") for dim, seq in sizes]
    made += [
        row("heads", f"8192 192,128 {mask}", 8192, 192, mask, heads=16, v_dim=128)
        for mask in ("causal", "full")
    ]
    for dim in (128, 64):
        made += [row("f16", f"8192 {dim} {mask}", 8192, dim, mask) for mask in ("full", "causal")]
    for group, seq in (("blocks", 8192), ("seen", 8192), ("bias", 4096)):
        made += [row(group, f"{seq} {dim}", seq, dim, "full") for dim in (128, 64)]
    return made


# ---- contestants ----


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu

    globals()[f"enter_{row['group']}"](contest, row, gpu)


def enter_dropout(contest, row: dict, gpu) -> None:
    plain, shape = shape_of(row), shape_of(row, p=0.1)
    given, flop = gpu.inputs(plain), plain.both_flop

    def with_bits():
        bits = gpu.Bits(gpu.problem_of(shape), shape)
        bits.make()
        return gpu.Ours(shape, given, bits)

    contest.both("ours", lambda: gpu.Ours(plain, given), flop)
    contest.both("drop", with_bits, flop)
    contest.both("inside", lambda: gpu.Ours(shape, given), flop)
    gpu.add_torch(contest, shape, given)


def enter_rng(contest, row: dict, gpu) -> None:
    shape = shape_of(row)
    kind = gpu.ordo.Dropout(p=row["p"], rounds=row["rng_rounds"], bits=row["rng_bits"])
    problem = gpu.problem_of(shape).replace(dropout=kind)
    bits = contest.attempt("ms", lambda: gpu.Bits(problem, shape))
    if bits:
        contest.add("ms", bits.make)


def enter_tiles(contest, row: dict, gpu) -> None:
    dense, longest = shape_of(row), max(MIXED)
    packed = replace(dense, batch=len(MIXED), q_len=longest, kv_len=longest, lengths=MIXED)
    kinds = {"dense": dense, "window": replace(dense, window=(WINDOW, 0)), "packed": packed}
    for name, shape in kinds.items():
        shapes.live(contest, name, shape, partial(gpu.Ours, shape, gpu.inputs(shape)))


def enter_heads(contest, row: dict, gpu) -> None:
    shape = shape_of(row)
    given = gpu.inputs(shape)
    contest.notes["matmul"] = contest.board.product()
    contest.both("ours", lambda: gpu.Ours(shape, given), shape.both_flop)
    gpu.add_torch(contest, shape, given)


def enter_f16(contest, row: dict, gpu) -> None:
    for dtype in ("bf16", "f16"):
        shape = shape_of(row, dtype=dtype)
        contest.both(dtype, partial(gpu.Ours, shape, gpu.inputs(shape)), shape.both_flop)


def enter_blocks(contest, row: dict, gpu) -> None:
    shape = shape_of(row)
    given, blocks = gpu.inputs(shape), (row["seq"] // 128) ** 2
    masks = {"dense": None, **gpu.block_masks(row["seq"])}
    for name, mask in masks.items():
        live = len(mask.key) if mask else blocks
        contest.both(
            name, partial(gpu.Ours, shape, given, blocks=mask),
            tuple(x * live / blocks for x in shape.both_flop), tiles=lambda subject, which, n=live: n,
        )  # fmt: skip


def enter_seen(contest, row: dict, gpu) -> None:
    shape = shape_of(row)
    given, seen = gpu.inputs(shape), gpu.half(row["seq"])
    contest.both("none", partial(gpu.Front, shape, given), shape.both_flop)
    contest.both("seen", partial(gpu.Front, shape, given, seen=seen), shape.both_flop)
    dropped = replace(shape, p=0.1)
    contest.both("seen_p", partial(gpu.Front, dropped, given, seen=seen), shape.both_flop)


def enter_bias(contest, row: dict, gpu) -> None:
    shape = shape_of(row)
    given, flop = gpu.inputs(shape), shape.both_flop
    shared, own = gpu.bias(shape, 1), gpu.bias(shape, shape.heads)
    contest.both("none", partial(gpu.Front, shape, given), flop)
    contest.both("shared", partial(gpu.Front, shape, given, bias=shared), flop)
    contest.both("shared_f32", partial(gpu.Front, shape, given, bias=shared.float()), flop)
    contest.ours(contest.both("grad", partial(gpu.Front, shape, given, bias=own, wanted=True), flop))
    for how in ("efficient", "flex"):
        contest.both(how, partial(gpu.Biased, shape, given, own, how), flop)
