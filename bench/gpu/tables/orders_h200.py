"""The orders of sums of the backward pass on one H200, and the laboratory's prediction.

Every order of a row runs in the dense kernel. Shift and symmetric run in groups of 32 and in waves
over all multiprocessors, pinned as published; `plain` is the default order as users run it. The
prediction is the simulation of the chains with their traffic (ordo_io_replay_plan()). All 24 rows
take about two minutes:

    bench/gpu/run orders_h200 --budget 130 --json build/h200-orders.json --plot build/orders.svg

    loss      what ascending loses to the fastest order of the row
    predicted the first order, in the order of columns, whose prediction is within 2 % of the least
    excess    what it takes more than the fastest
    error     predicted time over measured, less 1, in the middle of the orders and at most
    ranks     Spearman's correlation between predicted and measured times of a row's orders
"""

from __future__ import annotations

import statistics

import shapes
from show import Column

WAVES = {"group": "waves", "assign": "pinned", "issue": "head"}
ORDERS = {  # by name: choices of the plan
    **{x: {"order": x} for x in ("ascending", "descending", "spt", "twin", "spt+tail")},
    **{x: {"order": x} for x in ("shift", "symmetric")},
    "shift.waves": {"order": "shift", **WAVES},
    "symmetric.waves": {"order": "symmetric", **WAVES},
}
COLOURS = "#c0392b #2e86c1 #28b463 #8e44ad #a04000 #d68910 #34495e #7dcea0 #bb8fce".split()
NEAR = 0.03  # share of the fastest order's time: a choice that loses at most this is a hit
TIE = 0.02  # predictions that differ by less are equal: then the first of ORDERS is chosen
DEFAULTS = {"warmup": 20, "rep": 40}


def rows() -> list[dict]:
    of_all = shapes.of_attention()
    return [row for row in of_all if row["seq"] <= 16384 and row["heads"] == row["kv_heads"]]


def predicted(plan) -> dict[str, float]:
    """The laboratory's prediction: milliseconds of the backward pass and of its chains by the
    simulation alone, and GB of HBM."""
    from ctypes import byref

    from ordo import Machine
    from ordo.lab import _structs as structs
    from ordo.lab._library import lib

    machine, hbm = Machine("h200"), structs.ordo_io_hbm()
    lib.ordo_io_replay_plan(machine._handle, plan._handle, 0, byref(hbm))
    moved = (hbm.read_bytes + hbm.written_bytes) * 1e-9
    return {"ms": hbm.ns * 1e-6, "chains_ms": hbm.chains_ns * 1e-6, "hbm_gb": moved}


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu

    shape = shapes.shape_of(row)
    given, flop = gpu.inputs(shape), shape.both_flop[1]
    plain = gpu.Ours(shape, given)
    contest.ours(plain)
    contest.add("plain", plain.backward, flop)
    model = contest.notes["model"] = {}
    for name, choices in ORDERS.items():
        subject = contest.attempt(name, lambda choices=choices: gpu.Ours(shape, given, **choices))
        if subject is None:
            continue
        runs_as = subject.plan.info.order
        if runs_as != choices["order"]:
            contest.refused[name] = f"runs as {runs_as}"
            continue
        subject.forward()
        if contest.same(name, subject):
            contest.add(name, subject.backward, flop)
            model[name] = predicted(subject.plan)


# ---- what a row says of the prediction ----


def orders(row: dict) -> list[str]:
    return [name for name in row["model"] if name in row["ms"]]


def fastest(row: dict) -> str:
    return min(orders(row), key=row["ms"].__getitem__)


def chosen(row: dict) -> str:
    least = min(row["model"][name]["ms"] for name in orders(row))
    return next(x for x in orders(row) if row["model"][x]["ms"] <= (1 + TIE) * least)


def excess(row: dict) -> float:
    return row["ms"][chosen(row)] / row["ms"][fastest(row)] - 1


def loss(row: dict) -> float:
    return 1 - row["ms"][fastest(row)] / row["ms"]["ascending"]


def errors(row: dict) -> list[float]:
    found = [row["model"][name]["ms"] / row["ms"][name] - 1 for name in orders(row)]
    return sorted(found, key=abs)


def ranks_of(values: list[float]) -> list[float]:
    """Ranks from 1; equal values share the middle of theirs."""
    order = sorted(values)
    return [statistics.mean(i for i, x in enumerate(order, 1) if x == value) for value in values]


