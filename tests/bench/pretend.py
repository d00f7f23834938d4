"""A pretended GPU for tests of bench/gpu: a pass takes as many milliseconds as it returns. Neither
PyTorch nor a GPU is needed."""

import contextlib
import io
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / part) for part in ("gpu", "cpu", "gpu/tables")]

import board  # noqa: E402
import driver  # noqa: E402
from shapes import Shape  # noqa: E402


class Board(board.Cpu):
    """A GPU on which everything takes what it returns; `log` has who was timed, in order, and `now`
    is the time in seconds, to which each timing adds `cost`."""

    name = "cuda"

    def __init__(self, cost: float = 0.0) -> None:
        self.log: list = []
        self.settled: list = []
        self.cost, self.now = cost, 1000.0

    def once_ms(self, run) -> float:
        return run() or 1.0

    def ms(self, run, warmup, rep) -> float:
        self.now += self.cost
        took = run() or 1.0
        self.log.append(took)
        return took

    def settle(self, run) -> None:
        self.settled.append(run())

    def joules(self, run) -> float:
        return 2.0 * run()

    def product(self) -> float:
        return 1.0

    def state(self) -> dict:
        return {"gpu": "pretended", "smi": "no clock", "torch": "0", "cudnn": 0}

    def after(self) -> dict:
        return {"smi_after": "no clock"}


class Error(RuntimeError):
    pass


class Pass:
    """A contestant with results, which are wrong by `error`."""

    def __init__(self, ms: float, error: float = 0.0) -> None:
        self.took, self.wrong_by = ms, error

    def forward(self):
        return self.took

    def backward(self):
        return self.took

    def results(self) -> dict:
        return {name: Number(self.wrong_by) for name in ("o", "dq")}


class Number(float):
    """A result: its distance from ours, which is 0."""

    def double(self):
        return self

    def norm(self):
        return self

    def item(self) -> float:
        return abs(float(self))

    def __sub__(self, other):
        return Number(float(self) - float(other))

    def __truediv__(self, other):
        return Number(float(self) / float(other))


def attention(**names) -> None:
    """From here on attention_gpu has these names."""
    ordo = types.SimpleNamespace(Error=Error, Dropout=lambda **kind: kind)
    made = types.SimpleNamespace(ordo=ordo, Shape=Shape, inputs=lambda shape: {}, **names)
    sys.modules["attention_gpu"] = made


def run(table, *arguments: str, on: Board | None = None) -> tuple[int, str]:
    """bench/gpu/run with these arguments, of a table by its name or as a module: its exit status,
    and what it prints, errors included."""
    on = on or Board()
    names, find, torch, time = driver.table_names, driver.table_of, driver.use_torch, driver.time
    driver.use_torch = lambda args, *targets: on
    driver.time = types.SimpleNamespace(
        monotonic=lambda: on.now, strftime=time.strftime, gmtime=time.gmtime
    )
    if not isinstance(table, str):
        driver.table_names, driver.table_of = lambda: [table.__name__], lambda name: table
    out = io.StringIO()
    sys.argv = ["run", table if isinstance(table, str) else table.__name__, *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = driver.main()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            out.write(code)
            code = 1
    finally:
        driver.table_names, driver.table_of = names, find
        driver.use_torch, driver.time = torch, time
    return code, out.getvalue()


def main(tests: dict) -> int:
    for name, test in list(tests.items()):
        if name.startswith("test_"):
            test()
            print(f"ok   {name}")
    return 0
