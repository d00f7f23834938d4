"""Bytes that the forms of attention move on one H200, by hardware counters, and the I/O model's
count.

Every row is one pass of build/bench/traffic: 16k tokens in sequences of 8k, full mask. Figures are
bytes per score (pair of query and key). Two levels are compared, each with its own counters:

    sm      counters: bytes that cross between the multiprocessors and the crossbar (Nsight Compute,
            l1tex__m_xbar2l1tex_read_bytes and l1tex__m_l1tex2xbar_write_bytes), summed over the
            kernels of the pass.
            model: what `ordo io --crossover` prints, bytes between L2 and shared memory with the
            tiles that fit best; and own, the same count with the tiles of the kernels, plus what
            is read and written once per row: tensors, statistics, begin and end kernels
    l2      for information: 32 times the sectors that arrive at the slices of L2
            (lts__t_sectors_srcunit_tex). Requests of several multiprocessors for one line are merged
            before they arrive, so these are fewer
    hbm     counters: dram__bytes_read + dram__bytes_write (Nsight Compute); hbm_driver: the share of
            the memory's bandwidth that the driver counts while the pass runs again and again (NVML's
            performance monitoring, calibrated by the rows of streams, whose bytes are known).
            replay: what `ordo io --hbm` counts: the kernels of the pass replayed through L2

Backward passes by phases run in chains up to head size 256. A row with two head sizes, 192/128, has
that of values after that of queries and keys. The bar is 10 % between own or replay and counters.
A machine may permit neither, one or both of the two sources: the rows say which, and why not.

    bench/gpu/run counters_h200 --json build/h200-counters.json      about a minute
    build/bin/ordo io --crossover --counted build/h200-counters.json
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import time
from functools import lru_cache

import board
import driver
import gpm
from show import Column, over

TRAFFIC, COMMAND = (
    driver.ROOT / "build" / "bench" / "traffic",
    driver.ROOT / "build" / "bin" / "ordo",
)
TOKENS, CHANNELS, SEQ, SECTOR, BAR = 16384, 2048, 8192, 32, 0.10
CHAIN_MOST = 256  # the largest head size of chains
IN, OUT = "l1tex__m_xbar2l1tex_read_bytes", "l1tex__m_l1tex2xbar_write_bytes"
L2, READ, WRITE = "lts__t_sectors_srcunit_tex", "dram__bytes_read", "dram__bytes_write"
METRICS = [
    IN, OUT, L2, READ, WRITE, "lts__t_sectors_op_read", "lts__t_sectors_op_write",
    "lts__t_sectors_op_red", "lts__t_sectors_srcunit_ltcfabric", "lts__t_bytes",
    "gpu__time_duration",
]  # fmt: skip
ROWS = (
    ("flash", "backward", 128),
    ("phase", "backward", 256),
    ("phase", "backward", 512),
    ("phase", "forward", 512),
    ("flash", "backward", 64),
    ("phase", "backward", 384),
    ("phase", "backward", 576),
    ("phase", "forward", 320),
    ("phase", "backward", 192),
    ("phase", "backward", 128),
    ("phase", "backward", 192, 128),
)
STREAMS = ("read", "write", "l2")
SECONDS = 1.0  # for which NVML's counters watch a row

# ---- the count ----


def phase_scores(dim: int) -> float:
    """Both operands, once per tile of 128 x 256 scores, for each score."""
    return 2 * dim * (1 / 128 + 1 / 256)


def phase_product(dim: int) -> float:
    """Scores once per 256 columns of the result, and the other operand once per 128 rows."""
    return 2 * -(-dim // 256) + 2 * dim / 128


def chains(dim: int, v_dim: int) -> float:
    """Backward by phases in chains, without begin: Q, dO and the statistics of a row per 64 keys,
    dS stored, K and V once, dK, dV; then the product for dQ: dS, K per 128 queries, dQ. The kernels
    copy all columns that they have room for, and those beyond the head size arrive as zeros."""
    both = dim + v_dim
    most = 192 if max(dim, v_dim) <= 192 else 256
    copied = most + (128 if v_dim <= 128 else most)
    keys = 2 * copied / 64 + 8 / 64 + 2 + (2 + 2) * both / SEQ
    return keys + phase_product(dim) + 2 * dim / SEQ


def own(form: str, which: str, dim: int, of_values: int | None = None) -> float:
    """Bytes per score of the multiprocessors, with the tiles of the kernels."""
    begin, gradients = 2 + 2, 2 + 2 + 2  # o, dout; dq, dk, dv: per row and column
    if form == "phase" and which == "backward" and dim <= CHAIN_MOST:
        of_values = of_values or dim
        return chains(dim, of_values) + begin * of_values / SEQ
    if form == "flash":  # Q, dO; dQ added: per key tile of 128; and the statistics of a row
        # K, V; dQ's sums stored, which the count per score has, and read
        return (2 + 2 + 4) * dim / 128 + 8 / 128 + (begin + 4 + gradients + 4) * dim / SEQ
    if which == "forward":  # P stored, then read by one product; factors of 256 scores; O
        return phase_scores(dim) + phase_product(dim) + 2 + 8 / 256 + 2 * dim / SEQ
    # P and dS stored
    return 2 * phase_scores(dim) + 3 * phase_product(dim) + 2 + 2 + (begin + gradients) * dim / SEQ


@lru_cache(None)
def ordo(*words: str) -> dict:
    """What `ordo io` says."""
    command = [str(COMMAND), "io", *words, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def replayed(row: dict) -> dict:
    """The row as the I/O model replays it; its "bytes_per_score" are those of HBM."""
    shape = {"pass": row["pass"], "algorithm": row["form"], "n": SEQ, "d": row["dim"],
             "dv": row["v_dim"], "heads": CHANNELS // row["dim"], "batch": TOKENS // SEQ}  # fmt: skip
    return ordo("--hbm", *(word for name, x in shape.items() for word in (f"--{name}", str(x))))


def model_of() -> dict:
    """Bytes per score by form and head size, as the I/O model prints them."""
    said = ordo("--crossover", "--machine", "h200")
    return {row["head_dim"]: row["bytes_per_score"] for row in said["rows"]}


def modelled(row: dict) -> float | None:
    """The model has backward passes with equal head sizes."""
    if row["pass"] != "backward" or row["v_dim"] != row["dim"]:
        return None
    return model_of().get(row["dim"], {}).get(row["form"])


def own_of(row: dict) -> float | None:
    if row["form"] == "apart":  # in files of before: kernels that are gone
        return None
    return own(row["form"], row["pass"], row["dim"], row["v_dim"])


def rows() -> list[dict]:
    made: list[dict] = [{"group": "streams", "name": name} for name in STREAMS]
    for form, which, dim, *values in ROWS:
        v_dim = values[0] if values else dim
        dims = str(dim) if dim == v_dim else f"{dim}/{v_dim}"
        made.append(
            {"group": "", "name": f"{form} {which} {dims}", "form": form, "pass": which, "seq": SEQ,
             "mask": "full", "dim": dim, "v_dim": v_dim, "scores": TOKENS * SEQ * (CHANNELS // dim)}
        )  # fmt: skip
    return made


def words_of(row: dict) -> list[str]:
    """As build/bench/traffic takes it."""
    return row["name"].split()


# ---- Nsight Compute ----


def parse_ncu(text: str) -> list[dict]:
    """Kernels of `ncu --csv --page raw --print-units base`: name and values by metric."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise OSError(why_not(text))
    table = list(csv.reader(lines[start:]))
    head, kernels = table[0], []
    for line in table[1:]:
        cells = dict(zip(head, line))
        if len(line) != len(head) or not cells["ID"]:  # what the program prints; units
            continue
        values = {}
        for name in head:
            metric, dot, how = name.partition(".")
            text = cells.get(name, "").replace(",", "")
            if dot and how == "sum" and re.fullmatch(r"[0-9.eE+]+", text):
                values[metric] = float(text)
        kernels.append({"kernel": cells["Kernel Name"].split("(")[0], "values": values})
    return kernels


