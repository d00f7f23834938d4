"""Milliseconds per step of GPT-2 124M as examples/train trains it, on one H200: 4 micro-batches of 8
sequences of 1024, bf16.

    ordo     every sum in plan order, under ordo.torch.reproducible()
    sdpa     PyTorch's attention by its own choice of backend, by flash and by cuDNN, no determinism
    strict   PyTorch's attention under PyTorch's strict determinism, by its own choice and by flash

A process for each of the three, which take turns, four steps at a time. That a run repeats, killed and
resumed, is what tools/train shows. --device cpu is a trial on a tiny model.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile

import driver
from show import Column, over, time_over

CPU = True
DEFAULTS = {"rounds": 8}
STEPS = 4  # per turn
KINDS = {"ordo": "ordo", "sdpa": "sdpa", "strict": "sdpa-deterministic"}
BACKENDS = {"": "", "flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
WAYS = {"ordo": ("",), "sdpa": ("", "flash", "cudnn"), "strict": ("", "flash")}
PRESETS = {  # and the tokens of a step
    "cuda": (
        ["--preset", "gpt2-124m", "--dtype", "bf16", "--rows", "8", "--micro-batches", "4"],
        32768,
    ),
    "cpu": (["--preset", "tiny", "--dtype", "f32", "--rows", "1", "--micro-batches", "1"], 64),
}
processes: dict = {}


class Process:
    """One kind of attention."""

    def __init__(self, kind: str, device: str) -> None:
        self.log = tempfile.TemporaryFile("w+")
        program = [
            sys.executable,
            str(driver.ROOT / "bench" / "gpu" / "train_peer.py"),
            KINDS[kind],
        ]
        self.process = subprocess.Popen(
            [*program, "--device", device, "--lr", "6e-4", *PRESETS[device][0]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=driver.ROOT,
        )  # fmt: skip

    def steps(self, p: float, backend: str, count: int) -> list[float]:
        """Milliseconds of each; RuntimeError if the backend refuses or the process has ended."""
        told = {"p": p, "backend": BACKENDS[backend], "steps": count}
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(told) + "\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                said = json.loads(line)
                if "refused" in said:
                    raise RuntimeError(said["refused"])
                return said["ms"]
        self.log.seek(0)
        raise RuntimeError(f"its process has ended: {self.log.read().strip()[-300:]}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.log):
            with contextlib.suppress(OSError):
                file.close()


def load(args):
    board = driver.use_torch(args, "product")
    processes.update({kind: Process(kind, args.device) for kind in KINDS})  # they start together
    return board


def close() -> None:
    while processes:
        processes.popitem()[1].close()


def rows() -> list[dict]:
    return [{"name": f"dropout {p}", "dropout": p} for p in (0.0, 0.1)]


def fastest(row: dict, suffix: str) -> float | None:
    theirs = [ms for name, ms in row["ms"].items() if name.startswith("sdpa")]
    return over(row["ms"].get("ordo"), min(theirs)) if theirs and not suffix else None


COLUMNS = [
    Column("÷ fastest sdpa", fastest),
    time_over("÷ strict", "ordo", "strict"),
    Column(
        "tokens/s",
        lambda row, x: None if x else f"{1e3 * over(row['tokens'], row['ms']['ordo']):,.0f}",
    ),
]


def enter(contest, row: dict) -> None:
    contest.notes["tokens"] = PRESETS[contest.board.name][1]
    for kind, process in processes.items():
        for backend in WAYS[kind]:
            name = f"{kind}_{backend}" if backend else kind

            def turn(process=process, backend=backend, count=STEPS) -> list[float]:
                return process.steps(row["dropout"], backend, count)

            if contest.attempt(name, lambda turn=turn: turn(count=2)):
                contest.clock(name, turn)
