"""How far from fp64 the CUDA passes are, |x - exact| / |exact|, on random inputs and hostile ones.

The bar: o, dq, dk and dv are at most 1.2 times as far from fp64 as PyTorch's math backend that
computes in bf16, on the same inputs; a row that is further is wrong. Not judged: the same over the
math backend as PyTorch sets it by default (bf16 inputs, f32 inside). Rows of the group special have
one NaN or inf in the inputs: how many elements are NaN or inf where the library's oracle has others
is said; that every NaN is the canonical one is judged.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict

from shapes import Shape
from show import Column

with contextlib.suppress(ImportError):  # --list needs none
    import torch

BAR = 1.2
NAMES = ("o", "dq", "dk", "dv")
CANONICAL = {"0x7fc0", "0x7fc00000"}  # the NaNs of bf16 and f32
MATH = {"math": True, "math_f32": False}  # whether it computes in bf16


def of_shapes() -> list[Shape]:
    found = []
    for dim in (64, 128):
        found += [
            Shape(2, 4, 4, 512, 512, dim, "full"),
            Shape(2, 4, 4, 512, 512, dim, "causal"),
            Shape(1, 8, 2, 777, 777, dim, "causal"),  # ragged, groups of heads
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
    """Values of alternating sign: outputs are small compared with the terms they are summed from."""
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


HOSTILE = ("peaked", "even", "drift", "outliers", "climbing", "cancelling", "wide", "tiny")


def planted() -> list[tuple[str, float]]:
    """One wrong number in one tensor of the inputs."""
    nan, inf = float("nan"), float("inf")
    return [(name, x) for name in ("q", "k", "v", "dout") for x in (nan, inf)] + [("k", -inf)]


def rows() -> list[dict]:
    cases = [("plain", shape) for shape in of_shapes()]
    for kind in HOSTILE:
        for dim in (64, 128):
            cases.append((kind, Shape(1, 4, 4, 512, 512, dim, "causal")))
            cases.append((kind, Shape(1, 4, 2, 640, 640, dim, "full")))
    made = [
        {"group": "", "name": f"{kind} {x}", "kind": kind, "shape": asdict(x)} for kind, x in cases
    ]
    for dim in (64, 128):
        for mask in ("full", "causal"):
            x = Shape(1, 2, 2, 256, 256, dim, mask)
            made += [
                {"group": "special", "name": f"{value} in {name} {x}", "tensor": name,
                 "value": str(value), "shape": asdict(x)}
                for name, value in planted()
            ]  # fmt: skip
    return made


# ---- errors ----


def run(gpu, shape: Shape, given) -> dict:
    ours = gpu.Ours(shape, given)
    ours.forward()
    ours.backward()
    torch.cuda.synchronize()
    return ours.results() | {"lse": ours.lse}


def compare(gpu, row: dict) -> dict:
    shape = Shape(**row["shape"])
    given = globals()[row["kind"]](gpu.inputs(shape))
    exact, got = gpu.exact(shape, given), run(gpu, shape, given)
    errors = {name: {"ours": gpu.error(got[name], exact[name])} for name in NAMES}
    for other, inside in MATH.items():
        with gpu.bf16_inside(inside):
            theirs = gpu.Torch(shape, given, "MATH").results()
        for name in NAMES:
            errors[name][other] = gpu.error(theirs[name].nan_to_num(), exact[name])
    ratios = {
        name: e["ours"] / e["math"] if e["math"] else float("inf") for name, e in errors.items()
    }
    wrong = {name: f"{x:.2f} of the error of math in bf16" for name, x in ratios.items()
             if not x <= BAR}  # fmt: skip
    if (
        not torch.equal(got["lse"] == -torch.inf, exact["lse"] == -torch.inf)
        or got["lse"].isnan().any()
    ):
        wrong["lse"] = "-inf is not where it should be, or NaN"
    lse = (got["lse"].double() - exact["lse"]).nan_to_num(nan=0.0).abs().max().item()  # -inf - -inf
    return {"figures": ratios, "errors": errors, "lse_error": lse, "wrong": wrong}


def over_f32(row: dict, suffix: str) -> float | None:
    errors = row.get("errors", {}).values()
    return None if suffix or not errors else max(e["ours"] / e["math_f32"] for e in errors)


COLUMNS = {
    "": [
        Column(
            "bar", lambda row, x: None if x else max(row["figures"].values()), must=BAR, most=True
        ),
        Column("÷ math in f32", over_f32),
    ]
}
TITLES = {"special": "elements that are NaN or inf, or not, unlike the oracle's"}


# ---- NaN and inf ----


def kinds(x):
    """0 finite, 1 NaN, 2 +inf, 3 -inf."""
    return x.isnan() * 1 + (x == torch.inf) * 2 + (x == -torch.inf) * 3


def nan_bits(x) -> set[str]:
    """Which NaNs are there, as hex."""
    words = x.contiguous().view(torch.int32 if x.dtype == torch.float32 else torch.int16)
    mask = 0xFFFFFFFF if x.dtype == torch.float32 else 0xFFFF
    return {hex(word & mask) for word in words[x.isnan()].unique().tolist()}


def plant(gpu, row: dict) -> dict:
    shape = Shape(**row["shape"])
    given = gpu.inputs(shape)
    given[row["tensor"]][0, 200, 1, 3] = float(row["value"])
    got, expected = run(gpu, shape, given), gpu.oracle(shape, given)
    differ, bits = {}, set()
    for name in ("lse", *NAMES):
        differ[name] = int((kinds(got[name]) != kinds(expected[name])).sum())
        bits |= nan_bits(got[name])
    wrong = {"NaN": f"bits {', '.join(sorted(bits))}"} if not bits <= CANONICAL else {}
    return {"figures": {name: str(x) for name, x in differ.items()}, "wrong": wrong}


def measure(contest, row: dict) -> dict:
    import attention_gpu as gpu

    return plant(gpu, row) if row["group"] else compare(gpu, row)
