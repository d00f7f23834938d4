"""What a run says: Markdown tables, with a column for each contestant and for what a table adds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from board import MATMUL
from contest import PASSES

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A figure of a row that is made of others: of(row, suffix), where the suffix is "_fwd", "_bwd" or
    "". `must` and `aim` are what it should reach, at least or at most, as bounds or as functions
    of row and suffix."""

    head: str
    of: Callable[[Row, str], Any]
    must: Any = None
    aim: Any = None
    most: bool = False

    def bound(self, which: str, row: Row, suffix: str) -> float | None:
        bound = getattr(self, which)
        return bound(row, suffix) if callable(bound) else bound

    def verdict(self, row: Row, suffix: str) -> str:
        """aim, met, SHORT, or nothing where there is no figure or no bound."""
        value = self.of(row, suffix)
        must, aim = self.bound("must", row, suffix), self.bound("aim", row, suffix)
        if not isinstance(value, (int, float)):
            return ""
        for word, bound in (("aim", aim), ("met", must)):
            if bound is not None and (value <= bound if self.most else value >= bound):
                return word
        return "SHORT" if must is not None else ""

    def cell(self, row: Row, suffix: str) -> str:
        value = self.of(row, suffix)
        text = (
            value
            if isinstance(value, str)
            else number(value, 3 if value is None or value < 10 else 0)
        )
        return f"{text} {self.verdict(row, suffix)}".strip()


