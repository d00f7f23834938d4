"""Tiles and the order of every sum, as data (ordo/plan.h)."""

from __future__ import annotations

import ctypes
import functools
import warnings
from ctypes import byref, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np

from . import _structs as s
from ._convert import fill, integer, read, text
from ._library import Error, lib
from ._machine import Machine
from ._problem import Problem, from_c, to_c
from ._words import (
    Assign,
    Backend,
    DropoutMode,
    Form,
    Issue,
    Order,
    Promise,
    group_number,
    group_word,
    promises,
)

WORKSPACE_ALIGN = 256


class Tile(NamedTuple):
    """Rows x columns."""

    q: int
    k: int


@dataclass(frozen=True)
class PlanInfo:
    """What a plan fixes, and what it promises."""

    backend: Backend
    forward_tile: Tile
    backward_tile: Tile
    query_tiles: int  # backward tiles of the longest sequence
    key_tiles: int
    order: Order  # executed
    order_asked: Order  # equal, unless the shape made ordo replace it
    group: int | Literal["waves"]  # 0 where the order has none
    issue: Issue
    section: int
    assign: Assign
    workers: int
    coresident: int  # chains that must be resident together; 0 = waits only on earlier work
    forward_workspace_bytes: int
    backward_workspace_bytes: int
    kept: tuple[Promise, ...]  # levels of the promise
    not_kept: tuple[Promise, ...]
    dropout_rounds: int
    dropout_bits: int
    dropout_threshold: int  # keep if draw < threshold
    dropout_p_used: float
    numeric_key: str  # same key, same bits
    note: str  # what was replaced and why, which levels fell and why
    dropout_mode: DropoutMode  # where to make the keep bits; changes no bit
    keep_bits_reused: bool  # the backward pass reads those of the forward pass, or makes its own
    keep_bits_bytes: int  # all keep bits; packed: at most
    segments: int  # ranges of rows that a pass takes one after the other; 0: none
    segment_bytes: int  # keep bits of the segments that are in memory at one time
    backward_form: Form  # how the backward pass is divided into products
    forward_key: str  # two plans of one problem with the same key write the same o and lse

    @property
    def split(self) -> int:
        """1, the accumulators per query tile; the next version removes it."""
        return int(_renamed("split", "1 in every plan", 1))

    @property
    def dropout_keep_bits(self) -> bool:
        """The name of keep_bits_reused in version 0.1.0; the next version removes it."""
        return bool(_renamed("dropout_keep_bits", "keep_bits_reused", self.keep_bits_reused))

    @property
    def dropout_mask_bytes(self) -> int:
        """The name of keep_bits_bytes in version 0.1.0; the next version removes it."""
        return int(_renamed("dropout_mask_bytes", "keep_bits_bytes", self.keep_bits_bytes))


def _renamed(was: str, now: str, value: Any) -> Any:
    warnings.warn(f"ordo: {was} is {now} now", FutureWarning, stacklevel=3)
    return value


