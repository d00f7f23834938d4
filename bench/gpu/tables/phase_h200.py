"""Head sizes above 256, by phases, on one H200.

Peers are PyTorch's math and memory-efficient backends under deterministic algorithms, and
flash where it takes the row. Bars of 512 at 8k are scaled by an 8192^3 product of the same run over
690 TFLOP/s; in all rows the backward pass is to have twice the speed of the best other. The last row
is one head of 128k rows: that it runs, in its workspace.

Rows of the group crossover are passes at 8k over head sizes 128 to 576, without others; what both
forms do at 128 comes from `build/bench/phases`, which runs passes that no plan has:

    bench/gpu/run phase_h200 --rows '^crossover' --json build/h200-forms.json     half a minute
    build/bin/ordo io --crossover --measured build/h200-forms.json --svg build/crossover.svg
"""

from __future__ import annotations

import subprocess
from functools import partial

import driver
import shapes
from show import Column, figure, speed

LONG = 131072
MATMUL = 690.0  # TFLOP/s of the 8192^3 product by which bars are stated
OTHERS = {"math": "MATH", "efficient": "EFFICIENT_ATTENTION", "flash": "FLASH_ATTENTION"}
BARS = {  # head size 512 at 8k, in TFLOP/s: must, aim
    ("_fwd", "full"): (380, 480), ("_fwd", "causal"): (360, 480),
    ("_bwd", "full"): (480, 540), ("_bwd", "causal"): (440, 540),
}  # fmt: skip


def load(args):
    return driver.use_torch(args, "product", "bench_phases")


def rows() -> list[dict]:
    sizes = [(512, seq) for seq in (4096, 8192, 16384)] + [(dim, 8192) for dim in (576, 384, 320)]
    made = [
        shapes.row("", f"{seq} {dim} {mask}", seq, dim, mask)
        for dim, seq in sizes for mask in ("full", "causal")
    ]  # fmt: skip
    made.append(shapes.row("", f"{LONG} 512 causal", LONG, 512, "causal", heads=1))
    dims = (128, 160, 192, 224, 256, 288, 320, 384, 448, 512, 576)
    return made + [shapes.row("crossover", f"8192 {dim} full", 8192, dim, "full") for dim in dims]


def bar(which: int, row: dict, suffix: str) -> float | None:
    if (row["dim"], row["seq"]) != (512, 8192):
        return None
    return BARS[suffix, row["mask"]][which] * row["matmul"] / MATMUL


COLUMNS = {
    "": [
        Column(
            "bar", lambda row, x: figure(row, f"ours{x}"), must=partial(bar, 0), aim=partial(bar, 1)
        ),
        speed("÷ best", "ours", *OTHERS, must=lambda row, suffix: 2 if suffix == "_bwd" else None),
    ],
    "crossover": [speed("phases / flash", "phase", "flash")],
}


def forms_at_128() -> dict[str, float]:
    """TFLOP/s of the backward pass in chains and in the kernels of its head size, in turns."""
    said = subprocess.run(
        [driver.ROOT / "build" / "bench" / "phases"], capture_output=True, text=True
    )
    for line in said.stdout.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:3] == ["128", "8192", "full"]:
            return {"flash_bwd": float(cells[5]), "phase_bwd": float(cells[6])}
    raise RuntimeError(f"build/bench/phases: {(said.stdout + said.stderr).strip()[-200:]}")


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu

    shape = shapes.shape_of(row)
    given, flop = gpu.inputs(shape), shape.both_flop
    contest.notes["matmul"] = contest.board.product()
    contest.both("ours", partial(gpu.Ours, shape, given), flop)
    if row["group"] == "crossover":
        if row["dim"] == 128:
            contest.measured |= contest.attempt("phases", forms_at_128) or {}
        return
    for name, backend in OTHERS.items() if row["seq"] < LONG else ():
        contest.both(name, partial(gpu.Torch, shape, given, backend, True), flop)
