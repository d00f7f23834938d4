"""A pretended GPU for tests of the benchmarks in bench/gpu: a pass takes as many milliseconds as it
says. Neither PyTorch nor a GPU is needed."""

import contextlib
import io
import sys
import types
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load(program: str):
    """A program of bench/gpu as a module."""
    path = str(ROOT / "bench" / "gpu" / program)
    spec = spec_from_loader(program, SourceFileLoader(program, path))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(program, *arguments: str) -> tuple[int, str]:
    """The program's main with these arguments: its result, and what it prints."""
    out, sys.argv = io.StringIO(), [program.__name__, *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = program.main()
        except SystemExit as end:
            code = end.code
    return code, out.getvalue()


class Error(Exception):
    pass


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    dim: int
    mask: str = "full"
    dtype: str = "bf16"
    p: float = 0.0
    window: tuple | None = None
    lengths: tuple = ()
    v_dim: int = 0

    def flop(self, columns: float) -> float:
        full = 2.0 * self.batch * self.heads * self.q_len * self.kv_len * columns
        return full if self.mask == "full" else full / 2

    @property
    def forward_flop(self) -> float:
        return self.flop(self.dim + (self.v_dim or self.dim))

    @property
    def backward_flop(self) -> float:
        return self.flop(3 * self.dim + 2 * (self.v_dim or self.dim))


class Pass:
    def __init__(self, ms: float) -> None:
        self.ms = ms

    def forward(self):
        return self.ms

    def backward(self):
        return self.ms


settled: list = []  # passes that a round began with
torch = types.SimpleNamespace(
    cuda=types.SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None)
)
ordo = types.SimpleNamespace(Error=Error, Dropout=lambda **kind: kind)


def start(h200, **passes) -> None:
    """From here on `h200` measures `passes`, the names that a benchmark uses of attention_gpu."""
    gpu = types.SimpleNamespace(
        ordo=ordo, Shape=Shape, replace=replace, inputs=lambda shape: {}, **passes
    )
    h200.load = lambda *targets: (torch, gpu)
    h200.state_of = lambda args: {
        "command": "", "date": "", "gpu": "none", "smi": "", "torch": "0", "cudnn": 0,
        "protocol": "", "matmul_tflops": [1.0],
    }  # fmt: skip

    def end_state(state, args):
        state["smi_after"] = ""
        state["matmul_tflops"].append(1.0)

    h200.end_state = end_state
    h200.matmul = lambda args: 1.0
    h200.time_ms = lambda run, args: run() or 1.0
    h200.once_ms = lambda run: run() or 1.0
    h200.settle = settled.append


def main(tests: dict) -> int:
    for name, test in list(tests.items()):
        if name.startswith("test_"):
            test()
            print(f"ok   {name}")
    return 0
