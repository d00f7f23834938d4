"""What the benchmarks of one H200 share: building, rows, timing, the state of the GPU, tables.

Importing it needs neither PyTorch nor a GPU; load() does, and ends the program with 77 without.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MATMUL = 8192


def skip(why: object) -> None:
    print(f"{Path(sys.argv[0]).name}: skipped: {why}")
    sys.exit(77)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def build(*targets: str) -> None:
    say("building")
    make = ["cmake", "--build", "build", "--target", *targets]
    for command in (["cmake", "--preset", "release"], make):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stdout + done.stderr)[-4000:]
            sys.exit(f"{Path(sys.argv[0]).name}: {' '.join(command)}:\n{said}")


def load(*targets: str):
    """PyTorch, then the library, once its targets are built: (torch, attention_gpu)."""
    global torch, triton
    try:
        import numpy  # noqa: F401  (python/ordo needs it)
        import torch
        import triton.testing
    except ImportError as missing:
        skip(missing)
    if targets:
        build(*targets)
    import attention_gpu as gpu

    if why := gpu.why_not():
        skip(why)
    return torch, gpu


def rows() -> list[dict]:
    """The problems that are measured: 16k tokens and a width of 2048, then groups of heads, then
    32k tokens. Others publish their figures at these shapes."""
    sizes = [
        (16384 // seq, 2048 // dim, 2048 // dim, seq, dim)
        for dim in (64, 128)
        for seq in (512, 1024, 2048, 4096, 8192, 16384)
    ]
    sizes += [(1, 32, 8, 8192, 128), (1, 16, 16, 32768, 128)]
    names = ("batch", "heads", "kv_heads", "seq", "dim")
    return [
        {**dict(zip(names, size)), "mask": mask} for size in sizes for mask in ("full", "causal")
    ]


def row_name(row: dict) -> str:
    return f"{row['seq']} {row['dim']} {row['heads']}/{row['kv_heads']} {row['mask']}"


def over(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def time_ms(run, args) -> float:
    """Milliseconds of one run: median of CUDA-event times, L2 flushed between runs."""
    return triton.testing.do_bench(run, warmup=args.warmup, rep=args.rep, return_mode="median")


def add_options(parser) -> None:
    """What every benchmark takes that prints rows, as tables or as JSON."""
    parser.add_argument("--no-build", action="store_true", help="take build/ as it is")
    parser.add_argument("--list", action="store_true", help="only say which rows there are")
    parser.add_argument("--replay", metavar="FILE", help="print what --json gave, measure nothing")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")


def show(made: dict, args, print_all) -> int:
    """Prints the state and the rows of such a benchmark; its exit status."""
    if args.json:
        print(json.dumps(made, indent=1))
    else:
        print_all(made, args.markdown)
    return 1 if "fault" in made["state"] else 0


def write_json(made: dict, path: str | None) -> bool:
    """Writes JSON where --json FILE says; whether that is the output, which has room for nothing else."""
    if path and path != "-":
        Path(path).write_text(json.dumps(made, indent=1) + "\n")
    elif path:
        sys.stdout.write(json.dumps(made, indent=1) + "\n")
    return path == "-"


def save(path: str | None, made: dict) -> None:
    """Write what has been measured so far as JSON; a reader never sees half a file."""
    if path:
        Path(path + ".new").write_text(json.dumps(made, indent=1))
        os.replace(path + ".new", path)


def once_ms(run) -> float:
    """Milliseconds of one run, by the clock of the host."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def settle(run) -> None:
    """Run for a fifth of a second: after a rest, or after work that takes less power, the clock is
    up to a tenth higher than under a load that lasts."""
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        for _ in range(8):
            run()
        torch.cuda.synchronize()


class EnergyCounter:
    """The board's counter of energy, by NVML, which comes with the driver."""

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self.ask("nvmlInit_v2")
        self.ask("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self.device))

    def ask(self, function: str, *arguments: object) -> None:
        if status := getattr(self.nvml, function)(*arguments):
            raise OSError(f"{function} returned {status}")

    def joules(self) -> float:
        millijoules = ctypes.c_ulonglong()
        self.ask("nvmlDeviceGetTotalEnergyConsumption", self.device, ctypes.byref(millijoules))
        return millijoules.value * 1e-3

    def of_one(self, run, seconds: float) -> float:
        """Joules of one run, over so many seconds of it behind a fifth of a second of the same."""
        settle(run)
        start, end, count = self.joules(), time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for _ in range(8):
                run()
            torch.cuda.synchronize()
            count += 8
        return (self.joules() - start) / count


def matmul(args) -> float:
    """TFLOP/s of a large bf16 product of random numbers: the yardstick of the power state."""
    a, b = (torch.randn(MATMUL, MATMUL, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    settle(lambda: a @ b)
    return 2.0 * MATMUL**3 / time_ms(lambda: a @ b, args) * 1e-9


def smi(fields: str) -> str:
    try:
        command = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "nvidia-smi does not answer"


def state_of(args) -> dict:
    return {
        "command": " ".join([f"bench/gpu/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "gpu": torch.cuda.get_device_name(0),
        "smi": smi("driver_version,power.limit,clocks.max.sm,clocks.max.mem,temperature.gpu"),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "protocol": f"do_bench of {args.warmup} + {args.rep} ms, medians; rounds: {args.rounds}",
        "matmul_tflops": [matmul(args)],
    }


def end_state(state: dict, args) -> None:
    state["smi_after"] = smi("power.draw,clocks.sm,clocks.mem,temperature.gpu")
    state["matmul_tflops"].append(matmul(args))


def table(lines: list[list[str]], markdown: bool) -> str:
    """A table of text; the first line is its head, the first column the names of its rows."""
    if markdown:
        made = [f"| {' | '.join(line)} |" for line in lines]
        made.insert(1, "|---" * len(lines[0]) + "|")
        return "\n".join(made)
    wide = [max(len(line[x]) for line in lines) for x in range(len(lines[0]))]
    made = []
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, wide[1:])]
        made.append(" ".join([first.ljust(wide[0]), *cells]))
    return "\n".join(made)


def print_state(state: dict) -> None:
    print(f"{state['command']}, {state['date']}")
    print(f"{state['gpu']} ({state['smi']}), PyTorch {state['torch']}, cuDNN {state['cudnn']}")
    print(f"{state['protocol']}; TFLOP/s, causal counts half")


def print_end(state: dict) -> None:
    before, after = state["matmul_tflops"]
    print(f"matmul {MATMUL}^3: {before:.0f} before, {after:.0f} after")
    print(f"now {state['smi_after']}; {state['seconds']:.0f} s in all")
