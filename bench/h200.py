"""What the benchmarks of one H200 share: building, timing, the state of the GPU, the peers' table.

Importing it needs neither PyTorch nor a GPU; load() does, and ends the program with 77 without.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def peers() -> list[dict]:
    """Rows of the peers' table; figures as numbers."""
    with open(ROOT / "bench" / "peers_h200.csv") as file:
        lines = [line for line in file if not line.startswith("#")]
    rows = []
    for row in csv.DictReader(lines):
        rows.append({name: x if name == "mask" else float(x) for name, x in row.items()})
    return rows


def time_ms(run, args) -> float:
    """By the peers' protocol: median of CUDA-event times, L2 flushed between runs."""
    return triton.testing.do_bench(run, warmup=args.warmup, rep=args.rep, return_mode="median")


def settle(run) -> None:
    """Run for a fifth of a second: after a rest, or after work that takes less power, the clock is
    up to a tenth higher than under a load that lasts."""
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        for _ in range(8):
            run()
        torch.cuda.synchronize()


def matmul(args) -> float:
    """TFLOP/s of a large bf16 product of random numbers: the yardstick of the power state."""
    a, b = (torch.randn(MATMUL, MATMUL, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2.0 * MATMUL**3 / time_ms(lambda: a @ b, args) * 1e-9


def smi(fields: str) -> str:
    try:
        command = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "nvidia-smi does not answer"


def state_of(args) -> dict:
    return {
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
