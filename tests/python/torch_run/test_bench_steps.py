"""`bench/gpu/run training_steps` and `train_h200`: trials on the CPU, with small models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]


def measured(tmp_path, *words) -> tuple[list, str]:
    command = [sys.executable, str(ROOT / "bench" / "gpu" / "run"), *words, "--device", "cpu"]
    command += ["--no-build", "--rounds", "1", "--json", str(tmp_path / "out.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((tmp_path / "out.json").read_text())["rows"], done.stdout


def test_training_steps(tmp_path):
    """Math is asked where all others refuse; recorded steps take turns with bare ones."""
    rows, text = measured(tmp_path, "training_steps", "--rows", "gpt2 padded p 0.1|every 10")
    row, recorded = rows
    ways = {"ordo", "strict", "flash", "cudnn", "efficient", "math"}
    assert set(row["ms"]) | set(row["refused"]) == ways
    assert {"ordo", "strict", "math"} <= set(row["ms"]) and "flash" in row["refused"], row
    assert all(len(ms) == 5 or ms[0] > 1000 for ms in row["rounds"].values()), row["rounds"]
    assert set(recorded["ms"]) == {"bare", "recorded"} and recorded["line_bytes"] > 1000
    assert "÷ fastest" in text and "recorded / bare" in text, text


def test_processes_take_turns(tmp_path):
    """Three processes; backends that the CPU does not have are refused by name."""
    rows, text = measured(tmp_path, "train_h200", "--rows", "dropout 0.1")
    (row,) = rows
    assert {"ordo", "sdpa", "strict"} <= set(row["ms"]) and "sdpa_cudnn" in row["refused"], row
    assert len(row["rounds"]["ordo"]) == 4 and row["tokens"] == 64
    assert "÷ fastest sdpa" in text and "tokens/s" in text, text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["training_steps", "train_h200"])
def test_without_a_gpu(name):
    command = [sys.executable, str(ROOT / "bench" / "gpu" / "run"), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=ROOT)
    said = f"bench/gpu/run {name}: skipped: no CUDA device\n"
    assert (done.returncode, done.stdout) == (77, said)
