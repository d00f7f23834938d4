"""Records of runs: what is written, files that are continued, kills, and refusals."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import ordo
import pytest
from ordo import _pieces


def run(path, steps, *, first=0, change=None, **options):
    """A run on NumPy: gradient descent with names, losses and batches."""
    rng = np.random.default_rng(5)
    weights = {"head": rng.standard_normal(300), "body": rng.standard_normal((40, 50))}
    with ordo.Recorder(path, **options) as recorder:
        for step in range(steps):
            gradients = {name: np.sin(x + step) for name, x in weights.items()}
            given = dict(loss=np.float32(sum(x.sum() for x in weights.values())), batch=[step, 3])
            given.update(weights=weights, gradients=gradients, seeds=[(7, step)])
            if change:
                change(step, given)
            if step >= first:
                recorder.step(step, **given)
            weights = {name: x - 0.01 * gradients[name] for name, x in weights.items()}
    return recorder


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written(tmp_path):
    path = tmp_path / "run.jsonl"
    run(path, 7, every=3)
    header, *steps = lines(path)
    assert header["ordo_record"] == 1 and header["digest"] == "xxh64-pieces"
    assert header["versions"]["ordo"] == ordo.version() and header["ranks"] == 1
    assert "resumed" not in header
    assert [x["step"] for x in steps] == [0, 3, 6]
    first = np.random.default_rng(5).standard_normal(300)
    assert steps[0]["weights"]["head"] == f"{_pieces.of_arrays([first])[0]:016x}"
    assert list(steps[0]["gradients"]) == ["head", "body"]
    assert steps[1]["batch"] == [3, 3] and steps[1]["seeds"] == [[7, 3]]
    assert isinstance(steps[0]["loss_value"], float) and len(steps[0]["loss"]) == 16


def test_equal_runs_and_the_command(tmp_path, command):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    run(a, 20)
    run(b, 25, every=2)
    found = ordo.compare(a, b)
    assert found and found.steps == 10 and found.step is None
    assert str(found).startswith("equal: 10 steps, 0 to 18, 4 tensors")
    said = subprocess.run([command, "compare", a, b], capture_output=True, text=True, timeout=600)
    assert said.returncode == 0 and said.stdout.strip() == str(found)


def flip(step, given):
    """One bit of one weight, at step 17 alone: what follows does not see it."""
    if step == 17:
        body = given["weights"]["body"].copy()
        body.view(np.uint64)[3, 4] ^= 1
        given["weights"] = {**given["weights"], "body": body}


@pytest.mark.parametrize("cut, lost", [(0, 0), (1, 0), (30, 1), (200, 1)])
def test_a_run_is_continued(tmp_path, cut, lost):
    """Killed in the middle of a line, continued from an earlier step."""
    path, whole = tmp_path / "run.jsonl", tmp_path / "whole.jsonl"
    run(whole, 20)
    run(path, 12)
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])
    recorder = run(path, 20, first=8)
    assert recorder.repeated == [(step, True) for step in range(8, 12 - lost)]
    found = ordo.compare(path, whole)
    assert found and found.steps == 20 and found.ignored == (0, 0)
    assert ("A: 1 line truncated where the run was resumed" in str(found)) is bool(lost)
    assert sum(b'"resumed":true' in x for x in path.read_bytes().splitlines()) == 1


def test_a_step_that_does_not_repeat_is_recorded_as_such(tmp_path):
    path, whole = tmp_path / "run.jsonl", tmp_path / "whole.jsonl"
    run(whole, 20)
    run(path, 19)
    with pytest.warns(UserWarning, match="step 17 gave other results"):
        recorder = run(path, 20, first=16, change=flip)
    assert recorder.repeated == [(16, True), (17, False), (18, True)]
    assert [x["repeat"] for x in lines(path) if "repeat" in x] == ["equal", "different", "equal"]
    found = ordo.compare(whole, path)
    assert (found.step, found.different, found.weights) == (17, "weight body", (1, 2))
    assert "repeat" in found.causes and "weights" in found.causes


CHANGES = {
    "batch": [17, 4],
    "loss": np.float32(7),
    "weights": {"head": np.ones(300), "body": np.ones((40, 50))},
    "gradients": {"head": np.ones(300), "body": np.ones((40, 50))},
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_does_not_repeat_is_noticed(tmp_path, what):
    """Each part of a step's results alone."""

    def change(step, given):
        if step == 1:
            given[what] = CHANGES[what]

    path = tmp_path / "run.jsonl"
    run(path, 3)
    with pytest.warns(UserWarning, match="step 1 gave other results"):
        recorder = run(path, 3, change=change)
    assert recorder.repeated == [(0, True), (1, False), (2, True)]


