"""Tensors with the negative bit, under which memory holds the other sign: views of PyTorch such as
the imaginary part of a conjugate have it."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
from math64 import same


def negative(x):
    """The same values, with the bit."""
    made = torch._neg_view(-x.detach())
    assert made.is_neg() and torch.equal(made, x)
    return made


def test_saved_with_it():
    inputs = [torch.randn(2, 9, heads, 16, requires_grad=True) for heads in (4, 2, 2)]
    expected = torch.autograd.grad(ordo.torch.attention(*inputs)[0].sum(), inputs)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, negative):
        o, _ = ordo.torch.attention(*inputs)
    found = torch.autograd.grad(o.sum(), inputs)
    assert all(same(x, y) for x, y in zip(expected, found))


def results(inputs, dout, dlse, **rules):
    leaves = [x.detach().requires_grad_() for x in inputs]
    o, lse = ordo.torch.attention(*leaves, **rules)
    return o, lse, *torch.autograd.grad((o, lse), leaves, (dout, dlse))


@pytest.mark.parametrize(
    "name, given", [("slopes", torch.ones(4)), ("rng_state", torch.tensor([1, 2])), ("sink", torch.ones(4))]
)
def test_the_values_of_lists_count(name, given):
    inputs = [torch.randn(2, 9, heads, 16) for heads in (4, 2, 2, 4)] + [torch.randn(2, 4, 9)]
    expected, found = (
        results(inputs[:3], *inputs[3:], dropout_p=0.5, **{"seed": (1, 2), name: x})
        if name != "rng_state" else results(inputs[:3], *inputs[3:], dropout_p=0.5, rng_state=x)
        for x in (given, negative(given))
    )  # fmt: skip
    assert all(same(x, y) for x, y in zip(expected, found))


def test_sums():
    a, b = torch.randn(7), torch.randn(7)
    expected = ordo.torch.tree_sum([a, b])
    assert same(expected, ordo.torch.tree_sum([negative(a), b]))
    with pytest.raises(ordo.Error, match=r"out.is_neg\(\) True"):
        ordo.torch.tree_sum([a, b], out=negative(a))


def test_parts():
    q, k, v = (torch.randn(1, 9, 2, 16) for _ in range(3))
    o, lse = ordo.torch.attention(q, k, v)
    given = [torch.ones_like(o), q, k, v, o, lse]
    expected = ordo.torch.backward_part(*given)
    found = ordo.torch.backward_part(*map(negative, given))
    assert all(same(x, y) for x, y in zip(expected, found))
