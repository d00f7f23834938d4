"""bench/gpu/training_steps: how a row is timed, and what it says before all rounds are done."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

BENCH = Path(__file__).resolve().parents[3] / "bench" / "gpu" / "training_steps"


@pytest.fixture
def bench():
    loader = SourceFileLoader("training_steps", str(BENCH))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Pretended:
    """A trainer whose steps take what a table says."""

    name, torch = "gpt2", torch

    def __init__(self, seconds):
        self.seconds, self.ran = seconds, []

    def take(self, kind, p):
        pass

    def step(self, way):
        self.ran.append(way[0])
        return self.seconds[way[0]]

    def refusal(self, way):
        return ("", self.step(way)) if way[0] in self.seconds else ("has no such mask", 0.0)


WAYS = [(name, "", False, None) for name in ("ordo", "flash", "cudnn", "math", "strict")]


def test_a_row_says_what_it_has_after_each_round(bench):
    trainer = Pretended({"ordo": 0.05, "cudnn": 0.1, "math": 0.2, "strict": 2.0})
    row, args = bench.Row(trainer, "padded", 0.1), SimpleNamespace(rounds=2, steps=5, budget=0)
    said = []
    bench.rounds([row], WAYS, args, lambda x, first: said.append((first, x.made())))
    assert [first for first, _ in said] == [True, False]
    for _, made in said:
        assert made["refused"] == {"flash": "has no such mask"}
        assert made["ms"] == pytest.approx({"ordo": 50, "cudnn": 100, "strict": 2000})
        assert made["fastest"] == "cudnn" and made["over_cudnn"] == pytest.approx(0.5)
        assert made["over_strict"] == pytest.approx(0.025)
    assert [made["steps"]["ordo"] for _, made in said] == [2, 7]
    assert said[-1][1]["steps"]["strict"] == 1 and trainer.ran.count("strict") == 1
    assert "math" not in trainer.ran  # which is asked where all others refuse


def test_a_spent_budget_ends_the_rounds_after_the_first(bench, monkeypatch):
    rows = [bench.Row(Pretended({"ordo": 0.05}), kind, 0.0) for kind in ("dense", "packed")]
    monkeypatch.setattr(bench, "START", -1e9)
    args = SimpleNamespace(rounds=5, steps=5, budget=1)
    bench.rounds(rows, WAYS, args, lambda *x: None)
    assert [len(row.times["ordo"]) for row in rows] == [2, 2]
