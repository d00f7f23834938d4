"""ordo.verify in processes: as ranks of a group, killed and started again; and the module that it
names when a forward pass differs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time

import ordo
import pytest
import torch
from test_recorder import WIDTH, Block
from torch import distributed


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.block = torch.nn.Sequential(torch.nn.GELU(), torch.nn.Linear(16, 16))
        self.last = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.block(self.first(x)))


@pytest.fixture
def net():
    return Net()


DATA = torch.randn(12, 8, generator=torch.Generator().manual_seed(3))

# verify() forks. At its first backward pass autograd starts threads that a fork loses if it finds a GPU, be it a
# fake one of another test: so the first pass is here, before any test.
torch.ones(1, requires_grad=True).backward()


# ---- the module ----


def test_the_module_that_differs_first_is_named(net):
    """A module that draws from a generator nobody sets back."""
    own = torch.Generator().manual_seed(9)
    net.block[0].register_forward_hook(
        lambda module, x, y: y * (1 + torch.rand((), generator=own))
    )
    verdict = ordo.verify(lambda: net(DATA).square().mean().backward(), net)
    assert not verdict and verdict.module == "block.0 (GELU)"
    assert "the output of block.0 (GELU) differed first" in str(verdict)


def test_a_forward_pass_that_is_equal_is_not_blamed(net):
    runs = []

    def step():
        runs.append(None)
        loss = net(DATA).square().mean()
        (loss * len(runs)).backward()

    verdict = ordo.verify(step, net)
    assert not verdict and verdict.module is None
    assert verdict.first.startswith("gradient of last.")
    assert "no output of a module differed" in str(verdict)


def test_compiled_modules_and_vmap_still_verify(net):
    def step():
        rows = torch.func.vmap(net.block)(net.first(DATA))
        net.last(rows).sum().backward()

    assert ordo.verify(step, net)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert ordo.verify(lambda: compiled(DATA).sum().backward(), net)


def test_tensors_by_name(net):
    verdict = ordo.verify(lambda: dict(out=net(DATA), step=3), net)
    assert verdict and list(verdict.digests) == ["out"]


# ---- ranks ----


def sum_over_ranks(net, order):
    """Each rank takes every n-th sample; gradients are added over ranks."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    net(DATA[rank::ranks]).square().sum().backward()
    for x in net.parameters():
        distributed.all_reduce(x.grad)
        if order == "wrong" and rank == 1:
            x.grad += torch.rand(())  # seeded: the same in every run
        if order == "random":
            x.grad += 1e-3 * (time.monotonic_ns() % 1000)


def test_ranks_repeat(net):
    before = [x.detach().clone() for x in net.parameters()]
    verdict = ordo.verify(lambda: sum_over_ranks(net, "as it is"), ranks=2)
    assert verdict and str(verdict) == "equal: 12 tensors, 2 runs", str(verdict)
    assert all(torch.equal(x, y) and x.grad is None for x, y in zip(net.parameters(), before))
    assert not distributed.is_initialized()


