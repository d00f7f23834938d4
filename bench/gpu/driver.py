"""bench/gpu/run TABLE: the rows of one table, measured on one GPU.

The contestants of a row share one process and its tensors, and take turns in rounds; who begins a
round changes from one to the next. A figure is the median over the rounds, each the median of
CUDA-event times of --rep milliseconds of runs, L2 flushed before each, after --warmup milliseconds
of the same: the clock follows the power of the last tenths of a second, so that a figure with a
short warm-up is up to a tenth off, by who ran before. Those that clock themselves say how in their
table. A contestant that refuses a row, or whose results are not ours, is named and not timed. A
figure with * is bound by the host, and not divided. Peers that are installed join by name.

With --budget SECONDS each row gets its share of the time that is left: at least one round, at most
--rounds; rows that do not fit are named. --json FILE is written after each row, and with --resume
measures what the file lacks. Ctrl-C prints what there is. Exit 1 after a fault or wrong results,
77 where a table cannot run.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import show
from board import Cpu, Gpu
from contest import Contest, Peers, first_line

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).parent / "tables"
MARGIN = 30  # seconds after the budget when the program ends itself
DEFAULTS = {"rounds": 3, "warmup": 200, "rep": 100}


class Skip(Exception):
    """A table cannot run here."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def build(*targets: str) -> None:
    say("building")
    make = ["cmake", "--build", "build", "--target", *targets]
    for command in (["cmake", "--preset", "release"], make):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stdout + done.stderr)[-4000:]
            sys.exit(f"bench/gpu/run: {' '.join(command)}:\n{said}")


def need_device() -> None:
    """For tables without PyTorch, before anything is built."""
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        raise Skip("no CUDA device")


def use_torch(args: argparse.Namespace, *targets: str) -> Any:
    """The board by PyTorch, where the kernels run, once `targets` are built."""
    import pytorch

    torch = pytorch.find()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise Skip("no CUDA device")
    if not args.no_build:
        build(*targets)
    import ordo

    if args.device == "cpu":
        return Cpu()
    if why := ordo.backend_why_not("cuda"):
        raise Skip(why)
    return Gpu(torch)


# ---- the run ----


