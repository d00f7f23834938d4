"""The contestants of one row, and the turns that they take.

A contestant's name ends with _fwd or _bwd if it is a pass: each has a separate table. Its figure is
TFLOP/s if it has `flop`, else milliseconds.
"""

from __future__ import annotations

import contextlib
import importlib
import statistics
from collections.abc import Callable
from types import ModuleType
from typing import Any

CLOSE = 0.02  # share of the norm of ours: results that are further away are wrong
FLUSH_MS = 0.04  # 256 MB at 4.5 TB/s, less what the host needs to launch it
SLOW_MS = 1000.0  # what takes longer is timed once
REFUSALS = (RuntimeError, TypeError, ValueError, AssertionError)  # ordo.Error is the first
PASSES = {"fwd": "forward", "bwd": "backward"}


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


def error(got: Any, expected: Any) -> float:
    """|got - expected| / |expected|; NaN if anything is."""
    size = expected.double().norm().item()
    return ((got.double() - expected.double()).norm() / (size if size > 0 else 1.0)).item()


class Peers:
    """Modules that are compared with ours: those that a table knows, if they can be imported, and those
    of --peer NAME=MODULE, which must be there."""

    def __init__(self, known: dict[str, str], asked: dict[str, str]) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.absent: dict[str, str] = {}
        for name, module in {**known, **asked}.items():
            try:  # foreign code, which may fail in any way
                self.modules[name] = importlib.import_module(module)
            except Exception as error:
                self.absent[name] = f"{module}: {type(error).__name__}: {first_line(error)}"


class Contest:
    """Functions to time, what each computes, who refused the row and why, and whose results are
    wrong. `notes` become fields of the row; `before` are the rows that were measured."""

    def __init__(self, board: Any, peers: Peers, options: Any, before: list[Any]) -> None:
        self.board, self.peers, self.options, self.before = board, peers, options, before
        self.runs: dict[str, Callable[[], Any]] = {}
        self.timed: dict[str, Callable[[], list[float]]] = {}
        self.flop: dict[str, float] = {}
        self.tiles: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.notes: dict[str, Any] = {}
        self.measured: dict[str, Any] = {}  # figures that something else measured
        self.stack = contextlib.ExitStack()  # what ends with the row
        self.ended = False  # by Ctrl-C, in the turns
        self.expected: dict[str, Any] | None = None  # results that all others must be close to
        self.close = CLOSE

    def attempt(self, name: str, make: Callable[[], Any]) -> Any:
        """What make() returns, once the device has done it; None if it refuses. A fault of the device
        is none of its refusals: it ends the run."""
        try:
            made = make()
            self.board.sync()
            return made
        except REFUSALS as error:
            if getattr(error, "status", "") in ("device", "internal"):
                raise
            self.refused[name] = first_line(error)
        self.board.sync()
        self.board.free()
        return None

    def add(self, name: str, run: Callable[[], Any], flop: float = 0.0, tiles: float = 0.0) -> None:
        """A function that launches; the device's clock times it."""
        if self.attempt(name, lambda: (run(),)) is not None:
            self.runs[name] = run
            self.count(name, flop, tiles)

    def clock(self, name: str, timed: Callable[[], list[float]], flop: float = 0.0) -> None:
        """A function that times itself, and returns the milliseconds of each of its runs."""
        self.timed[name] = timed
        self.count(name, flop, 0.0)

    def count(self, name: str, flop: float, tiles: float) -> None:
        if flop:
            self.flop[name] = flop
        if tiles:
            self.tiles[name] = tiles

    def both(
        self, name: str, make: Callable[[], Any], flop: tuple[float, float],
        passes: tuple[str, ...] = ("fwd", "bwd"), tiles: Callable[[Any, str], float] | None = None,
    ) -> Any:  # fmt: skip
        """Both passes, or one, of what make() returns, which it returns too; `flop` of both."""
        subject = self.attempt(name, make)
        if subject is None:
            return None
        if self.attempt(name, lambda: (subject.forward(),)) is None:  # what backward() reads
            return None
        if not self.same(name, subject):
            return None
        for which, work in zip(("fwd", "bwd"), flop):
            if which in passes:
                count = tiles(subject, which) if tiles else 0.0
                self.add(f"{name}_{which}", getattr(subject, PASSES[which]), work, count)
        return subject

    def ours(self, subject: Any, close: float = CLOSE) -> None:
        """From here on results must be close to those of this one; 0: equal."""
        self.close = close
        if subject is not None:
            subject.forward()
            subject.backward()
            self.expected = dict(subject.results())

    def same(self, name: str, subject: Any) -> bool:
        """Whether the results of a subject that ran forward() are ours; else it says why not."""
        if self.expected is None:
            return True
        if far := self.attempt(name, lambda: self.far(subject)):
            self.wrong[name] = "; ".join(far)
        return far == []

    def far(self, subject: Any) -> list[str]:
        """Which results are not close to those expected."""
        subject.backward()
        got = subject.results()
        errors = {name: error(got[name], x) for name, x in self.expected.items()}
        return [
            f"{x} differs by {e:.2g} of its norm" for x, e in errors.items() if not e <= self.close
        ]

    # ---- turns ----

    def names(self) -> list[str]:
        return [*self.runs, *self.timed]

    def take_turns(self, rounds: int, more: Callable[[int], bool]) -> dict[str, list[float]]:
        """Milliseconds by contestant, those of a run that clocks itself one by one. A round begins
        with a fifth of a second of its first contestant; who is first changes from round to round,
        because the clock of a board falls within a round. more(n): whether round n begins."""
        names = self.names()
        ms: dict[str, list[float]] = {name: [] for name in names}
        step = max(1, round(len(names) / rounds))
        try:
            for turn in range(rounds):
                if turn and not more(turn):
                    break
                first = turn * step % max(1, len(names))
                self.round(names[first:] + names[:first], ms)
            self.board.sync()
        except (KeyboardInterrupt, SystemExit):
            self.ended = True  # what there is will be shown
        return ms

    def round(self, names: list[str], ms: dict[str, list[float]]) -> None:
        """A turn of each; what takes longer than a second has one in all."""
        for place, name in enumerate(names):
            if ms[name] and ms[name][0] > SLOW_MS:
                continue
            if name in self.timed:
                ms[name] += self.timed[name]()
                continue
            run, options = self.runs[name], self.options
            if not ms[name] and (once := self.board.once_ms(run)) > SLOW_MS:
                ms[name].append(once)
                continue
            if not place:
                self.board.settle(run)
            ms[name].append(self.board.ms(run, options.warmup, options.rep))

    def outcome(self, ms: dict[str, list[float]], joules: bool) -> dict[str, Any]:
        """What a row has from its contest."""
        middle = {name: statistics.median(x) for name, x in ms.items() if x}
        host = {name: self.board.host_ms(run) for name, run in self.runs.items()
                if middle.get(name, SLOW_MS) < SLOW_MS and not self.ended}  # fmt: skip
        figures = {x: self.flop[x] / t * 1e-9 if x in self.flop else t for x, t in middle.items()}
        made = {
            "ms": middle, "rounds": ms, "flop": self.flop, "tiles": self.tiles,
            "figures": figures | self.measured,
            "host_bound": [name for name, x in host.items() if x > middle[name] + FLUSH_MS],
            "refused": self.refused, "wrong": self.wrong, **self.notes,
        }  # fmt: skip
        if self.ended:
            return {**made, "partial": True}
        if joules:
            made["joules"] = {name: self.board.joules(run) for name, run in self.runs.items()}
        return made
