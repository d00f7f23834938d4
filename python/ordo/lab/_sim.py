"""Replay a schedule on a timeline, in integer time (ordo/lab/sim.h)."""

from __future__ import annotations

import functools
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np

from .._arrays import Array
from .._convert import fill, read
from .._structs import sized
from .._words import TABLES, Assign, Issue, Mask, Order, group_number, group_word
from . import _structs as s
from ._library import lib

Edge = Literal["start", "worker", "turn"]
_EDGES: tuple[Edge, ...] = ("start", "worker", "turn")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Chains of key tiles, what a step costs, and who runs what. Times have no unit.

    A step computes for `compute`, waits for its turn at the query tile, then reduces for
    `reduce`; the next contributor may start `latency` after that.
    """

    key_tiles: int
    query_tiles: int = 0  # 0 = what the ratio gives for equal lengths
    ratio_num: int = 0  # Bk/Bq; 0/0 = query_tiles/key_tiles, else 1
    ratio_den: int = 0
    mask: Mask = "full"
    heads: int = 1
    kv_heads: int = 0  # a chain takes the heads that share its keys; 0 = heads
    window: tuple[int, int] | None = None  # key tiles left and right of the diagonal; -1 = open
    workers: int = 0  # 0 = key_tiles
    order: Order | Literal["auto"] = "auto"  # auto: the least makespan
    group: int | Literal["waves"] = 0  # key tiles in a group of shift and symmetric; 0 = waves
    accumulators: int = 0  # 0 = 1
    issue: Issue = "default"
    section: int = 0  # heads a section of issue "key"; 0 = all
    assign: Assign = "default"
    compute: int = 10
    reduce: int = 5
    latency: int = 0
    compute_partial: int = 0  # cost of a partial tile; 0 = compute
    overlap: int = 0  # reductions in flight during the computation; 0 = serial
    record: bool = False  # keep every step, for Timeline.steps and Timeline.critical

    def auto(self) -> Order:
        """The order with the least makespan for this shape and these costs."""
        order = c_int()
        lib.ordo_schedule_auto(byref(self._c(1)), byref(order))
        return TABLES["order"].word(order.value)  # type: ignore[return-value]

    def _c(self, order: int) -> Any:
        left, right = self.window or (0, 0)
        changed = {
            "window": SimpleNamespace(on=self.window is not None, left=left, right=right),
            "order": TABLES["order"].word(order),
            "group": group_number(self.group),
            "workers": self.workers or self.key_tiles,
        }
        raw = sized(s.ordo_schedule)
        fill(raw, SimpleNamespace(**{**vars(self), **changed}))
        return raw


@dataclass(frozen=True)
class TimelineInfo:
    """What a replay took, what bounds it, and where workers waited."""

    order: Order  # executed
    order_asked: Order
    assign: Assign
    issue: Issue
    group: int | Literal["waves"]
    accumulators: int
    key_tiles: int
    query_tiles: int
    heads: int
    workers: int
    tasks: int  # live tile pairs, all heads
    makespan: int
    bound_work: int  # all work spread evenly, rounded up
    bound_chain: int  # longest chain that one worker must run alone
    bound_turns: int  # longest queue of contributors to one query tile
    lower_bound: int  # the largest of the three
    closed_form: int  # -1 if none is known for this schedule
    exact: bool  # False: extended from fewer heads
    utilization: float
    busy: int
    stall: int
    startup: int
    tail: int
    coresident: int  # chains needed together; 0 none
    valid: bool
    numeric_key: str
    note: str


class Critical(NamedTuple):
    """One step of the critical path: its index, and what bound it."""

    step: int
    edge: Edge


class Timeline:
    """A schedule, replayed."""

    def __init__(self, schedule: Schedule) -> None:
        order = schedule.auto() if schedule.order == "auto" else schedule.order
        raw = schedule._c(TABLES["order"].number("order", order))
        self.schedule = schedule
        self._handle = c_void_p()
        lib.ordo_timeline_create(byref(self._handle), byref(raw))

    def __del__(self, _destroy: Any = lib.ordo_timeline_destroy) -> None:
        _destroy(getattr(self, "_handle", None))

    @functools.cached_property
    def info(self) -> TimelineInfo:
        raw = s.ordo_timeline_info()
        lib.ordo_timeline_query(self._handle, byref(raw))
        info: TimelineInfo = read(TimelineInfo, raw, group=group_word(raw.group))
        return info

    @functools.cached_property
    def steps(self) -> Array:
        """Recorded steps, those waited for first, as a structured array.

        Fields: worker, head, key, query, turn; begin, ready, start, end (compute [begin, ready),
        wait [ready, start), reduce [start, end)); waited_for (an index, or -1); critical.
        """
        count = lib.ordo_timeline_step_count(self._handle)
        steps = (s.ordo_timeline_step * count)()
        for index in range(count):
            lib.ordo_timeline_step_at(self._handle, index, byref(steps[index]))
        kind = np.dtype(s.ordo_timeline_step)
        return np.frombuffer(steps, kind) if count else np.empty(0, kind)

    @functools.cached_property
    def critical(self) -> list[Critical]:
        """The critical path, last step first: why the makespan is what it is."""
        path: list[Critical] = []
        for index in range(lib.ordo_timeline_critical_count(self._handle)):
            raw = s.ordo_critical()
            lib.ordo_timeline_critical_at(self._handle, index, byref(raw))
            path.append(Critical(raw.step, _EDGES[raw.edge]))
        return path


def timeline(schedule: Schedule | None = None, **fields: Any) -> Timeline:
    """Replay a schedule, given whole, by its fields, or whole with some fields changed."""
    made = Schedule(**fields) if schedule is None else replace(schedule, **fields)
    return Timeline(made)
