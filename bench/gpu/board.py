"""The device that contestants run on: time, energy, and what state it is in."""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

MATMUL = 8192
FLUSH_BYTES = 256 << 20  # five times L2
SETTLE_S = 0.2
ENERGY_S = 2.0


def smi(fields: str) -> str:
    try:
        command = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "nvidia-smi does not answer"


class Energy:
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

    def watts(self, work: Callable[[], Any]) -> float:
        """Mean power of the board while work() runs, from one step of the counter to another: the
        driver adds to it every some tens of milliseconds."""
        steps: list[tuple[float, float]] = []
        done = threading.Event()

        def look() -> None:
            last = self.joules()
            while not done.wait(1e-3):
                now = self.joules()
                if now != last:
                    steps.append((time.monotonic(), now))
                last = now

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            work()
        finally:
            done.set()
            watcher.join()
        if len(steps) < 2:
            raise RuntimeError("the counter of energy made fewer than two steps")
        (start, first), (end, last) = steps[0], steps[-1]
        return (last - first) / (end - start)


class Cpu:
    """The CPU, for a trial of a table: its times say nothing of a GPU."""

    name = "cpu"

    def sync(self) -> None:
        pass

    def free(self) -> None:
        """Give back memory of contestants that are gone."""

    def once_ms(self, run: Callable[[], Any]) -> float:
        """Milliseconds of one run, by the clock of the host."""
        self.sync()
        start = time.perf_counter()
        run()
        self.sync()
        return (time.perf_counter() - start) * 1e3

    def ms(self, run: Callable[[], Any], warmup: float, rep: float) -> float:
        return self.once_ms(run)

    def host_ms(self, run: Callable[[], Any]) -> float:
        """What one call takes the host, which does not wait for the device."""
        return 0.0

    def settle(self, run: Callable[[], Any]) -> None:
        pass

    def product(self) -> float | None:
        return None

    def state(self) -> dict[str, Any]:
        return {"gpu": "cpu", "smi": "cpu"}

    def after(self) -> dict[str, Any]:
        return {}


class Device(Cpu):
    """GPU 0, which libraries and other processes use without PyTorch."""

    name = "cuda"

    def state(self) -> dict[str, Any]:
        return {
            "gpu": smi("name"),
            "smi": smi("driver_version,power.limit,clocks.max.sm,temperature.gpu"),
        }

    def after(self) -> dict[str, Any]:
        return {"smi_after": smi("power.draw,clocks.sm,clocks.mem,temperature.gpu")}


class Gpu(Device):
    """GPU 0, by PyTorch."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.cuda = torch, torch.cuda
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def sync(self) -> None:
        self.cuda.synchronize()

    def free(self) -> None:
        self.cuda.empty_cache()

    def ms(self, run: Callable[[], Any], warmup: float, rep: float) -> float:
        """Median of the times that events give, L2 flushed before each run, over `rep` milliseconds of
        runs after `warmup` of the same: the clock follows the power of the last tenths of a second."""
        once = max(self.once_ms(lambda: (self.flush.zero_(), run())), 1e-3)
        for _ in range(max(1, int(warmup / once))):
            self.flush.zero_()
            run()
        events = [self.cuda.Event(enable_timing=True) for _ in range(2 * max(1, int(rep / once)))]
        pairs = list(zip(events[::2], events[1::2]))
        for start, end in pairs:
            self.flush.zero_()
            start.record()
            run()
            end.record()
        self.sync()
        return statistics.median(start.elapsed_time(end) for start, end in pairs)

    def host_ms(self, run: Callable[[], Any]) -> float:
        self.sync()
        start = time.perf_counter()
        for _ in range(5):
            run()
        taken = time.perf_counter() - start
        self.sync()
        return taken * 1e3 / 5

    def runs_for(self, run: Callable[[], Any], seconds: float) -> int:
        """Run again and again; the number of runs."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for _ in range(8):
                run()
            self.sync()
            count += 8
        return count

    def settle(self, run: Callable[[], Any]) -> None:
        """After a rest, or after work that takes less power, the clock is up to a tenth higher than
        under a load that lasts."""
        self.runs_for(run, SETTLE_S)

    def joules(self, run: Callable[[], Any]) -> float:
        """Joules of one run: those of the whole board, at rest included; without flushes."""
        energy = Energy()
        self.settle(run)
        start = energy.joules()
        count = self.runs_for(run, ENERGY_S)
        return (energy.joules() - start) / count

    def product(self) -> float | None:
        """TFLOP/s of a large bf16 product of random numbers: the yardstick of the power state."""
        size = (MATMUL, MATMUL)
        a, b = (self.torch.randn(size, device="cuda", dtype=self.torch.bfloat16) for _ in "ab")
        self.settle(lambda: a @ b)
        return 2.0 * MATMUL**3 / self.ms(lambda: a @ b, 25, 100) * 1e-9

    def state(self) -> dict[str, Any]:
        fields = "driver_version,power.limit,clocks.max.sm,clocks.max.mem,temperature.gpu"
        return {"gpu": self.cuda.get_device_name(0), "smi": smi(fields),
                "torch": self.torch.__version__, "cudnn": self.torch.backends.cudnn.version()}  # fmt: skip
