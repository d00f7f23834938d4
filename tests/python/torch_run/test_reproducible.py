"""ordo.torch.reproducible: what it sets, what it cannot set any more, what it names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ordo
import pytest
import torch
from ordo.run import _reproducible
from ordo.torch import reproducible


@pytest.fixture
def reproduced():
    """Call reproducible; set everything back afterwards."""
    made = []

    def call(*arguments, **keywords):
        made.append(reproducible(*arguments, **keywords))
        return made[-1]

    yield call
    for report in reversed(made):
        report.restore()


def values():
    return (
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.mkldnn.deterministic,
        torch.get_num_threads(),
    )


@pytest.mark.parametrize("needed", [True, False])
def test_everything_is_set_said_and_set_back(monkeypatch, capfd, needed):
    """CUBLAS_WORKSPACE_CONFIG only where PyTorch needs it: every product would parse it."""
    monkeypatch.setattr(_reproducible, "needs_cublas_variable", lambda: needed)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.backends.cudnn.benchmark = True
    before = values()
    report = reproducible(threads=1, fill_memory=False)
    after = values()
    report.restore()
    workspaces = ":4096:8" if needed else None
    assert after == (workspaces, 2, False, True, False, False, "highest", False, False, True, 1)
    assert values() == before
    torch.backends.cudnn.benchmark = False
    said = {setting.name: setting for setting in report.settings}
    assert said["cudnn.benchmark"][1:3] == ("True", "False")
    assert said["CPU threads"].now == "1"
    assert "cudnn.benchmark = False (was True)" in str(report)
    assert "not covered: other shapes" in str(report) and "invariant()" in report.not_covered[0]
    assert capfd.readouterr() == ("", "")


def test_choices_are_kept(reproduced, monkeypatch):
    """The number of threads without `threads`, TF32 with `tf32`, a workspace that will do."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    torch.set_num_threads(3)
    report = reproduced(tf32=True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert "memory.fill_uninitialized_memory = True: " in str(report)
    assert torch.get_num_threads() == 3 and torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cudnn.allow_tf32
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_the_newer_precision_switches_are_overruled(reproduced):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    report = reproduced()
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    found = {setting.name: setting.found for setting in report.settings}
    assert found["float32 matmul precision"] == "None"


def test_whether_pytorch_needs_the_variable_of_cublas():
    """As its headers say, which declare the check that raises an error without it."""
    header = Path(torch.__file__).parent / "include" / "ATen" / "Context.h"
    declared = "void alertCuBLASConfigNotDeterministic(" in header.read_text()
    assert _reproducible.needs_cublas_variable() == declared


def test_too_late_for_cublas(reproduced, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":8:8")
    report = reproduced()
    assert not report and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":8:8"
    assert any("CUBLAS_WORKSPACE_CONFIG :8:8: expected :4096:8" in x for x in report.problems)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert not any("CUBLAS" in x for x in reproduced().problems)


def test_a_forced_tf32_is_a_problem(reproduced, monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    assert any("NVIDIA_TF32_OVERRIDE 1" in x for x in reproduced().problems)


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="PyTorch without MKL")
@pytest.mark.parametrize("late", [False, True])
def test_too_late_for_mkl(late):
    """MKL reads its variable at its first call: a product before that makes it too late."""
    product = "torch.ones(8, 8) @ torch.ones(8, 8)"
    program = ["import ordo.torch, torch", product if late else "",
               "print(*ordo.torch.reproducible().problems)"]  # fmt: skip
    paths = [os.path.dirname(os.path.dirname(ordo.__file__)), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths)}
    environment.pop("MKL_CBWR", None)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(program)], env=environment, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert ("MKL_CBWR unset: expected AUTO" in done.stdout) == late


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.back = torch.nn.MaxUnpool2d(2)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        small, places = torch.nn.functional.max_pool2d(
            self.drop(self.layer(x)), 2, return_indices=True
        )
        return self.back(small, places)


def test_modules_are_named(reproduced):
    report = reproduced(Pooled())
    assert [(x.where, x.what) for x in report.operations] == [("back", "MaxUnpool2d")]
    assert "NOT DETERMINISTIC: MaxUnpool2d in back" in str(report) and not report


def test_modules_on_cuda_are_named(monkeypatch):
    from ordo.run import _unordered

    model = torch.nn.Sequential(
        torch.nn.MaxPool3d(2), torch.nn.Upsample(mode="nearest"), torch.nn.Upsample(mode="bicubic"),
        torch.nn.EmbeddingBag(2, 2, mode="max"), torch.nn.EmbeddingBag(2, 2), torch.nn.Linear(2, 2),
    )  # fmt: skip
    assert _unordered.by_module(model) == []
    found = [i for i, module in enumerate(model) if _unordered._why_not(module, True)]
    assert found == [0, 2, 3]
    for name in (*_unordered._ON_CUDA, *_unordered._ANYWHERE):
        assert hasattr(torch.nn, name)


def test_a_step_names_what_it_calls(reproduced):
    model = Pooled()
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        values = model(torch.ones(1, 1, 4, 4))
        values = values.flatten().put(torch.tensor([0]), values.sum())  # warns, and its gradient
        values.sum().backward()
        optimizer.step()

    weight, draws = model.layer.weight.clone(), torch.get_rng_state()
    report = reproduced(model, step=step, optimizer=optimizer)
    found = [(x.where, x.what) for x in report.operations]
    outside = "the backward pass, or outside of the model"
    assert ("back", "max_unpooling2d_forward_out") in found and (outside, "put_") in found
    assert len(found) == len(set(found))
    # everything is as it was, and strict again
    assert torch.equal(model.layer.weight, weight) and model.layer.weight.grad is None
    assert torch.equal(torch.get_rng_state(), draws) and not optimizer.state
    assert torch.get_deterministic_debug_mode() == 2
    with pytest.raises(RuntimeError, match="deterministic"):
        step()


def test_a_step_that_fails_leaves_everything_as_it_was(reproduced):
    model = torch.nn.Linear(2, 2)
    gradient = torch.ones(2, 2)
    model.weight.grad = gradient
    before = values()
    with pytest.raises(ValueError, match="planned"):
        reproduced(model, step=lambda: (_ for _ in ()).throw(ValueError("planned")))
    assert model.weight.grad is gradient and not model._forward_hooks
    assert values() == before


def test_of_a_good_step_a_fused_optimizer_alone_is_named(reproduced):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    for fused, named in ((False, []), (True, ["fused=True"])):  # on the CPU
        optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
        report = reproduced(model, step=lambda: model(torch.ones(2, 4)).sum().backward(), optimizer=optimizer)
        assert [x.what for x in report.operations] == named


def test_bad_arguments_change_nothing():
    before = values()
    with pytest.raises(ordo.Error, match="threads 0: expected 1 or more"):
        reproducible(threads=0)
    with pytest.raises(ordo.Error, match="model None"):
        reproducible(step=lambda: None)
    assert values() == before
