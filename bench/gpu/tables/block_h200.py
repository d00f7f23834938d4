"""A transformer block (ordo/lab/block.h) in every dropout mode on one H200, in one process: digests are
compared in every row, then the modes take turns, --rep milliseconds each. Groups:

    figure        12 shapes (2k to 32k rows, widths 4k to 16k), bf16 and fp8, forward: sequential,
                  fused, overlapped beside QKV and beside all, measured beside modelled
    figure13      the same shapes in bf16, as the paper's Figure 13 has them: QKV projection, keep bits
                  and attention alone, by ordo's products, for both generators; overlapped on a
                  second stream, and beside products that leave room
    paper         figure with the paper's generator (32 bits per element, compared): 8k x 4k with
                  7, 10, 5 and 3 rounds
    rounds        8k x 4k, bf16, forward, causal and full, and both passes, full, with ordo's products:
                  both generators with 3, 5, 7 and 10 rounds
    targets       8k x 4k, bf16, forward and backward, causal and full: what dropout costs
                  generation <= 1.0 % causal, 1.3 % full; dropout in all <= 4 %
    pipelined     8k x 4k, bf16, causal and full, forward and both passes, with ordo's products:
                  segments of rows
    joules        of a pass forward, 8k x 4k, bf16, full, with ordo's products, in every mode with both
                  generators: 3 s each
    peer          16k x 4k, full: the block with dropout over the same block with cuDNN's attention
                  without dropout, by PyTorch; <= 1.03
    interference  a product and the making of keep bits beside each other: as they are, with small
                  tiles, with an SM target; with the paper's bits; and a trace of both
    more          the paper's generator, 7 rounds, on the other shapes; the two largest shapes

    bench/gpu/run block_h200 --rows '^(figure|targets)' --budget 300 --model build/h200-block.json

--device cpu is a rehearsal: the same calls at 1/64 of the sizes on the CPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import block_run
import board
import driver
from show import Column, over, time_over

CPU = True
DEFAULTS = {"rep": 300}
SHAPES = [(seq, embed) for seq in (2048, 4096, 8192) for embed in (4096, 8192, 16384)]
SHAPES += [(16384, 4096), (16384, 8192), (32768, 4096)]
LARGE = [(16384, 16384), (32768, 12288)]
BOTH = ("bf16", "fp8")  # one after the other: an early end leaves whole shapes
FUSING = ("none", "sequential", "fused", "overlapped", "overlapped-qkv")
WAYS = {"as it is": {}, "small tiles": {"small_tiles": True}, "SM target 124": {"sm_target": 124}}
PLACEMENTS = ("stream", "beside")
JOULES_S = 3.0  # the board's counter of energy advances in steps
TITLES = {
    "figure13": "ms of QKV projection, bits and attention, bf16, ordo's products; hidden: share of the bits",
    "figure": "ms of a pass", "paper": "ms of a pass", "more": "ms of a pass",
    "rounds": "ms of a pass, 8k x 4k, bf16, ordo's products",
    "targets": "ms of a pass, 8k x 4k, bf16, forward and backward",
    "pipelined": "ms of a pass, 8k x 4k, bf16, ordo's products",
    "peer": "ms of a pass, 16k x 4k, full, forward and backward",
    "joules": "joules of a pass, 8k x 4k, bf16, ordo's products",
    "interference": "ms of the QKV projection and of keep bits, 8k x 4k; hidden: share of the bits",
}  # fmt: skip
PAIRS = [
    (slow, fast) for slow in ("sequential", "fused") for fast in ("overlapped-qkv", "overlapped")
]


# ---- rows ----


def row(group: str, seq: int, embed: int, precision: str = "bf16", **more: object) -> dict:
    made = {
        "group": group,
        "seq": seq,
        "embed": embed,
        "precision": precision,
        "generator": "sliced",
    }
    made |= {"rng_rounds": 7, "modes": list(FUSING)} | more
    mask = {True: "causal", False: "full", None: ""}[made.get("causal")]
    words = [f"{seq} x {embed}", precision, f"{made['generator']} {made['rng_rounds']}", mask]
    words += [made.get("way", ""), made.get("placement", "")]
    if made["group"] in ("pipelined", "rounds") and made.get("backward"):
        words.append("both passes")
    made["name"] = " ".join(word for word in words if word)
    return made


def rows() -> list[dict]:
    paper = partial(row, generator="compare")
    made = [row("figure", *shape, p) for shape in SHAPES for p in BOTH]
    for way in PLACEMENTS:
        own = {"gemm": "ordo", "placement": way}
        for shape in SHAPES:
            own["modes"] = ["sequential", "fused"]
            made += [of("figure13", *shape, **own) for of in (row, paper)]
    made += [paper("paper", 8192, 4096, p, rng_rounds=n) for n in (7, 10, 5, 3) for p in BOTH]
    own = {"gemm": "ordo", "modes": ["sequential", "fused", "overlapped"]}
    passes = [{"causal": False}, {"causal": True}, {"causal": False, "backward": True}]
    made += [
        of("rounds", 8192, 4096, rng_rounds=n, **own, **more)
        for more in passes for of in (row, paper) for n in (7, 3, 5, 10)
    ]  # fmt: skip
    both = {"backward": True, "modes": list(block_run.MODES)}
    divided = {"modes": ["none", "sequential", "overlapped", "pipelined"], "gemm": "ordo"}
    again = divided | {"backward": True}
    for group, more in (("targets", both), ("pipelined", divided), ("pipelined", again)):
        made += [row(group, 8192, 4096, causal=causal, **more) for causal in (True, False)]
    loads = {"stream": ["sequential", "fused", "overlapped"], "beside": ["overlapped"]}
    for of in (row, paper):
        for way, modes in loads.items():
            first = of is row and way == "stream"  # what only one row needs to have
            more = ["none", "pipelined"] if first else []
            own = {"gemm": "ordo", "placement": way, "modes": more + modes}
            made.append(of("joules", 8192, 4096, **own))
    made.append(row("peer", 16384, 4096, backward=True, modes=["sequential", "overlapped"]))
    one = {"modes": ["sequential"]}
    made += [
        row("interference", 8192, 4096, p, way=way, **WAYS[way], **one)
        for way in WAYS
        for p in BOTH
    ]
    made.append(paper("interference", 8192, 4096, **one))
    made += [paper("more", *shape, p) for shape in SHAPES if shape != (8192, 4096) for p in BOTH]
    return made + [row("more", *shape, p) for shape in LARGE for p in BOTH]


# ---- what is measured ----


def load(args):
    if args.device == "cuda":
        driver.need_device()
    if not args.no_build:
        driver.build("product")
    try:
        block_run.load()
    except ImportError as missing:
        raise driver.Skip(missing) from missing
    if why := block_run.why_not(args.device):
        raise driver.Skip(why)
    return board.Cpu() if args.device == "cpu" else board.Device()


def enter(contest, row: dict) -> None:
    made = contest.attempt("block", lambda: block_run.Block(row, contest.board.name))
    if made is None:
        return
    block = contest.stack.enter_context(made)
    try:
        contest.notes["digests"] = block.digests()
    except block_run.Wrong as error:
        contest.wrong["digests"] = str(error)
        return
    seconds = 1e-3 * contest.options.rep
    if row["group"] in ("interference", "figure13"):
        of = beside if row["group"] == "interference" else figure13
        contest.measured |= contest.attempt("interference", partial(of, contest, block, seconds)) or {}
        return
    if row["group"] == "joules":
        contest.measured |= contest.attempt("joules", partial(joules, contest, block)) or {}
        return
    details = contest.notes["details"] = {}

    def turn(mode: str) -> list[float]:
        details[mode] = block.times(seconds, (mode,))[mode]
        return [details[mode]["ms"]]

    for mode in row["modes"]:
        contest.clock(mode, partial(turn, mode))
    if row["group"] == "targets" and contest.board.name == "cuda":
        contest.clock("bits", lambda: [block.interference(seconds)["bits_ms"]])
    if row["group"] == "peer":
        for name, p in (("cudnn", 0.0), ("cudnn_dropout", 0.1)):
            ask = partial(peer().ask, row["seq"], row["embed"], p)
            if contest.attempt(name, partial(ask, 0.1)):
                contest.clock(name, partial(ask, seconds))
    if row["group"] == "figure":
        contest.notes["modelled"] = modelled(row)


def beside(contest, block, seconds: float) -> dict:
    found = block.interference(seconds)
    # Its kernel makes ordo's own bits.
    trace = block.trace() if block.what["generator"] == "sliced" else {"inside": None}
    contest.notes |= {"interference": found, "trace": trace}
    said = {name: found[f"{name}_ms"] for name in ("product", "bits", "then", "both")}
    for name in ("product_slowdown", "bits_slowdown", "hidden", "dropping_alone"):
        said[name] = percent(found[name])
    return said | {"inside": percent(trace["inside"]), "algorithm": found["algorithm"]}


def figure13(contest, block, seconds: float) -> dict:
    """Milliseconds of the first product, the bits and attention in each mode."""
    found = contest.notes["interference"] = block.interference(seconds)
    ms = {name: found[f"{name}_ms"] for name in ("product", "then", "both", "attention")}
    said = {"none": ms["product"] + ms["attention"], "sequential": ms["then"] + found["dropping_ms"]}
    if found["fused_ms"]:
        said["fused"] = ms["product"] + found["fused_ms"]
    return said | {"overlapped": ms["both"] + found["dropping_ms"], "hidden": percent(found["hidden"])}


def joules(contest, block) -> dict:
    if contest.board.name == "cpu":
        raise RuntimeError("a counter of energy: only cuda has one")
    energy = board.Energy()
    found = {mode: block.joules(JOULES_S, mode, energy) for mode in block.modes}
    contest.notes["details"] = found
    return {mode: each["joules"] for mode, each in found.items()}


class Peer:
    """PyTorch in a separate process: it brings its own cuBLASLt."""

    def __init__(self) -> None:
        program = [sys.executable, str(driver.ROOT / "bench" / "gpu" / "block_peer.py")]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True)

    def ask(self, seq: int, embed: int, dropout: float, seconds: float) -> list[float]:
        try:
            print(seq, embed, dropout, seconds, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        said = json.loads(line) if line else {"refused": "the process with PyTorch has ended"}
        if "refused" in said:
            raise RuntimeError(said["refused"])
        return [said["ms"]]


peers: list = []


def peer() -> Peer:
    if not peers:
        peers.append(Peer())
    return peers[0]


def close() -> None:
    while peers:
        ended = peers.pop().process
        ended.kill()
        ended.wait()


def ordo(*words: object) -> dict:
    """What the command says as JSON; {} if it fails."""
    command = [str(driver.ROOT / "build" / "bin" / "ordo"), *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def modelled(row: dict) -> dict:
    """Milliseconds by mode, as the model predicts them."""
    shape = ("--seq", row["seq"], "--embed", row["embed"], "--precision", row["precision"])
    said = ordo("model", "block", "--machine", "h200", *shape, "--overlap", "all")
    ms = {mode: said.get(f"{mode}_ms") for mode in ("none", "sequential", "fused", "overlapped")}
    # With this option the model prices the first product and attention alone: take the gain.
    part = ordo("model", "block", "--machine", "h200", *shape, "--overlap", "qkv")
    if ms["sequential"] and "sequential_ms" in part:
        gain = part["sequential_ms"] - part["overlapped_ms"]
        ms["overlapped-qkv"] = ms["sequential"] - gain
    return ms


# ---- what is said ----


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def model_ratio(slow: str, fast: str) -> Column:
    def of(row: dict, suffix: str) -> float | None:
        ms = row.get("modelled", {})
        return None if suffix else over(ms.get(slow), ms.get(fast))

    return Column(f"model: {slow} / {fast}", of)


MODES = [time_over(f"{slow} / {fast}", slow, fast) for slow, fast in PAIRS]
def part_over(slow: str) -> Column:
    """Sequential or fused over overlapped, where figures are milliseconds."""

    def of(row: dict, suffix: str) -> float | None:
        ms = row["figures"]
        return None if suffix else over(ms.get(slow), ms.get("overlapped"))

    return Column(f"{slow} / overlapped", of)


COLUMNS = {
    "figure13": [part_over("sequential"), part_over("fused")],
    "figure": MODES + [model_ratio(slow, fast) for slow, fast in PAIRS],
    "paper": MODES,
    "rounds": [time_over(f"{mode} / sequential", mode, "sequential") for mode in ("fused", "overlapped")],
    "more": MODES,
    "pipelined": [time_over("sequential / pipelined", "sequential", "pipelined")],
    "peer": [
        time_over(f"{mode} / cudnn", mode, "cudnn", must=1.03)
        for mode in ("sequential", "overlapped")
    ],
}


def costs(row: dict) -> dict[str, tuple[float, float | None]]:
    """What dropout costs by mode, and of it the generation, over the block without."""
    ms = row["ms"]
    given = ms["sequential"] - ms["bits"] if "bits" in ms else None  # as if the bits cost nothing
    return {
        mode: (ms[mode] / ms["none"] - 1, None if given is None else (ms[mode] - given) / ms["none"])
        for mode in row["modes"] if mode != "none" and mode in ms
    }  # fmt: skip


def remarks(rows: list[dict]) -> list[str]:
    return [
        f"{row['name']}, {mode}: dropout {percent(dropout)}, generation {percent(generation)}"
        for row in rows if row["group"] == "targets" and row["ms"]
        for mode, (dropout, generation) in costs(row).items()
    ]  # fmt: skip


def model_rows(row: dict) -> list[dict]:
    """Times as `ordo model validate` reads them."""
    if row["group"] in ("peer", "interference", "joules"):
        return []
    training = row.get("backward", False)
    part = row["group"] == "figure13"
    ms = {mode: x for mode, x in row["figures"].items() if mode in FUSING} if part else row["ms"]
    return [
        {"kernel": "training" if training else "part" if part else "block"}
        | {key: row[key] for key in ("precision", "seq", "embed")}
        | ({"causal": row["causal"]} if "causal" in row else {})
        | {"rounds": row["rng_rounds"], "bits": 32 if row["generator"] == "compare" else 8}
        | ({"placement": row["placement"]} if part else {})
        | {"generator": row["generator"], "mode": mode, "state": "steady", "seconds": x * 1e-3}
        for mode, x in ms.items()
        if mode != "bits" and not (training and mode == "overlapped-qkv")
    ]