def forked(work):
    """A forked child that runs work() and then ends as a program does; its number."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            atexit._run_exitfuncs()
            os._exit(0)
    return child


def test_forked_children(tmp_path):
    """A child that ends neither writes nor unlocks the record; one that lives does not hold it."""
    path = tmp_path / "run.jsonl"
    recorder = ordo.Recorder(path)
    recorder.step(0, 1.0)
    kept = path.read_bytes()
    fetch = SimpleNamespace(ready=lambda: False, wait=lambda: ([], []))
    recorder._pending = {"step": 1}, fetch, None
    os.waitpid(forked(lambda: None), 0)
    assert path.read_bytes() == kept
    with pytest.raises(ordo.Error, match="no other process"):
        ordo.Recorder(path)
    child = forked(lambda: time.sleep(600))
    try:
        recorder.close()
        run(path, 3)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert [x.get("step") for x in lines(path)] == [None, 0, 1, None, 0, 1, 2]


def test_lines_that_are_nested_deeply(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("[" * 200_000 + "\n")
    with pytest.raises(ordo.Error, match="expected a new file, or a record"):
        ordo.Recorder(path)
    path.unlink()
    run(path, 3)
    with open(path, "a") as file:
        file.write('{"step":3,"batch":' + "[" * 200_000 + "\n")
    run(path, 5, first=3)
    assert ordo.compare(path, path).steps == 5


def test_batches_loss_and_seeds(tmp_path):
    path = tmp_path / "run.jsonl"
    with ordo.Recorder(path) as recorder:
        recorder.step(0, 1.5, batch=range(64), plans=["ordo-plan/1 x=1"])
        recorder.step(1, float("nan"), batch=np.arange(65))
        recorder.step(2, batch=np.arange(65, dtype=np.int32))
        recorder.step(3, batch="shard-17")
        recorder.step(4, np.float64(1e300))
        recorder.step(-5, 1e-300)
    _, zero, one, two, three, four, five = lines(path)
    assert zero["batch"] == list(range(64)) and zero["plans"] == ["ordo-plan/1 x=1"]
    assert one["loss_value"] is None and one["batch"] == two["batch"] and len(one["batch"]) == 16
    assert three["batch"] == "shard-17" and "loss" not in three
    assert four["loss_value"] == 1e300 and five["step"] == -5
    assert ordo.compare(path, path).steps == 6  # every line is read, whatever the loss


def test_refusals(tmp_path):
    path, notes = tmp_path / "run.jsonl", tmp_path / "notes"
    notes.write_text("notes of mine\n")
    with ordo.Recorder(path) as recorder:
        for place, options, message in (
            (path, dict(every=0), "every 0"),
            (path, {}, "no other process"),
            (notes, {}, "expected a new file, or a record"),
            (tmp_path / "no" / "run.jsonl", {}, "No such file"),
            ("/dev/full", {}, "No space left"),
        ):
            with pytest.raises(ordo.Error, match=message):
                ordo.Recorder(place, **options)
        masked = np.ma.masked_array([1.0, 2.0], [True, False])
        for given, message in (
            (dict(step=1.5), "step 1.5"),
            (dict(loss=np.zeros(3)), "loss of shape"),
            (dict(batch=[object()]), "batch list: expected an array or tensor of numbers"),
            (dict(weights={"head": None}), r"weights\['head'\] NoneType: expected an array"),
            (dict(gradients={"a": np.array([None])}), r"gradients\['a'\].dtype object: expected"),
            (dict(gradients={"a": masked}), r"gradients\['a'\] MaskedArray: expected"),
            (dict(loss=Fraction(1, 3)), "loss Fraction: expected"),
            (dict(loss=1j), "loss.dtype complex128: expected a real number"),
            (dict(batch=masked), "batch MaskedArray: expected"),
        ):
            with pytest.raises(ordo.Error, match=message):
                recorder.step(**dict(step=1) | given)
    assert notes.read_text() == "notes of mine\n"
    with pytest.raises(ordo.Error, match="it was closed"):
        recorder.step(2)
    with pytest.raises(ordo.Error, match="expected some in common"):
        ordo.compare(path, path)
    for given in (None, {}, "run\0.jsonl"):
        with pytest.raises(ordo.Error, match="b .*: expected the path of a record"):
            ordo.compare(path, given)


def test_ranks(tmp_path):
    with ordo.Recorder(tmp_path / "run.jsonl", rank=1, ranks=2) as recorder:
        assert recorder.step(0, 1.0) is False
    assert not (tmp_path / "run.jsonl").exists()
    with ordo.Recorder(tmp_path / "run-{rank}.jsonl", rank=1, ranks=2) as recorder:
        assert recorder.step(0, 1.0) is True
    header, _ = lines(tmp_path / "run-1.jsonl")
    assert (header["rank"], header["ranks"]) == (1, 2)


PROGRAM = """
import sys, time
sys.path[:0] = sys.argv[3:]
import test_recorder
test_recorder.run(sys.argv[1], 400, first=int(sys.argv[2]), change=lambda *_: time.sleep(0.001))
"""


def test_killed_at_any_moment(tmp_path):
    """SIGKILL while a run records; each time it goes on a few steps before where it was."""
    path, whole = tmp_path / "run.jsonl", tmp_path / "whole.jsonl"
    run(whole, 400)
    random = np.random.default_rng(11)
    for kill in range(4):
        first = max(0, len(path.read_bytes().splitlines()) - 20) if path.exists() else 0
        arguments = [str(path), str(first), os.path.dirname(__file__), *sys.path]
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments])
        while not path.exists() and child.poll() is None:
            time.sleep(0.01)
        time.sleep(0.4 * random.random())
        if kill < 3:
            child.send_signal(signal.SIGKILL)
        child.wait(60)
    assert child.returncode == 0
    found = ordo.compare(path, whole)
    assert found and found.equal_steps == 400, str(found)