class Run:
    """Rows of a table, what was measured of them, and the time that is left."""

    def __init__(self, table: ModuleType, args: argparse.Namespace) -> None:
        self.table, self.args, self.begin = table, args, time.monotonic()
        self.made: dict[str, Any] = {"table": args.table, "states": [], "rows": [], "left_out": []}
        self.longest = 0.0  # seconds of a row with one round
        if args.resume and args.json.exists():
            made = json.loads(args.json.read_text())
            whole = [row for row in made["rows"] if not row.get("partial")]
            self.made = {**made, "rows": whole, "left_out": []}

    def left(self) -> float:
        if self.args.budget is None:
            return float("inf")
        return self.args.budget - (time.monotonic() - self.begin)

    def save(self) -> None:
        """A reader never sees half a file."""
        self.state["seconds"] = time.monotonic() - self.begin
        if self.args.json:
            new = self.args.json.with_name(self.args.json.name + ".new")
            new.write_text(json.dumps(self.made, indent=1) + "\n")
            os.replace(new, self.args.json)

    def row(self, row: dict[str, Any], rows_left: int) -> dict[str, Any]:
        """One row, measured."""
        begin, left = time.monotonic(), self.left()
        end, begun = begin + left / rows_left, begin

        def more(turn: int) -> bool:
            nonlocal begun
            now = time.monotonic()
            if turn == 1:
                self.longest = max(self.longest, now - begin)
            took, begun = now - begun, now
            return now + took <= end

        contest = Contest(self.board, self.peers, self.args, self.made["rows"])
        with contest.stack:
            if hasattr(self.table, "measure"):
                made = self.table.measure(contest, row)
            else:
                self.table.enter(contest, row)
                begun = time.monotonic()
                ms = contest.take_turns(self.args.rounds, more)
                energy = self.args.energy and re.search(self.args.energy, full_name(row))
                made = contest.outcome(ms, bool(energy))
        self.longest = max(self.longest, 0.0 if self.args.rounds > 1 else time.monotonic() - begin)
        return {**row, **made}

    def rows(self, wanted: list[dict[str, Any]]) -> None:
        done = {full_name(row) for row in self.made["rows"]}
        todo = [row for row in wanted if full_name(row) not in done]
        for place, row in enumerate(todo):
            if self.left() < max(self.longest, 1e-9):
                self.made["left_out"] = [full_name(x) for x in todo[place:]]
                return
            say(f"{place + 1}/{len(todo)} {full_name(row)}; {time.monotonic() - self.begin:.0f} s")
            try:
                self.made["rows"].append(self.row(row, len(todo) - place))
            except RuntimeError as error:  # a fault of a kernel: nothing runs after it
                self.state["fault"] = f"{full_name(row)}: {first_line(error)}"
                return
            except (KeyboardInterrupt, SystemExit):
                self.state["ended"] = f"in {full_name(row)}"
                raise
            if self.made["rows"][-1].get("partial"):
                self.state["ended"] = f"in {full_name(row)}"
                raise KeyboardInterrupt
            figures = self.made["rows"][-1].get("figures", {})
            say("  " + ", ".join(f"{x} {show.cell(self.made['rows'][-1], x)}" for x in figures))
            self.board.free()
            self.save()

    def measure(self, wanted: list[dict[str, Any]]) -> int:
        """Measure, print, and return the exit status."""
        args = self.args
        load = getattr(self.table, "load", lambda given: use_torch(given, "product"))
        self.board = load(args)
        known = getattr(self.table, "PEERS", {})
        self.peers = Peers(known, args.peers)
        if missing := [x for x in args.peers if x in self.peers.absent]:
            say(f"bench/gpu/run: --peer {missing[0]}={self.peers.absent[missing[0]]}")
            return 2
        self.state = {
            "command": args.command, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            **self.board.state(), "rounds": args.rounds, "warmup_ms": args.warmup, "rep_ms": args.rep,
            "absent": self.peers.absent, "product": self.board.product(), "seconds": 0.0,
        }  # fmt: skip
        if others := {x["gpu"] for x in self.made["states"]} - {self.state["gpu"]}:
            say(
                f"bench/gpu/run: --resume {args.json}: rows of {', '.join(others)}, this is {self.state['gpu']}"
            )
            return 2
        self.made["states"].append(self.state)
        interrupted = False
        if args.budget:  # a kernel that hangs
            faulthandler.dump_traceback_later(args.budget + MARGIN, exit=True, file=sys.__stderr__)
        try:
            self.rows(wanted)
        except (KeyboardInterrupt, SystemExit):
            interrupted = True
        finally:
            faulthandler.cancel_dump_traceback_later()
            getattr(self.table, "close", lambda: None)()
        if not interrupted and "fault" not in self.state:
            self.state |= {**self.board.after(), "product_after": self.board.product()}
        self.save()
        write_more(self.table, self.made, args)
        print(show.whole(self.table, self.made), flush=True)
        wrong = any(row.get("wrong") for row in self.made["rows"])
        return 130 if interrupted else 1 if wrong or "fault" in self.state else 0


def write_more(table: ModuleType, made: dict[str, Any], args: argparse.Namespace) -> None:
    """Rows as lab/cli/model_measured.c reads them, and a picture, if they are wanted."""
    if args.plot and made["rows"]:
        args.plot.write_text(table.plot(made["rows"]))
    if not args.model:
        return
    states = made["states"]
    source = [f"{x['command']} on {x['gpu']} ({x['smi']}), {x['date']}" for x in states]
    head = {"schema_version": 1, "command": "measured", "machine": "h200", "source": source}
    lines = [json.dumps(x) for row in made["rows"] for x in table.model_rows(row)]
    text = json.dumps(head)[:-1] + ', "results": [\n' + ",\n".join(lines) + "\n]}\n"
    args.model.write_text(text)


