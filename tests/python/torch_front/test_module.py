"""ordo.Attention and ordo.verify."""

from __future__ import annotations

import functools
import json
import subprocess

import numpy as np
import ordo
import pytest
import torch
from math64 import same


def test_dropout_applies_while_training():
    attend = ordo.Attention(0.5, causal=True)
    q = torch.randn(2, 9, 2, 16)
    assert not same(attend(q, q, q), attend(q, q, q))
    assert same(attend(q, q, q, seed=1), attend(q, q, q, seed=1))
    attend.eval()
    plain, _ = ordo.torch.attention(q, q, q, causal=True)
    assert same(attend(q, q, q), plain)
    assert "dropout=0.5" in repr(attend) and not list(attend.parameters())


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.attend = ordo.Attention(0.1, causal=True)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 16)).unbind(-3)
        return self.out(self.attend(q, k, v).flatten(-2))


def test_verify_passes_and_leaves_the_model_alone():
    model, x = Layer(), torch.randn(2, 20, 32)
    optimizer = torch.optim.AdamW(model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    random = torch.get_rng_state()

    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    verdict = ordo.verify(step, model, optimizer=optimizer, runs=3)
    assert verdict and verdict.first is None
    assert str(verdict) == "equal: 5 tensors, 3 runs"
    assert list(verdict.digests)[0] == "loss"
    assert all(same(x, y) for x, y in zip(before, model.parameters()))
    assert torch.equal(random, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())


def test_verify_finds_the_model_of_a_step():
    model, x = Layer(), torch.randn(2, 20, 32)
    optimizer = torch.optim.AdamW(model.parameters())
    before = [p.detach().clone() for p in model.parameters()]

    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    verdict = ordo.verify(step)
    assert verdict and list(verdict.digests)[0] == "loss"
    assert "gradient of qkv.weight" in verdict.digests
    assert all(same(x, y) for x, y in zip(before, model.parameters()))
    assert not optimizer.state  # set back, too

    class Trainer:
        def __init__(self):
            self.one, self.other = Layer(), Layer()

        def step(self):
            (self.one(x) + self.other(x)).square().mean().backward()

    verdict = ordo.verify(Trainer().step)
    assert verdict and "gradient of other.qkv.weight" in verdict.digests
    assert ordo.verify(functools.partial(lambda m: m(x).mean().backward(), model))
    with pytest.raises(ordo.Error, match="model None: expected one"):
        ordo.verify(lambda: None)


def test_verify_names_the_first_gradient_that_differs():
    model, x = Layer(), torch.randn(2, 20, 32)
    calls = []

    def step():
        calls.append(None)
        q, k, v = model.qkv(x).unflatten(-1, (3, 2, 16)).unbind(-3)
        hidden = model.attend(q, k, v).flatten(-2)
        if len(calls) > 1:  # the gradient of this differs, the value does not
            hidden = hidden + (hidden - hidden.detach()) * 1e-3
        model.out(hidden).square().mean().backward()

    verdict = ordo.verify(step, model)
    assert not verdict and verdict.run == 1
    assert verdict.first in ("gradient of qkv.weight", "gradient of qkv.bias")
    assert "DIFFERENT: gradient of qkv" in str(verdict)


def test_verify_needs_two_runs():
    with pytest.raises(ordo.Error, match="runs 1: expected 2 or more"):
        ordo.verify(lambda: None, Layer(), runs=1)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_digests_equal_the_commands(command, tmp_path, dtype):
    """The same tensors through `ordo run`: the digests it prints."""
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    made = {name: torch.randn(1, 40, 2, 16).to(kind) for name in ("q", "k", "v", "dout")}
    call = [command, "run", "--device", "cpu", "--dtype", dtype, "--seq", "40", "--json"]
    call += ["--mask", "causal", "--dropout", "0.1", "--seed", "5", "--heads", "2", "--dim", "16"]
    for name, tensor in made.items():
        bits = tensor.view(torch.uint16) if dtype == "bf16" else tensor
        np.save(tmp_path / f"{name}.npy", bits.numpy())
        call += [f"--{name}", str(tmp_path / f"{name}.npy")]
    done = subprocess.run(call, check=True, capture_output=True, text=True, timeout=600)
    printed = json.loads(done.stdout)["digests"]
    q, k, v = (made[name].requires_grad_() for name in "qkv")
    o, lse = ordo.torch.attention(q, k, v, causal=True, dropout_p=0.1, seed=5)
    grads = torch.autograd.grad(o, (q, k, v), made["dout"])
    for name, tensor in zip(("o", "lse", "dq", "dk", "dv"), (o, lse, *grads)):
        assert ordo.digest(tensor) == printed[name], name
