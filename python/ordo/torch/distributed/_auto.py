"""Which method a call takes: an estimate of the time of both passes, by shape and link.

`ordo schedule --ranks` replays the methods in detail. The choice changes no bit.
"""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

from ..._library import Error
from ..._plan import Plan
from .._plans import machine_of
from ._job import Job


TILE = 128  # rows or columns of a unit of work
# On one H200 (docs/results/gpu.md, "Ranks in one process" and "Backward pass in parts"):
APART = 1.25  # time of a product in passes of dq alone, and of dk and dv alone, over one of a whole
CUT = 330  # a part that carries sums costs as much as this many rows more


class Link(NamedTuple):
    """What a rank can do in a second."""

    bytes: float  # to send, while it receives as many
    flop: float
    workers: float = 0  # multiprocessors, which a pass has to fill; 0: any pass runs at full speed

    def filled(self, units: float) -> float:
        """The share of the workers' time that so many units of equal length use."""
        if self.workers == 0 or units <= 0:
            return 1
        units = math.ceil(units)
        return units / (math.ceil(units / self.workers) * self.workers)

    @classmethod
    def of(cls, device: Any) -> Link:
        """By the machine file of a GPU; ORDO_LINK_GBS is another number of GB/s in one direction."""
        bandwidth, flop, workers = 1e9, 1e11, 0.0  # processes on one host, over gloo
        if device.type == "cuda":
            machine = machine_of(device.index)
            rate = machine["mma_flop_per_clk_bf16"] * machine["mma_efficiency"]
            workers = machine["workers"]
            flop = workers * machine["clock_ghz"] * 1e9 * rate
            try:
                bandwidth = machine["nvlink_bytes_per_s"] / 2
            except KeyError:
                bandwidth = 2.5e10
        given = os.environ.get("ORDO_LINK_GBS")
        if given is not None:
            try:
                bandwidth = float(given) * 1e9
            except ValueError:
                bandwidth = 0
            if not 0 < bandwidth < float("inf"):
                raise Error("argument", f"ORDO_LINK_GBS {given!r}: expected a number above 0")
        return cls(bandwidth, flop, workers)


class Shape(NamedTuple):
    """Numbers of a job that the estimate needs."""

    ranks: int
    items: int  # sequences times key heads: what fills the pipe of a relay
    stages: int
    product: float  # flop of one of the matrix products, all ranks together
    q_bytes: float  # of all ranks; as many for o and dout
    kv_bytes: float  # of k and v together
    kv_heads: int
    group: int  # query heads of a key head
    rows: float  # of all ranks and sequences
    columns: float
    sequences: int
    apart: bool  # whole passes compute dq apart, too: seven products, and half of a tile in a unit


def shape_of(job: Job, plan: Plan, width: int, layout: str) -> Shape:
    """`plan`: of any rows of the job. Its form, like its tiles, does not depend on their number."""
    pairs = columns = rows = sequences = 0
    for d in job.documents:
        m, n = d.rows[1] - d.rows[0], d.columns[1] - d.columns[0]
        pairs += d.sequences * m * n
        rows, columns = rows + d.sequences * m, columns + d.sequences * n
        sequences += d.sequences
    visible = pairs / 2 if job.rules.mask != "full" else pairs
    if job.rules.left >= 0:
        visible = min(visible, rows * (job.rules.left + 1 + max(job.rules.right, 0)))
    dim = (plan.problem.head_dim + plan.problem.v_head_dim) / 2
    return Shape(
        ranks=job.ranks.size,
        items=max(sequences * job.kv_heads, 1),
        stages=job.ranks.size * (2 if layout == "zigzag" else 1),
        product=2 * visible * job.heads * dim,
        q_bytes=rows * job.heads * dim * width,
        kv_bytes=2 * columns * job.kv_heads * dim * width,
        kv_heads=job.kv_heads,
        group=job.heads // job.kv_heads,
        rows=max(rows, 1),
        columns=columns,
        sequences=max(sequences, 1),
        apart=plan.info.backward_form == "apart",
    )


def gather_products(x: Shape, link: Link) -> float:
    """The time of all ranks' passes, in products that fill the workers: nine of them."""
    rows, columns = x.rows / x.ranks / TILE, x.columns / TILE
    slower = APART if link.workers and not x.apart else 1
    return (
        2 / link.filled(rows * x.kv_heads * x.group)
        + 3 * slower / link.filled(columns * x.kv_heads)
        + 4 * slower / link.filled(columns / x.ranks * x.kv_heads * (2 if x.apart else 1))
    )


def relay_products(x: Shape, link: Link) -> tuple[float, float]:
    """The same of the forward pass, which takes one key head at a time, and of the packets, which
    hold one key head of one sequence: five products, or seven."""
    forward = 2 / link.filled(x.rows / x.ranks / TILE * x.group)
    cut = CUT * x.stages * x.sequences / x.rows if link.workers else 0
    backward = 7 if link.workers and x.apart else 5
    return forward, backward * (1 + cut) / link.filled(x.columns / x.sequences / TILE)


def gather_time(x: Shape, link: Link) -> float:
    """Seconds: the passes, keys twice, queries, o and dout once."""
    moved = (2 * x.kv_bytes + 3 * x.q_bytes) * (x.ranks - 1) / x.ranks
    return gather_products(x, link) * x.product / x.ranks / link.flop + moved / link.bytes


def relay_time(x: Shape, width: int, link: Link) -> float:
    """Seconds: the forward pass, then packets in a pipe that fills first."""
    first, then = relay_products(x, link)
    forward = first * x.product / x.ranks / link.flop + x.kv_bytes / link.bytes
    packet = x.kv_bytes / x.items * (width + 4) / width / link.bytes
    step = max(then * x.product / x.items / x.stages / link.flop, packet)
    return forward + (x.items * x.stages / x.ranks + x.stages - 1) * step


def choose(job: Job, plan: Plan, width: int, layout: str, link: Link) -> str:
    """heads where they can be divided: no rank computes or holds anything twice."""
    if job.kv_heads % job.ranks.size == 0:
        return "heads"
    x = shape_of(job, plan, width, layout)
    return "relay" if relay_time(x, width, link) < gather_time(x, link) else "gather"
