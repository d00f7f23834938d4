"""Which method a call takes: an estimate of the time of both passes, by shape and link.

`ordo schedule --ranks` replays the methods in detail. The choice changes no bit.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ..._library import Error
from .._plans import machine_of
from ._job import Job


class Link(NamedTuple):
    """What a rank can do in a second."""

    bytes: float  # to send, while it receives as many
    flop: float

    @classmethod
    def of(cls, device: Any) -> Link:
        """By the machine file of a GPU; ORDO_LINK_GBS is another number of GB/s in one direction."""
        bandwidth, flop = 1e9, 1e11  # processes on one host, over gloo
        if device.type == "cuda":
            machine = machine_of(device.index)
            rate = machine["mma_flop_per_clk_bf16"] * machine["mma_efficiency"]
            flop = machine["workers"] * machine["clock_ghz"] * 1e9 * rate
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
        return cls(bandwidth, flop)


class Shape(NamedTuple):
    """Numbers of a job that the estimate needs."""

    ranks: int
    items: int  # sequences times key heads: what fills the pipe of a relay
    stages: int
    product: float  # flop of one of the matrix products, all ranks together
    q_bytes: float  # of all ranks; as many for o and dout
    kv_bytes: float  # of k and v together


def shape_of(job: Job, dims: tuple[int, int], width: int, layout: str) -> Shape:
    pairs = columns = rows = items = 0
    for d in job.documents:
        m, n = d.rows[1] - d.rows[0], d.columns[1] - d.columns[0]
        pairs += d.sequences * m * n
        rows, columns = rows + d.sequences * m, columns + d.sequences * n
        items += d.sequences * job.kv_heads
    visible = pairs / 2 if job.rules.mask != "full" else pairs
    if job.rules.left >= 0:
        visible = min(visible, rows * (job.rules.left + 1 + max(job.rules.right, 0)))
    dim = sum(dims) / 2
    return Shape(
        ranks=job.ranks.size,
        items=max(items, 1),
        stages=job.ranks.size * (2 if layout == "zigzag" else 1),
        product=2 * visible * job.heads * dim,
        q_bytes=rows * job.heads * dim * width,
        kv_bytes=2 * columns * job.kv_heads * dim * width,
    )


def gather_time(x: Shape, link: Link) -> float:
    """Seconds: nine products, keys twice, queries, o and dout once."""
    moved = (2 * x.kv_bytes + 3 * x.q_bytes) * (x.ranks - 1) / x.ranks
    return 9 * x.product / x.ranks / link.flop + moved / link.bytes


def relay_time(x: Shape, width: int, link: Link) -> float:
    """Seconds: seven products; five of them in a pipe that fills first."""
    forward = 2 * x.product / x.ranks / link.flop + x.kv_bytes / link.bytes
    packet = x.kv_bytes / x.items * (width + 4) / width / link.bytes
    step = max(5 * x.product / x.items / x.stages / link.flop, packet)
    return forward + (x.items * x.stages / x.ranks + x.stages - 1) * step


def choose(job: Job, dims: tuple[int, int], width: int, layout: str, link: Link) -> str:
    """heads where they can be divided: no rank computes or holds anything twice."""
    if job.kv_heads % job.ranks.size == 0:
        return "heads"
    x = shape_of(job, dims, width, layout)
    return "relay" if relay_time(x, width, link) < gather_time(x, link) else "gather"
