"""Milliseconds per training step of transformers models, with ordo's attention and with SDPA's.

GPT-2 124M and four layers of Llama-3 8B's size; dense, padded and packed batches; attention dropout
0 and 0.1. bf16 autocast, AdamW. The ways of a row share one model; a figure is the median of all
steps.

    ordo          under strict determinism
    flash, cudnn, efficient, math     SDPA by that backend alone, without determinism (math is asked
                                      where the others refuse)
    strict        SDPA under torch.use_deterministic_algorithms(True), which chooses its backend

Under strict determinism PyTorch fills every new tensor with NaN first, which costs a launch each and
changes no bit of these models: that is switched off, as examples/train does it.

Rows of the group recorder are steps of GPT-2 with ordo's attention, bare and recorded: every=10 in
blocks of 20 steps (weights, gradients, loss, batch, seeds, plans), and calls saved for an audit,
without digests, in blocks of 100. The bars are 2 % and 0.5 %.

Rows of the group invariant are steps with ordo's attention, inside ordo.torch.invariant() and plain,
neither under strict determinism. The bar is 1.10.

--device cpu is a trial on small models.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import driver
import pytorch
from show import Column, over, time_over

CPU = True
DEFAULTS = {"rounds": 5}
STEPS = 5  # per turn of a way
BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION",
            "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}  # fmt: skip
BLOCKS = {"every 10": (20, 1.02), "calls": (100, 1.005)}  # steps of a turn, bar
TITLES = {"recorder": "ms per step of GPT-2 124M", "invariant": "ms per step, rows alone or in a batch alike"}
trainers: dict = {}  # by name of the model


def fastest(row: dict, suffix: str) -> float | None:
    theirs = [row["ms"][name] for name in BACKENDS if name in row["ms"]]
    return over(row["ms"].get("ordo"), min(theirs)) if theirs and not suffix else None


COLUMNS = {
    "": [
        time_over("÷ cudnn", "ordo", "cudnn"),
        Column("÷ fastest", fastest, must=1.0, most=True),
        time_over("÷ strict", "ordo", "strict"),
    ],
    "recorder": [
        time_over("recorded / bare", "recorded", "bare", must=lambda row, x: BLOCKS[row["name"]][1])
    ],
    "invariant": [time_over("invariant / plain", "invariant", "plain", must=lambda row, x: 1.10)],
}


def load(args):
    sys.path[:0] = [str(driver.ROOT / "tests" / "python" / "torch_front")]
    board = driver.use_torch(args, "product")
    try:
        import transformers  # noqa: F401
    except ImportError as missing:
        raise driver.Skip(missing) from missing
    import ordo.transformers
    import torch.utils.deterministic

    torch.utils.deterministic.fill_uninitialized_memory = False
    ordo.transformers.register()
    return board


def rows() -> list[dict]:
    made = [
        {"group": "", "name": f"{model} {kind} p {p}", "model": model, "batch": kind, "dropout": p}
        for model in ("gpt2", "llama") for kind in ("dense", "padded", "packed") for p in (0.1, 0.0)
    ]  # fmt: skip
    made += [{"group": "invariant", "name": f"{model} alike", "model": model} for model in ("gpt2", "llama")]
    return made + [{"group": "recorder", "name": name, "model": "gpt2"} for name in BLOCKS]


class Trainer:
    """A model, its optimizer and a batch; step() runs one step by one of the ways."""

    def __init__(self, name: str, board) -> None:
        import models
        import torch

        self.torch, self.models, self.board, self.name = torch, models, board, name
        self.model = models.make(name, "ordo", 0.1, board.name)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, fused=board.name == "cuda"
        )
        self.inputs: dict = {}

    def take(self, kind: str, p: float) -> None:
        self.inputs = self.models.batch(self.name, kind, self.board.name)
        self.torch.manual_seed(1)
        changed = 0
        for module in self.model.modules():
            if isinstance(getattr(module, "attention_dropout", None), float):  # Llama
                module.attention_dropout, changed = p, changed + 1
            elif hasattr(module, "attn_dropout"):  # GPT-2
                module.attn_dropout.p, changed = p, changed + 1
        assert changed == self.model.config.num_hidden_layers

    def loss(self):
        with self.torch.autocast(self.board.name, self.torch.bfloat16):
            return self.model(**self.inputs, use_cache=False).loss

    def step(
        self, implementation: str = "ordo", strict: bool = True, backend: str = "", context: Any = None
    ) -> float:
        """Milliseconds of one step, its forward pass in a context."""
        torch = self.torch
        self.model.config._attn_implementation = implementation
        limit = context or contextlib.nullcontext()
        if backend:
            chosen = getattr(torch.nn.attention.SDPBackend, backend)
            limit = torch.nn.attention.sdpa_kernel(chosen)

        def whole() -> None:
            with limit:
                self.loss().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

        torch.use_deterministic_algorithms(strict)
        try:
            return self.board.once_ms(whole)
        finally:
            torch.use_deterministic_algorithms(False)
            self.optimizer.zero_grad()

    def recorded(self, steps: int, recorder) -> list[float]:
        """Milliseconds per step of so many that `recorder`, if there is one, sees."""
        self.board.sync()
        begin = time.perf_counter()
        for step in range(steps):
            loss = self.loss()
            self.optimizer.zero_grad()
            loss.backward()
            if recorder is not None:
                recorder.step(step, loss, batch=range(8 * step, 8 * step + 8))
            self.optimizer.step()
        self.board.sync()
        return [(time.perf_counter() - begin) / steps * 1e3]


def enter(contest, row: dict) -> None:
    trainer = trainers.get(row["model"]) or Trainer(row["model"], contest.board)
    trainers[row["model"]] = trainer
    if row["group"] == "invariant":
        enter_invariant(contest, trainer)
        return
    if row["group"]:
        enter_recorder(contest, row, trainer)
        return
    trainer.take(row["batch"], row["dropout"])
    ways = {"ordo": ("ordo", True, ""), "strict": ("sdpa", True, "")}
    ways |= {name: ("sdpa", False, backend) for name, backend in BACKENDS.items()}
    for name, way in ways.items():
        if name == "math" and any(other in contest.timed for other in BACKENDS):
            continue
        # The first step makes plans, and loads or tunes kernels.
        if contest.attempt(name, lambda way=way: [trainer.step(*way) for _ in range(2)]):
            contest.clock(name, lambda way=way: [trainer.step(*way) for _ in range(STEPS + 1)][1:])
    if contest.board.name == "cuda":
        contest.notes["launches"] = {
            name: pytorch.launches(lambda way=ways[name]: trainer.step(*way))
            for name in contest.timed
        }


def enter_invariant(contest, trainer: Trainer) -> None:
    import ordo.torch

    trainer.take("dense", 0.1)
    for name, make in (("plain", contextlib.nullcontext), ("invariant", ordo.torch.invariant)):
        def steps(count: int, make=make) -> list[float]:
            return [trainer.step("ordo", False, context=make()) for _ in range(count)]

        if contest.attempt(name, lambda steps=steps: steps(2)):
            contest.clock(name, lambda steps=steps: steps(STEPS + 1)[1:])


def enter_recorder(contest, row: dict, trainer: Trainer) -> None:
    import ordo

    trainer.take("dense", 0.1)
    trainer.model.config._attn_implementation = "ordo"
    steps = BLOCKS[row["name"]][0] if contest.board.name == "cuda" else 4

    def record() -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            path, calls = Path(folder) / "run.jsonl", Path(folder) / "calls"
            more = {"every": 10}
            if row["name"] == "calls":
                more = {"every": steps, "weights": False, "gradients": False, "calls": calls}
            recorder = ordo.Recorder(path, trainer.model, **more)
            took = trainer.recorded(steps, recorder)
            recorder.close()
            contest.notes["line_bytes"] = len(path.read_bytes().splitlines()[-1])
            contest.notes["saved_bytes"] = [x.stat().st_size for x in calls.glob("*")]
        return took

    trainer.recorded(2, None)
    contest.clock("bare", lambda: trainer.recorded(steps, None))
    contest.clock("recorded", record)
