"""examples/train in a separate process that trains when it is told to: strict determinism is a
state of a whole process. For `bench/gpu/run train_h200`.

    train_peer.py ATTENTION [options of examples/train]

One JSON object per line of input: {p, backend, steps}; answers {ms: [...]} or {refused}.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples" / "train")]


def answer(what: dict) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    import train
    from torch.nn.attention import SDPBackend, sdpa_kernel

    class Worker(train.Run):
        def steps(self, p: float, backend: str, count: int) -> list[float]:
            self.model.p = p
            for block in self.model.blocks:
                block.p = p
            limit = sdpa_kernel(getattr(SDPBackend, backend)) if backend else None
            times = []
            with limit or contextlib.nullcontext():
                for _ in range(count):
                    begin = time.perf_counter()
                    self.update()  # reads the loss, for which it waits for the device
                    times.append(1e3 * (time.perf_counter() - begin))
            return times

        def train(self) -> None:
            for line in sys.stdin:
                told = json.loads(line)
                try:
                    answer({"ms": self.steps(told["p"], told["backend"], told["steps"])})
                except RuntimeError as error:  # a backend that does not take the problem
                    self.optimizer.zero_grad()
                    answer({"refused": str(error).splitlines()[0]})
            os._exit(0)  # what is left to do is of no use

    train.Run = Worker
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        more = ["--attention", sys.argv[1], "--out", f"{folder}/out", "--save-every", "0"]
        args = train.read_arguments([*sys.argv[2:], *more, "--steps", "100000"])
        train.rank_main(args, 0, 1, f"file://{folder}/ranks")


if __name__ == "__main__":
    main()