def why_not(text: str) -> str:
    """Why a profiler gave nothing, from what it printed."""
    if "ERR_NVGPUCTRPERM" in text:
        return "ERR_NVGPUCTRPERM: this machine does not permit performance counters"
    said = [x for x in text.splitlines() if x.startswith(("==ERROR==", "skipped:", "status"))]
    return "; ".join(said[:3]) or "the profiler printed no kernels: " + text[-300:].strip()


def profiler() -> list[str]:
    """Path of ncu."""
    found = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not os.access(found, os.X_OK):
        raise OSError("Nsight Compute (ncu) is not installed")
    return [found]


@lru_cache(None)
def known_metrics(ncu: str) -> list[str]:
    """Those of METRICS that this profiler has: it ends with an error at others."""
    said = subprocess.run(
        [ncu, "--query-metrics", "--chips", "gh100"], capture_output=True, text=True, timeout=60
    ).stdout
    found = [x for x in METRICS if re.search(rf"\b{x}\b", said)]
    return [f"{x}.sum" for x in found or METRICS[:5]]


def profile(row: dict) -> list[dict]:
    """Kernels of the row."""
    ncu = profiler()
    command = [
        *ncu, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off",
        "--cache-control", "none", "--clock-control", "none",
        "--metrics", ",".join(known_metrics(ncu[0])), str(TRAFFIC), *words_of(row),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{row['name']}: ncu ran past {error.timeout:.0f} s") from error
    return parse_ncu(done.stdout + done.stderr)


def total(kernels: list[dict], metric: str) -> float | None:
    values = [x["values"][metric] for x in kernels if metric in x["values"]]
    return sum(values) if values else None


# ---- NVML ----


@lru_cache(None)
def counters():
    return gpm.Counters()


def steady(row: dict) -> dict:
    """Counters while the program runs, and its milliseconds per pass."""
    source = counters()
    child = subprocess.Popen(
        [str(TRAFFIC), *words_of(row), str(SECONDS + 0.4)], stdout=subprocess.PIPE, text=True
    )
    said, values = [], None
    for line in child.stdout:
        said.append(line.strip())
        if said[-1] == "ready":
            time.sleep(0.2)
            values = source.over(SECONDS)
    if child.wait() != 0 or values is None:
        raise OSError(f"{row['name']}: {' '.join(said[-2:])}")
    made = {"counters": values, "ms": float(said[-1].split()[3])}
    if said[0].startswith("bytes "):
        made["bytes"] = int(said[0].split()[1])
    return made


def value(run: dict, metric: int) -> float | None:
    found = run["counters"].get(str(metric))
    return found["value"] if found else None


def full_rate(streams: dict) -> float | None:
    """Bytes per millisecond at 100 % of the memory's bandwidth, by streams of known bytes."""
    rates = []
    for name in ("read", "write"):
        run = streams.get(name, {}).get("nvml")
        if run and value(run, gpm.DRAM):
            rates.append(run["bytes"] / run["ms"] / value(run, gpm.DRAM) * 100)
    return sum(rates) / len(rates) if rates else None


# ---- figures ----


def figures(row: dict, streams: dict) -> dict:
    """Bytes per score by the counters: sm, l2, hbm (Nsight Compute) and hbm_driver (NVML)."""
    made: dict = {"sm": None, "l2": None, "hbm": None, "hbm_driver": None}
    if kernels := row.get("ncu"):
        for level, metrics, unit in (
            ("sm", (IN, OUT), 1), ("l2", (L2,), SECTOR), ("hbm", (READ, WRITE), 1)
        ):  # fmt: skip
            values = [total(kernels, x) for x in metrics]
            if None not in values:
                made[level] = sum(values) * unit / row["scores"]
    full, run = full_rate(streams), row.get("nvml")
    if full and run and value(run, gpm.DRAM) is not None:
        made["hbm_driver"] = full * value(run, gpm.DRAM) / 100 * run["ms"] / row["scores"]
    return made


def ratio(counted: float | None, expected: float | None) -> str | None:
    off = over(counted, expected)
    return None if off is None else f"{off:.3f}" + ("" if abs(off - 1) <= BAR else " OFF")


def load(args):
    driver.need_device()
    if not args.no_build:
        driver.build("ordo-cli", "bench_traffic")
    if not TRAFFIC.exists():
        raise driver.Skip(f"{TRAFFIC} is not built")
    return board.Device()


def measure(contest, row: dict) -> dict:
    made: dict = {"refused": {}}
    for name, of in (("ncu", profile), ("nvml", steady)):
        try:
            made[name] = of(row)
        except (OSError, subprocess.TimeoutExpired) as error:
            made["refused"][name] = str(error)
    if len(made["refused"]) == 2:
        raise driver.Skip("; ".join(made["refused"].values()))
    made["figures"] = {} if row["group"] else figures({**row, **made}, streams_of(contest.before))
    return made


def streams_of(rows: list[dict]) -> dict:
    return {row["name"]: row for row in rows if row["group"] == "streams"}


def column(head: str, of) -> Column:
    return Column(head, lambda row, suffix: None if suffix else of(row))


def counted(row: dict, level: str) -> float | None:
    return row["figures"].get(level)


COLUMNS = {
    "": [
        column("SM: model", modelled),
        column("own", own_of),
        column("counted ÷ model", lambda row: ratio(counted(row, "sm"), modelled(row))),
        column("÷ own", lambda row: ratio(counted(row, "sm"), own_of(row))),
        column("HBM: replay", lambda row: replayed(row)["bytes_per_score"]),
        *(
            column(f"{x} ÷ replay", lambda row, x=x: ratio(counted(row, x), replayed(row)["bytes_per_score"]))
            for x in ("hbm", "hbm_driver")
        ),
    ]
}  # fmt: skip


def remarks(rows: list[dict]) -> list[str]:
    """What the streams moved, and what each kernel did."""
    said = []
    for name, stream in streams_of(rows).items():
        if kernels := stream.get("ncu"):
            read, write, *sm = (total(kernels, x) or 0 for x in (READ, WRITE, IN, OUT))
            said.append(f"{name}, by ncu: read {read / 2**30:.3f}, written {write / 2**30:.3f}, "
                        f"SM {sum(sm) / 2**30:.3f} GiB")  # fmt: skip
        if run := stream.get("nvml"):
            shares = ", ".join(f"{x['name'] or key} {x['value']:.4g} {x['unit']}".strip()
                               for key, x in run["counters"].items())  # fmt: skip
            said.append(
                f"{name}, by NVML: {run['bytes'] / run['ms'] * 1e-9:.3f} TB/s known; {shares}"
            )
    for row in rows:
        for x in row.get("ncu", []) if not row["group"] else ():
            per = [x["values"].get(m, 0) / row["scores"] for m in (IN, OUT, READ, WRITE)]
            kernel = x["kernel"].removeprefix("void ")
            said.append(f"{row['name']}: {kernel}: SM {per[0] + per[1]:.3f}, HBM read {per[2]:.3f}, "
                        f"written {per[3]:.3f}")  # fmt: skip
    return said
