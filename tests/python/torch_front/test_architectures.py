"""Models whose masks are single elements, or that add biases, beside eager attention: results and gradients."""

from __future__ import annotations

import copy

import pytest
import torch

transformers = pytest.importorskip("transformers")

import ordo.transformers  # noqa: E402
from architectures import inputs, parts, tensors  # noqa: E402
from test_transformers_models import CAUSAL, ENCODER, SEQ2SEQ, TRIED, agree, registered  # noqa: E402, F401

TESTED = {*CAUSAL, *ENCODER, *SEQ2SEQ}
LISTED = (line.split() for line in TRIED.read_text().splitlines()[1:])


@pytest.mark.parametrize("name", [name for name, result in LISTED if result == "cpu" and name not in TESTED])
def test_results_and_gradients(name, monkeypatch):
    single, take = [], ordo.transformers.Arguments

    def arguments(**given):
        single.append(given["seen"] is not None or given["bias"] is not None)
        return take(**given)

    monkeypatch.setattr(ordo.transformers, "Arguments", arguments)
    kind, config, tries = parts(name)
    made = []
    for implementation in ("eager", "ordo"):
        torch.manual_seed(0)
        made.append(kind._from_config(copy.deepcopy(config), attn_implementation=implementation).eval())
    theirs, ours = made
    for given in tries or inputs(theirs):
        try:
            expected = run(theirs, given)
        except Exception:  # of many kinds: not what this model takes
            continue
        for x, y in zip(run(ours, given), expected, strict=True):
            agree(x, y, name)
        assert any(single)
        return
    pytest.fail("no inputs that the model takes")


def run(model, given):
    """Floating-point results, and the gradients of the weights by them, as one tensor."""
    torch.manual_seed(1)
    made = [x for x in tensors(model(**given)) if x.requires_grad]
    loss = sum((x * torch.linspace(-1, 1, x.numel()).view_as(x)).sum() for x in made)
    learned = [x for x in model.parameters() if x.requires_grad]
    gradients = torch.autograd.grad(loss, learned, allow_unused=True, materialize_grads=True)
    return [x.detach() for x in made] + [torch.cat([x.flatten() for x in gradients])]
