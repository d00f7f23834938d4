"""tools/train: what it accepts as a run that was resumed, and its limits."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}


def run(*command):
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, env=ENVIRONMENT, capture_output=True,
        text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize(
    "left, begun, accepted",
    [
        (["step-00000004", "step-00000008"], "step-00000008", True),
        (["step-00000004", "step-00000008", "step-00000012"], "step-00000012", True),
        (["step-00000004"], "step-00000004", False),  # step 10 was seen: that of step 8 is lost
        ([], "step-00000000", False),
        (["step-00000008"], "step-00000000", False),  # it was there, and was not read
    ],
)
def test_equal_weights_are_not_enough(monkeypatch, tmp_path, capsys, left, begun, accepted):
    """A run that began again from nothing has the same weights, and must not pass as resumed."""
    loader = SourceFileLoader("train_tool", str(ROOT / "tools" / "train"))
    tool = module_from_spec(spec_from_loader("train_tool", loader))
    loader.exec_module(tool)
    out = tmp_path / "run-0"

    class Pretended:
        def __init__(self, folder, ranks, args, errors=None):
            self.step, self.begun = 10, begun
            self.process = SimpleNamespace(returncode=-9)

        def kill_when(self, due, delay, one):
            for name in left:
                (out / name).mkdir(parents=True)

        def finish(self):
            return "digest"

    monkeypatch.setattr(tool, "Training", Pretended)
    args = SimpleNamespace(out=tmp_path, ranks=[2, 3], runs=1, steps=20, save_every=4)
    assert tool.interrupted(0, "digest", args) is accepted
    assert ("FAIL" in capsys.readouterr().out) is not accepted


@pytest.mark.parametrize("wrong", [["--limit", "0.5"], ["--wrong"]], ids=["late", "never begun"])
def test_a_training_that_does_not_end_is_no_difference(tmp_path, wrong):
    done = run("tools/train", "--preset", "tiny", *wrong, "--out", tmp_path / "out")
    assert done.returncode == 1 and "FAIL run on 1 rank: it did not end" in done.stdout, done.stderr
    assert "DIFFERENT" not in done.stdout
    if wrong == ["--wrong"]:
        assert "unrecognized arguments: --wrong" in done.stderr and "killed" not in done.stdout
