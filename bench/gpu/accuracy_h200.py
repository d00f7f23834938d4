#!/usr/bin/env python3
"""bench/gpu/accuracy_h200.py [--quick] [--json]: how far from fp64 the CUDA passes are.

The bar: o, dq, dk and dv are at most 1.2 times as far from fp64 as PyTorch's math backend that
computes in bf16, on the same inputs, random ones and hostile ones; |x - exact| / |exact|. Beside
it stand, not judged, the math backend as PyTorch sets it by default (bf16 inputs, f32 inside) and
PyTorch's flash kernels. Then what NaN and inf in the inputs do to the results: where they show,
against the library's oracle, is recorded; that every NaN is the canonical one is judged. Outputs
are NaN before a pass.

Exit 1 if a bar is missed, 77 without PyTorch or a GPU that the kernels run on.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "gpu"), str(ROOT / "python")]
BAR = 1.2
NAMES = ("o", "dq", "dk", "dv")
CANONICAL = {"0x7fc0", "0x7fc00000"}  # the NaNs of bf16 and f32


def skip(why: object) -> None:
    print(f"accuracy: skipped: {why}")
    sys.exit(77)


try:
    import numpy  # noqa: F401  (python/ordo needs it)
    import torch
except ImportError as missing:
    skip(missing)
import attention_gpu as gpu

Shape = gpu.Shape


def shapes(quick: bool) -> list[Shape]:
    found = []
    for dim in (64, 128):
        found += [
            Shape(2, 4, 4, 512, 512, dim, "full"),
            Shape(2, 4, 4, 512, 512, dim, "causal"),
            Shape(1, 8, 2, 777, 777, dim, "causal"),  # ragged, groups of heads
        ]
        if quick:
            continue
        found += [
            Shape(1, 4, 4, 2048, 2048, dim, "full"),
            Shape(1, 4, 4, 2048, 2048, dim, "causal"),
            Shape(1, 6, 1, 333, 1000, dim, "causal"),  # more keys than queries
            Shape(1, 4, 4, 1000, 333, dim, "causal"),  # rows that see nothing
            Shape(1, 4, 2, 640, 400, dim, "causal-top-left"),
            Shape(3, 2, 2, 129, 65, dim, "full"),
        ]
    return found


# ---- inputs ----


def plain(x):
    return x


def peaked(x):
    """Softmax of almost one key: dS is a difference of almost equal numbers."""
    return x | {"q": x["q"] * 8, "k": x["k"] * 4}


def even(x):
    """All keys alike: every probability the same, dK a sum of cancelling terms."""
    return x | {"k": x["k"][:, :1].expand_as(x["k"]).contiguous()}


def drift(x):
    """dout and v far from zero mean: dP and its row sum are large and almost equal."""
    return x | {"dout": x["dout"] + 4, "v": x["v"] + 4}


def outliers(x):
    """A few channels of q and k a hundred times larger, as trained models have them."""
    made = dict(x)
    for name in ("q", "k"):
        made[name] = x[name].clone()
        made[name][..., 5::40] *= 20
    return made


def climbing(x):
    """Scores grow towards the first key: the running maximum rises with every tile."""
    rows = x["k"].shape[1]
    slope = torch.linspace(3, 0, rows, device=x["k"].device)[None, :, None, None]
    return x | {"q": x["q"] * 0.1 + 1, "k": (x["k"] * 0.1 + slope).to(x["k"].dtype)}


def cancelling(x):
    """Values of alternating sign: outputs are small beside the terms they are summed from."""
    sign = 1 - 2 * (torch.arange(x["v"].shape[1], device=x["v"].device) % 2)
    v = x["v"] * 0.01 + 8 * sign[None, :, None, None]
    return x | {"v": v.to(x["v"].dtype), "q": x["q"] * 0.1}


def wide(x):
    """Rows of dout from 2^-20 to 2^20."""
    power = torch.arange(x["dout"].shape[1], device=x["dout"].device) % 41 - 20
    factor = torch.exp2(power.float())[None, :, None, None]
    return x | {"dout": (x["dout"] * factor).to(x["dout"].dtype)}


def tiny(x):
    """Values and gradients near 2^-50."""
    return x | {"v": x["v"] * 2.0**-50, "dout": x["dout"] * 2.0**-50}


HOSTILE = (peaked, even, drift, outliers, climbing, cancelling, wide, tiny)


def cases(quick: bool):
    for shape in shapes(quick):
        yield plain, shape
    for kind in HOSTILE:
        for dim in (64, 128):
            yield kind, Shape(1, 4, 4, 512, 512, dim, "causal")
            if not quick:
                yield kind, Shape(1, 4, 2, 640, 640, dim, "full")


# ---- errors ----


def run(shape: Shape, given) -> dict[str, torch.Tensor]:
    ours = gpu.Ours(shape, given)
    ours.forward()
    ours.backward()
    torch.cuda.synchronize()
    return ours.results() | {"lse": ours.lse}


PEERS = {"math": ("MATH", True), "math_f32": ("MATH", False), "flash": ("FLASH_ATTENTION", False)}


def peer(shape: Shape, given, backend: str, inside: bool) -> dict[str, torch.Tensor] | None:
    with gpu.bf16_inside(inside):
        try:
            return gpu.Torch(shape, given, backend).results()
        except RuntimeError:  # a mask that this backend does not take
            return None


def compare(kind, shape: Shape) -> dict:
    given = kind(gpu.inputs(shape))
    exact = gpu.exact(shape, given)
    got = run(shape, given)
    theirs = {name: peer(shape, given, *how) for name, how in PEERS.items()}
    row = {"case": kind.__name__, "shape": str(shape), "errors": {}, "met": True}
    for name in NAMES:
        errors = {"ours": gpu.error(got[name], exact[name])}
        for other, results in theirs.items():
            errors[other] = results and gpu.error(results[name].nan_to_num(), exact[name])
        errors["ratio"] = errors["ours"] / errors["math"] if errors["math"] else float("inf")
        errors["met"] = errors["ratio"] <= BAR  # NaN is not
        row["errors"][name] = errors
        row["met"] = row["met"] and errors["met"]
    lse = (got["lse"].double() - exact["lse"]).nan_to_num(nan=0.0)  # -inf - -inf
    agree = torch.equal(got["lse"] == -torch.inf, exact["lse"] == -torch.inf)
    row["lse_error"] = lse.abs().max().item()
    row["met"] = row["met"] and agree and not got["lse"].isnan().any().item()
    return row


def show(row: dict) -> None:
    text = " ".join(
        f"{name} {e['ours']:.2e} {e['ratio']:5.2f}{' ' if e['met'] else '!'}"
        f"{e['ours'] / e['math_f32']:5.2f}"
        for name, e in row["errors"].items()
    )
    print(
        f"{'met  ' if row['met'] else 'SHORT'} {row['case']:<10} {row['shape']:<38} {text}"
        f" lse {row['lse_error']:.0e}",
        flush=True,
    )


# ---- NaN and inf ----


def planted():
    """(what, name, index, value) of one wrong number in one tensor of the inputs."""
    nan, inf = float("nan"), float("inf")
    for name in ("q", "k", "v", "dout"):
        yield f"nan in {name}", name, (0, 200, 1, 3), nan
        yield f"inf in {name}", name, (0, 200, 1, 3), inf
    yield "-inf in k", "k", (0, 200, 1, 3), -inf


def kinds(x: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +inf, 3 -inf."""
    return x.isnan() * 1 + (x == torch.inf) * 2 + (x == -torch.inf) * 3