def agreement(a: list[float], b: list[float]) -> float | None:
    """Spearman's rank correlation; None for fewer than three or for equal values."""
    if len(a) < 3 or len(set(a)) == 1 or len(set(b)) == 1:
        return None
    return statistics.correlation(ranks_of(a), ranks_of(b))


def ranks(row: dict) -> float | None:
    names = orders(row)
    return agreement([row["model"][x]["ms"] for x in names], [row["ms"][x] for x in names])


def column(head: str, of) -> Column:
    return Column(head, lambda row, suffix: None if suffix else of(row))


COLUMNS = [
    column("fastest", fastest),
    column("predicted", chosen),
    column("excess", lambda row: f"{excess(row):.1%}"),
    column("loss", lambda row: f"{loss(row):.1%}"),
    column("error", lambda row: f"{statistics.median(errors(row)):+.1%} {errors(row)[-1]:+.1%}"),
    column("ranks", ranks),
]


def remarks(rows: list[dict]) -> list[str]:
    said = []
    for mask in ("full", "causal"):
        mine = [row for row in rows if row["mask"] == mask]
        if not mine:
            continue
        worst = max(mine, key=loss)
        known = [x for row in mine if (x := ranks(row)) is not None]
        hits = sum(excess(row) <= NEAR for row in mine)
        mean = statistics.mean(abs(x) for row in mine for x in errors(row))
        said.append(
            f"{mask}: ascending loses up to {loss(worst):.1%} ({worst['name']}; the fastest gains "
            f"{1 / (1 - loss(worst)):.2f} x); the fastest or one within {NEAR:.0%} of it was predicted "
            f"in {hits} of {len(mine)} rows; error {mean:.1%} on average"
            + (f"; ranks {statistics.mean(known):+.2f} on average" if known else "")
        )
    return said


def plot(rows: list[dict]) -> str:
    """TFLOP/s of every order over the length, measured as dots and predicted as lines: a panel per
    head size and mask."""
    colours = dict(zip(ORDERS, COLOURS))
    wide, high, pad = 460, 300, 48
    tall = high - 2 * pad
    panels = sorted({(row["dim"], row["mask"]) for row in rows})
    lengths = sorted({row["seq"] for row in rows})
    step = (wide - 2 * pad) / max(1, len(lengths) - 1)

    def rate(row: dict, ms: float) -> float:
        return row["flop"]["plain"] / ms * 1e-9

    most = max(rate(row, x) for row in rows
               for x in [*row["ms"].values(), *(m["ms"] for m in row["model"].values())])  # fmt: skip
    out = []
    for n, (dim, mask) in enumerate(panels):
        x0, y0 = n % 2 * wide + pad, n // 2 * high + high - pad
        mine = [row for row in rows if (row["dim"], row["mask"]) == (dim, mask)]
        at = {row["seq"]: x0 + step * lengths.index(row["seq"]) for row in mine}
        out.append(f'<text x="{x0}" y="{y0 - tall - 10}">head size {dim}, {mask}; TFLOP/s</text>')
        out.append(f'<path d="M{x0} {y0 - tall}V{y0}H{x0 + wide - 2 * pad}" class="axis"/>')
        for mark in range(0, int(most) + 1, 200):
            out.append(f'<text x="{x0 - 30}" y="{y0 - tall * mark / most + 4:.0f}">{mark}</text>')
        out += [f'<text x="{x - 12:.0f}" y="{y0 + 16}">{seq}</text>' for seq, x in at.items()]
        for name, colour in colours.items():
            known = [row for row in mine if name in orders(row)]
            heights = [
                [
                    y0 - tall * rate(row, x) / most
                    for x in (row["model"][name]["ms"], row["ms"][name])
                ]
                for row in known
            ]
            points = " ".join(f"{at[row['seq']]:.1f},{y[0]:.1f}" for row, y in zip(known, heights))
            out.append(f'<polyline points="{points}" stroke="{colour}"/>')
            out += [f'<circle cx="{at[row["seq"]]:.1f}" cy="{y[1]:.1f}" r="3" fill="{colour}"/>'
                    for row, y in zip(known, heights)]  # fmt: skip
    height = (len(panels) + 1) // 2 * high + 30
    for n, (name, colour) in enumerate(colours.items()):
        out.append(f'<text x="{pad + 140 * n}" y="{height - 10}" fill="{colour}">{name}</text>')
    style = "text{font:12px sans-serif}.axis,polyline{fill:none;stroke-width:1.2}.axis{stroke:#888}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * wide} {height}">'
        f"<style>{style}</style>{''.join(out)}</svg>\n"
    )
