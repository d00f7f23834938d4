"""Times of every kind of attention kernel on one H200, for the model's prices.

Both passes without dropout (none), with keep bits given and with keep bits made inside (p = 0.1),
causal and full, 1k to 16k rows, 16k tokens and a width of 2048; and the keep bits by themselves.
Rows of the fewest rows of a sequence come first, so that a run that ends early has every kind.

    bench/gpu/run prices_h200 --json build/prices.json --model build/h200-prices.json
    build/bin/ordo model validate build/h200-prices.json --kinds --most 5
    lab/bench/fit_prices build/h200-prices.json --most 5

Two minutes for each of --rounds. The second command prints the errors of each kind with the
constants as they are. The third fits the constants of each kind to half of its rows, writes them into
lab/src/price/price_constants.c, and prints the errors of the other half.
"""

from __future__ import annotations

from functools import partial

import shapes
from show import time_over

DIMS = (64, 96, 128, 192, 256, 512)  # backward passes above 128 run in chains, with dropout too
SEQS = (1024, 2048, 4096, 8192, 16384)
GENERATOR = {"rounds": 7, "bits": 8, "generator": "sliced"}  # the default one
DEFAULTS = {"rounds": 1, "rep": 40}
P = 0.1
KERNELS = {"fwd": "attention", "bwd": "attention-backward"}
COLUMNS = [time_over("given / none", "given", "none"), time_over("made / none", "made", "none")]


def rows() -> list[dict]:
    made = []
    for seq in SEQS:
        passes = [(dim, mask) for dim in DIMS for mask in ("full", "causal")]
        made += [shapes.row("", f"{seq} {dim} {mask}", seq, dim, mask) for dim, mask in passes]
        made.append(shapes.row("", f"{seq} keep bits", seq, 128, "full", bits=True))
    return made


def enter(contest, row: dict) -> None:
    import attention_gpu as gpu

    plain, dropped = shapes.shape_of(row), shapes.shape_of(row, p=P)
    bits = contest.attempt("bits", lambda: gpu.Bits(gpu.problem_of(dropped), dropped))
    if "bits" in row:  # apart: they draw less power than a pass
        if bits:
            contest.add("rng", bits.make)
        return
    given, flop = gpu.inputs(plain), plain.both_flop
    contest.both("none", partial(gpu.Ours, plain, given), flop)
    if bits:
        bits.make()
        contest.both("given", partial(gpu.Ours, dropped, given, bits), flop)
    contest.both("made", partial(gpu.Ours, dropped, given), flop)


def model_rows(row: dict) -> list[dict]:
    """As lab/cli/model_measured.c reads them."""
    sizes = {name: row[name] for name in ("batch", "heads", "kv_heads", "seq")}
    case = {**sizes, "head_dim": row["dim"], "causal": row["mask"] == "causal"}
    made = []
    for name, ms in row["ms"].items():
        keep, _, which = name.partition("_")
        if keep == "rng":
            of_bits = {x: row[x] for x in ("batch", "heads", "seq")}
            made.append({"kernel": "rng", **GENERATOR, **of_bits, "seconds": 1e-3 * ms})
            continue
        kind = {"kernel": KERNELS[which], "precision": "bf16", **case, "keep": keep}
        made.append({**kind, **(GENERATOR if keep == "made" else {}), "seconds": 1e-3 * ms})
    return made