def merged(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Documents of several runs as one; of a row that several have the last stays."""
    states = [state for made in documents for state in made["states"]]
    rows = {full_name(row): row for made in documents for row in made["rows"]}
    return {**documents[-1], "states": states, "rows": list(rows.values())}


# ---- arguments ----


def full_name(row: dict[str, Any]) -> str:
    """The name of a row in its table, for --rows and --list."""
    return f"{row['group']}: {row['name']}" if row.get("group") else row["name"]


def table_names() -> list[str]:
    return sorted(x.stem for x in TABLES.glob("*.py"))


def table_of(name: str) -> ModuleType:
    sys.path[:0] = [x for x in [str(TABLES)] if x not in sys.path]
    return importlib.import_module(name)


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text}: expected a regular expression: {error}"
        ) from error
    return text


def seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0 seconds")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return value


def peer(text: str) -> tuple[str, str]:
    name, _, module = text.partition("=")
    if not name.isidentifier() or not module:
        raise argparse.ArgumentTypeError(
            f"{text}: expected NAME=MODULE, as fa3=flash_attn_interface"
        )
    return name, module


def parse(argv: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    names = table_names()
    table = table_of(argv[0]) if argv and argv[0] in names else None
    parser = argparse.ArgumentParser(
        prog="bench/gpu/run", usage="%(prog)s TABLE [option]...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=table.__doc__ if table else __doc__,
        epilog=None if table else "tables: " + ", ".join(names),
    )  # fmt: skip
    defaults = {**DEFAULTS, **getattr(table, "DEFAULTS", {})}
    add = parser.add_argument
    add("table", choices=names, metavar="TABLE", help="with --help: what it measures")
    add(
        "--rows",
        type=pattern,
        default="",
        metavar="REGEX",
        help="rows whose name matches, as --list prints it",
    )
    add("--list", action="store_true", help="only say which rows there are")
    add("--rounds", type=count, default=defaults["rounds"], metavar="N", help="(%(default)s)")
    add("--warmup", type=float, default=defaults["warmup"], metavar="MS", help="(%(default)s)")
    add("--rep", type=float, default=defaults["rep"], metavar="MS", help="(%(default)s)")
    add("--budget", type=seconds, metavar="SECONDS", help="of the whole run")
    add("--energy", type=pattern, metavar="REGEX", help="joules, too, in rows whose name matches")
    add(
        "--peer",
        type=peer,
        action="append",
        default=[],
        metavar="NAME=MODULE",
        help="may be repeated",
    )
    add("--json", type=Path, metavar="FILE", help="write everything there")
    add("--resume", action="store_true", help="measure what --json FILE lacks")
    add(
        "--replay",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="print what --json wrote, measure nothing",
    )
    add("--model", type=Path, metavar="FILE", help="write rows for `ordo model validate` there")
    add("--plot", type=Path, metavar="FILE", help="write a picture of the rows there, as SVG")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial of the table")
    add("--no-build", action="store_true", help="take build/ as it is")
    args = parser.parse_args(argv)
    args.command = shlex.join(["bench/gpu/run", *argv])
    args.peers = dict(args.peer)
    refuse(parser, table, args)
    return table, args


def refuse(parser: argparse.ArgumentParser, table: ModuleType, args: argparse.Namespace) -> None:
    """End with what is wrong among the arguments."""
    if args.resume and not args.json:
        parser.error("--resume: expected --json FILE, which it reads and writes")
    if args.peers and not hasattr(table, "PEERS"):
        parser.error(f"--peer {args.peer[0][0]}: {args.table} takes no peers")
    if args.device == "cpu" and not getattr(table, "CPU", False):
        parser.error(f"--device cpu: {args.table} runs on a GPU only")
    if args.model and args.device == "cpu":
        parser.error(f"--model {args.model}: times of a CPU are none of a GPU")
    for option, file, name in (
        ("--model", args.model, "model_rows"),
        ("--plot", args.plot, "plot"),
    ):
        if file and not hasattr(table, name):
            parser.error(f"{option} {file}: {args.table} makes none")
    for file in [
        *(args.replay or []),
        *([args.json] if args.resume and args.json.exists() else []),
    ]:
        try:
            said = json.loads(file.read_text())["table"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(
                f"{file}: expected a file that --json wrote: {type(error).__name__}: {error}"
            )
        if said != args.table:
            parser.error(f"{file}: rows of {said}: expected those of {args.table}")


def main() -> int:
    table, args = parse(sys.argv[1:])
    wanted = [row for row in table.rows() if re.search(args.rows, full_name(row))]
    if not wanted:
        sys.exit(f"bench/gpu/run: --rows {args.rows}: no row of {args.table} matches; see --list")
    if args.list:
        print("\n".join(full_name(row) for row in wanted))
        return 0
    if args.replay:
        made = merged([json.loads(file.read_text()) for file in args.replay])
        write_more(table, made, args)
        print(show.whole(table, made))
        return 0
    with contextlib.suppress(ValueError):  # not in the main thread of a test
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: sys.exit(1))
    try:
        return Run(table, args).measure(wanted)
    except Skip as why:
        print(f"bench/gpu/run {args.table}: skipped: {why}")
        return 77