def nan_bits(x: torch.Tensor) -> set[str]:
    """Which NaNs are there, as hex."""
    words = x.contiguous().view(torch.int32 if x.dtype == torch.float32 else torch.int16)
    mask = 0xFFFFFFFF if x.dtype == torch.float32 else 0xFFFF
    return {hex(word & mask) for word in words[x.isnan()].unique().tolist()}


def plant(what, name, index, value, shape: Shape) -> dict:
    given = gpu.inputs(shape)
    given[name][index] = value
    got, expected = run(shape, given), gpu.oracle(shape, given)
    row = {"what": what, "shape": str(shape), "differ": {}, "special": {}}
    bits = set()
    for tensor in ("lse", *NAMES):
        a, b = kinds(got[tensor]), kinds(expected[tensor])
        row["differ"][tensor] = int((a != b).sum())
        row["special"][tensor] = int((b != 0).sum())
        bits |= nan_bits(got[tensor])
    row["nan_bits"] = sorted(bits)
    row["met"] = bits <= CANONICAL
    return row


def show_planted(row: dict) -> None:
    same = not any(row["differ"].values())
    text = " ".join(
        f"{name} {row['differ'][name]}/{row['special'][name]}" for name in row["differ"]
    )
    print(
        f"{'as oracle' if same else 'differs  '} {row['what']:<12} {row['shape']:<30} "
        f"{'' if same else text}{'' if row['met'] else ' NaN ' + ','.join(row['nan_bits'])}",
        flush=True,
    )


def report(quick: bool, as_json: bool) -> int:
    """Compare and print; the exit status."""
    rows, specials = [], []
    if not as_json:
        print(f"error against fp64; ratio to math in bf16 (at most {BAR}); ratio to math in f32")
    for kind, shape in cases(quick):
        rows.append(compare(kind, shape))
        if not as_json:
            show(rows[-1])
    if not as_json:
        print("NaN and inf: elements that differ from the oracle / that are not finite there")
    for dim in (64, 128):
        for mask in ("full", "causal"):
            for one in planted():
                specials.append(plant(*one, Shape(1, 2, 2, 256, 256, dim, mask)))
                if not as_json:
                    show_planted(specials[-1])
    short = [row for row in rows if not row["met"]]
    others = [row for row in specials if not row["met"]]
    if as_json:
        print(json.dumps({"bar": BAR, "errors": rows, "special": specials}, indent=1))
    else:
        print(
            f"accuracy: {len(rows) - len(short)} of {len(rows)} meet the bar of {BAR}; "
            f"{len(specials) - len(others)} of {len(specials)} store canonical NaNs"
        )
    return 1 if short or others else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer shapes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    args = parser.parse_args()
    if why := gpu.why_not():
        skip(why)
    return report(args.quick, args.json)


if __name__ == "__main__":
    sys.exit(main())
