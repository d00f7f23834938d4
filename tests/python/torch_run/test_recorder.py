"""The recorder on PyTorch models: three planted differences are found and named; the order of the
backward pass; seeds and plans of attention. torch_front/on_cuda.py has digests of a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import ordo
import pytest
import torch
from torch.nn import functional as F

STEPS, VOCABULARY, WIDTH, ROWS = 20, 32, 16, 12


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.attention = ordo.Attention(dropout=0.2, causal=True)
        self.mlp = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, WIDTH // 2).unbind(2)
        return x + self.mlp(self.attention(q, k, v).flatten(2))


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch_of(step):
    """Ids of the samples, a pure function of the step."""
    return [(7 * step + place) % 40 for place in range(4)]


def train(path, plant=None, **options):
    """A small run; `plant(step, model, ids)` may change something and returns the ids."""
    torch.manual_seed(1)
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.randint(VOCABULARY, (40, ROWS), generator=torch.Generator().manual_seed(2))
    with ordo.Recorder(path, model, **options) as recorder:
        for step in range(STEPS):
            ids = batch_of(step)
            torch.manual_seed(1000 + step)
            if plant:
                ids = plant(step, model, ids) or ids
            tokens = data[ids]
            logits = model(tokens)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            recorder.step(step, loss, batch=ids)
            optimizer.step()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("record") / "good.jsonl"
    train(path)
    return path


def steps_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def test_a_run_repeats(good, tmp_path):
    train(tmp_path / "again.jsonl", every=3)
    found = ordo.compare(good, tmp_path / "again.jsonl")
    assert found and found.steps == 7, str(found)


def test_a_recorder_is_the_first_that_is_used(tmp_path):
    program = "import torch, ordo; ordo.Recorder('record.jsonl', torch.nn.Linear(2, 2)).close()"
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=settings, check=True)


def test_backward_order_seeds_and_plans(good):
    first = steps_of(good)[0]
    names = list(first["gradients"])
    assert names == list(first["weights"]) and len(names) == len(list(Tiny().parameters()))
    assert names[0].startswith("head.") and names[-1] == "embedding.weight"
    layers = [name.rsplit(".", 1)[0] for name in names]
    assert list(dict.fromkeys(layers)) == [
        "head", "blocks.1.mlp", "blocks.1.qkv", "blocks.0.mlp", "blocks.0.qkv", "embedding",
    ]  # fmt: skip
    assert len(first["seeds"]) == 2 and len({tuple(pair) for pair in first["seeds"]}) == 2
    assert len(first["plans"]) == 1 and first["plans"][0].startswith("ordo-plan/1 backend=cpu")


# ---- planted differences ----


def one_weight_bit(step, model, ids):
    if step == 17:
        with torch.no_grad():
            model.blocks[0].mlp.weight.view(torch.int32)[3, 5] ^= 1


def another_seed(step, model, ids):
    if step == 9:
        torch.manual_seed(31)


def swapped_batch(step, model, ids):
    return batch_of(step ^ 1) if step in (12, 13) else None


@pytest.mark.parametrize(
    "plant, step, different, cause, text",
    [
        (one_weight_bit, 17, "weight blocks.0.mlp.weight", "weights", "changed after step 16"),
        (another_seed, 9, "seeds", "seeds", "other seeds of dropout"),
        (swapped_batch, 12, "batch", "batch", "other batch ids: 4 | 11"),
    ],
)
def test_planted(good, tmp_path, plant, step, different, cause, text):
    train(tmp_path / "bad.jsonl", plant)
    found = ordo.compare(good, tmp_path / "bad.jsonl")
    assert not found and found.step == step and found.equal_steps == step
    assert found.different == different and found.causes == (cause,), str(found)
    assert text in str(found)
    if plant is one_weight_bit:
        assert found.weights == (1, 11)  # this weight and no other
    else:
        assert found.weights[0] == 0 and found.gradients[0] > 0


def test_a_wrong_gradient_is_named_in_backward_order(good, tmp_path):
    """An error in the backward pass of one layer: it and what comes after it differ."""

    def wrong(step, model, ids):
        if step == 6:
            hook = model.blocks[1].qkv.register_full_backward_hook(
                lambda module, into, out: (into[0] * (1 + 2**-20),)
            )
            hooks.append(hook)
        elif step == 7:
            hooks.pop().remove()

    hooks: list[object] = []
    train(tmp_path / "bad.jsonl", wrong)
    found = ordo.compare(good, tmp_path / "bad.jsonl")
    assert found.step == 6 and found.causes == ("numerics",), str(found)
    assert found.different.startswith("gradient blocks.0.mlp"), str(found)


# ---- models and tensors of other kinds ----


def test_types_strides_and_names(tmp_path):
    model = torch.nn.DataParallel(torch.nn.Linear(6, 4))  # names begin with "module."
    tensors = {
        "bf16": torch.randn(7, 5, dtype=torch.bfloat16),
        "strided": torch.randn(6, 8)[:, ::2],
        "shifted": torch.randn(9)[1:],
        "sparse": torch.eye(3).to_sparse(),
        "empty": torch.zeros(0),
    }
    with ordo.Recorder(tmp_path / "a.jsonl", model) as recorder:
        recorder.step(0, torch.tensor(2.5), gradients=tensors, batch=torch.arange(3))
        dense = {name: x.to_dense().contiguous().clone() for name, x in tensors.items()}
        recorder.step(1, torch.tensor(2.5), gradients=dense, batch=[0, 1, 2])
    zero, one = steps_of(tmp_path / "a.jsonl")
    assert zero["gradients"] == one["gradients"] and zero["batch"] == one["batch"] == [0, 1, 2]
    assert list(zero["weights"]) == ["bias", "weight"]
    assert (zero["loss"], zero["loss_value"]) == (one["loss"], 2.5)


def test_nothing_stays_behind(tmp_path):
    from ordo.run import _watch

    model = Tiny()
    recorder = ordo.Recorder(tmp_path / "a.jsonl", model)
    assert len(_watch.watchers["forward"]) == 1
    recorder.close()
    assert _watch.watchers == {"forward": [], "backward": []}
    assert not any(x._post_accumulate_grad_hooks for x in model.parameters())