def test_ranks_have_threads_of_their_own():
    """A forked process has none of the threads that OpenMP keeps, and must not wait for them."""
    program = """
import ordo, torch
def step():
    torch.set_num_threads(2)
    return dict(x=torch.ones(1 << 21).exp())
step()
assert ordo.verify(step, ranks=2)
"""
    paths = [os.path.dirname(os.path.dirname(ordo.__file__)), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": ":".join(paths)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=600)


def test_ranks_that_do_not_repeat(net):
    verdict = ordo.verify(lambda: sum_over_ranks(net, "random"), ranks=2)
    assert not verdict and verdict.first.startswith("gradient of last.") and verdict.rank == 0
    assert "in run 1, rank 0" in str(verdict) and verdict.module is None


def test_numbers_of_ranks(net):
    """Sums that follow the number of ranks are found; a step that ignores it passes."""
    verdict = ordo.verify(lambda: sum_over_ranks(net, "as it is"), ranks=(1, 2))
    assert not verdict and (verdict.run, verdict.runs, verdict.rank) == (2, 4, 0)
    verdict = ordo.verify(lambda: net(DATA).square().sum().backward(), ranks=(1, 3))
    assert verdict and verdict.runs == 4


def test_what_fails_in_a_rank_is_said(net):
    def step():
        if distributed.get_rank() == 1:
            raise ValueError("no such sample")
        distributed.barrier()

    with pytest.raises(ordo.Error, match="(?s)failed on rank 1.*no such sample"):
        ordo.verify(step, net, ranks=2)


def test_what_verify_refuses(net):
    def step():
        net(DATA).sum().backward()

    for given, rest, words in (
        ((step, net), dict(ranks=0), "expected"),
        ((step, net), dict(ranks=(1, -1)), "expected"),
        ((step, net), dict(kill=-1), "expected"),
        ((step, net), dict(runs=1), "runs 1: expected 2 or more"),
        ((3, net), {}, "step 3: expected a function"),
        ((lambda: None,), {}, "model None: expected one"),
    ):
        with pytest.raises(ordo.Error, match=words):
            ordo.verify(*given, **rest)


# ---- kills ----


def train(net, folder, *, forgets):
    """Six steps with a checkpoint after each, written atomically; resumes if there is one."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    path = os.path.join(folder, "checkpoint")
    first = 0
    if os.path.exists(path):
        saved = torch.load(path)
        net.load_state_dict(saved["net"])
        first = saved["step"]
        if not forgets:
            optimizer.load_state_dict(saved["optimizer"])
    for step in range(first, 6):
        torch.manual_seed(step)
        optimizer.zero_grad()
        (net(DATA) * torch.rand(12, 4)).square().sum().backward()
        optimizer.step()
        saved = dict(net=net.state_dict(), optimizer=optimizer.state_dict(), step=step + 1)
        torch.save(saved, path + ".new")
        os.replace(path + ".new", path)
        time.sleep(0.02)
    return dict(net.state_dict())


def test_killed_and_resumed(net):
    verdict = ordo.verify(lambda folder: train(net, folder, forgets=False), net, kill=2, runs=3)
    assert verdict, str(verdict)
    assert verdict.kills == 4 and str(verdict).endswith("3 runs, 4 kills")


def test_a_resume_that_forgets_something_is_found(net):
    """Momentum that the checkpoint does not restore."""
    verdict = ordo.verify(
        lambda folder: train(net, folder, forgets=True), net, kill=3, runs=4, seed=1
    )
    assert not verdict and verdict.kills > 0


# ---- models with dropout, and what verify() leaves of them ----


def test_verify_passes_and_leaves_the_model_alone():
    """Given the model, and where the step has it."""
    model, x = Block(), torch.randn(2, 20, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    random = torch.get_rng_state()

    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for given, rest in (((step, model), dict(optimizer=optimizer, runs=3)), ((step,), dict(runs=3))):
        verdict = ordo.verify(*given, **rest)
        assert verdict and verdict.first is None
        assert str(verdict) == "equal: 5 tensors, 3 runs"
        assert list(verdict.digests)[0] == "loss" and "gradient of qkv.weight" in verdict.digests
        assert all(torch.equal(x, y) for x, y in zip(before, model.parameters()))
        assert torch.equal(random, torch.get_rng_state()) and not optimizer.state
        assert all(p.grad is None for p in model.parameters())


def test_verify_finds_the_model_of_a_step():
    model, x = Block(), torch.randn(2, 20, WIDTH)

    class Trainer:
        def __init__(self):
            self.one, self.other = Block(), Block()

        def step(self):
            (self.one(x) + self.other(x)).square().mean().backward()

    verdict = ordo.verify(Trainer().step)
    assert verdict and "gradient of other.qkv.weight" in verdict.digests
    assert ordo.verify(functools.partial(lambda m: m(x).mean().backward(), model))