class Plan:
    """A problem's tiles and the order of each of its sums. Make one once, use it often.

    `machine` is a Machine or what names one; None is the host. Keywords left alone leave the
    choice to ordo: `backend`, `forward_tile`, `backward_tile`, `order`, `group` (a size or
    "waves") decide bits; `issue`, `section`, `assign`, `workers`,
    `segments`, `keep_bits_memory` and `workspace_limit` (bytes; 0 is 1.25 GiB) do not. With `segments`, or
    `keep_bits_memory` bytes, both passes run in segments of rows and have the keep bits of two
    of them in memory (ordo/plan.h).

    A plan is immutable, may be used from many threads at once, and pickles as its line.
    """

    def __init__(
        self,
        problem: Problem,
        machine: Machine | str | None = None,
        *,
        backend: Backend = "default",
        order: Order = "default",
        forward_tile: tuple[int, int] | None = None,
        backward_tile: tuple[int, int] | None = None,
        group: int | Literal["waves"] = 0,
        issue: Issue = "default",
        section: int = 0,
        assign: Assign = "default",
        workers: int = 0,
        segments: int = 0,
        keep_bits_memory: int = 0,
        workspace_limit: int = 0,
        mask_memory: int = 0,
        split: int = 0,
    ) -> None:
        if mask_memory:
            keep_bits_memory = _renamed("mask_memory", "keep_bits_memory", mask_memory)
        if split:
            _renamed("split", "1 in every plan", split)
        if isinstance(machine, str):
            machine = Machine(machine)
        options = s.sized(s.ordo_plan_options)
        choices = SimpleNamespace(
            backend=backend,
            order=order,
            forward_tile=_tile("forward_tile", forward_tile),
            backward_tile=_tile("backward_tile", backward_tile),
            group=group_number(group),
            split=split,
            issue=issue,
            section=section,
            assign=assign,
            workers=workers,
            segments=segments,
            keep_bits_memory=keep_bits_memory,
            workspace_limit=workspace_limit,
        )
        fill(options, choices)
        self._handle = c_void_p()
        lib.ordo_plan_create(
            byref(self._handle),
            byref(to_c(problem)),
            machine._handle if machine else None,
            byref(options),
        )
        self._idle: list[Workspace] = []

    @classmethod
    def parse(cls, line: str) -> Plan:
        """Read a plan back from its line. Safe on untrusted text."""
        made = cls.__new__(cls)
        made._handle = c_void_p()
        made._idle = []
        lib.ordo_plan_parse(byref(made._handle), text("line", line))
        return made

    def __del__(self, _destroy: Any = lib.ordo_plan_destroy) -> None:
        _destroy(getattr(self, "_handle", None))

    def __str__(self) -> str:
        return self.line

    def __repr__(self) -> str:
        return f"<ordo.Plan {self.info.numeric_key}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.line == other.line

    def __hash__(self) -> int:
        return hash(self.line)

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan.parse, (self.line,)

    @functools.cached_property
    def line(self) -> str:
        """The plan as one line of text. Kept with a checkpoint, it pins the bits."""
        needed = c_size_t()
        try:
            lib.ordo_plan_print(self._handle, None, 0, byref(needed))
        except Error as error:
            if error.status != "shape":
                raise
        room = ctypes.create_string_buffer(needed.value)
        lib.ordo_plan_print(self._handle, room, len(room), None)
        return room.value.decode()

    @functools.cached_property
    def info(self) -> PlanInfo:
        """Every choice with its value, the levels of the promise, the numeric key."""
        raw = s.sized(s.ordo_plan_info)
        lib.ordo_plan_query(self._handle, byref(raw))
        info: PlanInfo = read(
            PlanInfo,
            raw,
            forward_tile=Tile(raw.forward_tile.q, raw.forward_tile.k),
            backward_tile=Tile(raw.backward_tile.q, raw.backward_tile.k),
            group=group_word(raw.group),
            kept=promises(raw.kept),
            not_kept=promises(raw.not_kept),
        )
        return info

    @functools.cached_property
    def problem(self) -> Problem:
        """The problem as the plan holds it: every default filled in."""
        raw = s.sized(s.ordo_problem)
        lib.ordo_plan_problem(self._handle, byref(raw))
        return from_c(raw)

    @functools.cached_property
    def workspace_bytes(self) -> int:
        """Bytes of workspace enough for either pass; forward() and backward() bring their own."""
        size: int = lib.ordo_plan_workspace(self._handle)
        return size

    def check(self) -> int:
        """Replay the plan tile by tile and check it; the number of tile pairs.

        Every live pair once, turns without holes, no cycle; Error "internal" otherwise.
        """
        pairs = c_uint64()
        lib.ordo_plan_check(self._handle, byref(pairs))
        return pairs.value

    # Each pass in flight has a separate workspace, large enough for either pass, and hands it
    # back for the next one. list.pop() and list.append() are atomic: no lock.

    def _take(self) -> Workspace:
        try:
            return self._idle.pop()
        except IndexError:
            return Workspace(self.workspace_bytes)

    def _give(self, workspace: Workspace) -> None:
        self._idle.append(workspace)

    @functools.cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """What every array of a call must measure."""
        p = self.problem
        packed = p.layout == "packed"
        q = (p.total_q,) if packed else (p.batch, p.q_len)
        kv = (max(p.total_kv, 0),) if packed else (p.batch, max(p.kv_len, 0))  # NO_KEYS: 0
        qs, os = (*q, p.heads, p.head_dim), (*q, p.heads, p.v_head_dim)
        ks, vs = (*kv, p.kv_heads, p.head_dim), (*kv, p.kv_heads, p.v_head_dim)
        lse = (p.heads, p.total_q) if packed else (p.batch, p.heads, p.q_len)
        return {
            **{"q": qs, "dq": qs, "k": ks, "dk": ks, "v": vs, "dv": vs, "o": os, "dout": os},
            **{"lse": lse, "dlse": lse},
        }


class Workspace:
    """Memory at a multiple of 256 bytes, its content unspecified."""

    def __init__(self, size: int) -> None:
        self._memory = np.empty(size + WORKSPACE_ALIGN, np.uint8)
        self.address = -(-self._memory.ctypes.data // WORKSPACE_ALIGN) * WORKSPACE_ALIGN
        self.size = size


def _tile(name: str, tile: tuple[int, int] | None) -> Tile:
    if tile is None:
        return Tile(0, 0)
    try:
        q, k = tile
    except (TypeError, ValueError):
        raise Error("argument", f"{name} {tile!r}: expected (rows, columns) or None") from None
    return Tile(integer(f"{name}.q", q), integer(f"{name}.k", k))