def over(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def figure(row: Row, name: str) -> float | None:
    """A contestant's figure; None if the host bound it: then it is not divided."""
    bound = row.get("host_bound", ())
    return None if name in bound else row["figures"].get(name)


def best(row: Row, names: tuple[str, ...], suffix: str) -> float | None:
    """The fastest of some; None unless all that ran are free of the host."""
    ran = [f"{name}{suffix}" for name in names if f"{name}{suffix}" in row["figures"]]
    figures = [figure(row, name) for name in ran]
    return max(figures) if figures and None not in figures else None


def speed(head: str, ours: str, *theirs: str, **bars: Any) -> Column:
    """The figure of one over that of another, or of the fastest of several."""
    return Column(
        head, lambda row, x: over(figure(row, f"{ours}{x}"), best(row, theirs, x)), **bars
    )


def time_over(head: str, ours: str, theirs: str, **bars: Any) -> Column:
    """The time of one over that of another."""
    return Column(
        head, lambda row, x: over(row["ms"].get(f"{ours}{x}"), row["ms"].get(f"{theirs}{x}")),
        most=True, **bars,
    )  # fmt: skip


def tile_rate(head: str, ours: str, theirs: str, **bars: Any) -> Column:
    """Live tiles per time of one over those of another."""

    def rate(row: Row, name: str) -> float | None:
        return over(row["tiles"].get(name), row["ms"].get(name))

    return Column(
        head, lambda row, x: over(rate(row, f"{ours}{x}"), rate(row, f"{theirs}{x}")), **bars
    )


def number(x: float | None, digits: int) -> str:
    return "-" if x is None else f"{x:.{digits}f}"


def aligned(lines: list[list[str]]) -> str:
    """A table of Markdown; the first line is its head."""
    wide = [max(len(line[x]) for line in lines) for x in range(len(lines[0]))]
    made = [
        "| " + " | ".join(cell.rjust(w) if x else cell.ljust(w) for x, (cell, w) in
                          enumerate(zip(line, wide))) + " |"
        for line in lines
    ]  # fmt: skip
    made.insert(1, "|---" * len(wide) + "|")
    return "\n".join(made)


def cell(row: Row, name: str) -> str:
    """TFLOP/s without digits after the point, milliseconds with three."""
    x = row["figures"].get(name)
    if x is None or isinstance(x, str):
        return x or "-"
    return number(x, 0 if x >= 100 or name in row.get("flop", ()) else 3) + "*" * (
        name in row.get("host_bound", ())
    )


def section(rows: list[Row], columns: list[Column], suffix: str) -> list[list[str]]:
    """The lines of one table; columns that no row has are left out."""
    names = [x for row in rows for x in row["figures"]]
    names = [x for x in dict.fromkeys(names) if suffix_of(x) == suffix]
    rows = [row for row in rows if not names or any(x in row["figures"] for x in names)]
    columns = [x for x in columns if any(x.of(row, suffix) not in (None, "") for row in rows)]
    if not names and not columns:
        return []
    heads = [x.removesuffix(suffix).replace("_", " ") for x in names]
    lines = [["row", *heads, *(x.head for x in columns)]]
    for row in rows:
        cells = [cell(row, name) for name in names]
        lines.append([row["name"], *cells, *(x.cell(row, suffix) for x in columns)])
    return lines


def suffix_of(name: str) -> str:
    last = name.rpartition("_")[2]
    return f"_{last}" if last in PASSES else ""


def groups(rows: list[Row]) -> dict[str, list[Row]]:
    made: dict[str, list[Row]] = {}
    for row in rows:
        made.setdefault(row.get("group", ""), []).append(row)
    return made


def columns_of(table: ModuleType, group: str) -> list[Column]:
    """A table's columns: a list, or by group."""
    columns = getattr(table, "COLUMNS", [])
    return columns.get(group, []) if isinstance(columns, dict) else columns


def tables(table: ModuleType, rows: list[Row]) -> list[str]:
    said = []
    for group, mine in groups(rows).items():
        before = len(said)
        for suffix in ("", *(f"_{x}" for x in PASSES)):
            if lines := section(mine, columns_of(table, group), suffix):
                title = f"{PASSES[suffix[1:]].capitalize()}:" if suffix else ""
                said += [title, aligned(lines)] if title else [aligned(lines)]
        if any("joules" in row for row in mine):
            said += ["Joules per run:", aligned(energy(mine))]
        if group and len(said) > before:
            title = getattr(table, "TITLES", {}).get(group, "")
            said.insert(before, f"{group}: {title}".rstrip(": "))
    return said


def energy(rows: list[Row]) -> list[list[str]]:
    """Joules and picojoules per FLOP of the rows that have them."""
    rows = [row for row in rows if "joules" in row]
    names = list(dict.fromkeys(x for row in rows for x in row["joules"]))
    lines = [["row", *(x.replace("_", " ") for x in names)]]
    for row in rows:
        cells = []
        for name in names:
            joules, flop = row["joules"].get(name), row["flop"].get(name)
            each = f" ({joules / flop * 1e12:.3f})" if joules and flop else ""
            cells.append(number(joules, 3) + each)
        lines.append([row["name"], *cells])
    return lines


def summary(table: ModuleType, rows: list[Row]) -> list[str]:
    """The least and the greatest value of every ratio, and how many rows meet its bound."""
    said = []
    for group, mine in groups(rows).items():
        for column in columns_of(table, group):
            if not re.search("[÷/]", column.head):
                continue
            for suffix in ("", "_fwd", "_bwd"):
                values = [(column.of(row, suffix), row) for row in mine]
                values = [x for x in values if isinstance(x[0], float)]
                if len(values) < 2:
                    continue
                least, most = (pick(values, key=lambda x: x[0])[0] for pick in (min, max))
                words = [column.verdict(row, suffix) for _, row in values]
                bars = f"; {sum(x in ('met', 'aim') for x in words)} of {sum(map(bool, words))} met"
                where = " ".join(x for x in (group, PASSES.get(suffix[1:], ""), column.head) if x)
                said.append(f"{where}: {least:.3f} to {most:.3f}{bars if any(words) else ''}")
    return said


def remarks(table: ModuleType, rows: list[Row]) -> list[str]:
    """Who refused which rows, whose results are wrong, and where the host was slower than the GPU."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for kind in ("refused", "wrong"):
            for who, why in row.get(kind, {}).items():
                said.setdefault(f"{kind}: {who}: {why}", []).append(row["name"])
        for who in row.get("host_bound", ()):
            said.setdefault(f"* bound by the host: {who}", []).append(row["name"])
    made = [f"{what} ({len(names)} rows: {'; '.join(names)})" for what, names in said.items()]
    return made + (table.remarks(rows) if hasattr(table, "remarks") else [])


def spread(rows: list[Row]) -> list[str]:
    """How far the rounds of one figure lie apart, over its median."""
    found = [
        (max(ms) - min(ms)) / statistics.median(ms)
        for row in rows for ms in row.get("rounds", {}).values() if len(ms) > 1
    ]  # fmt: skip
    if not found:
        return []
    return [
        f"rounds of one figure: {statistics.median(found):.1%} apart in the middle, {max(found):.1%} at most"
    ]


def state_line(state: Row) -> str:
    parts = [state["command"], state["date"], f"{state['gpu']} ({state['smi']})"]
    parts += [f"PyTorch {state['torch']}, cuDNN {state['cudnn']}"] if "torch" in state else []
    before, after = (number(state.get(x), 0) for x in ("product", "product_after"))
    if state.get("product"):
        parts.append(f"product of {MATMUL}³: {before} TFLOP/s before, {after} after")
    parts += [f"now {state['smi_after']}"] if state.get("smi_after") else []
    return "; ".join([*parts, f"{state['seconds']:.0f} s"])


def whole(table: ModuleType, made: Row) -> str:
    """All that is printed, paragraphs apart."""
    rows = made["rows"]
    lines = [*summary(table, rows), *spread(rows), *remarks(table, rows)]
    for state in made["states"]:
        lines += [f"absent: {name}: {why}" for name, why in state["absent"].items()]
    if made["left_out"]:
        lines.append(f"left out for lack of time: {'; '.join(made['left_out'])}")
    lines += [f"{'FAULT' if 'fault' in x else 'ended'}: {x.get('fault') or x['ended']}"
              for x in made["states"] if x.get("fault") or x.get("ended")]  # fmt: skip
    lines += [state_line(state) for state in made["states"]]
    return "\n\n".join([*tables(table, rows), "\n".join(f"- {x}" for x in dict.fromkeys(lines))])
