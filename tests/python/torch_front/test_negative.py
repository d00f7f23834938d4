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


def test_lists_with_it_are_refused():
    q = torch.randn(2, 9, 4, 16)
    for _ in range(2):
        with pytest.raises(ordo.Error, match=r"slopes.is_neg\(\) True: expected False"):
            ordo.torch.attention(q, q, q, slopes=negative(torch.ones(4)))
        with pytest.raises(ordo.Error, match=r"rng.is_neg\(\) True: expected False"):
            ordo.torch.attention(q, q, q, dropout_p=0.5, rng_state=negative(torch.tensor([1, 2])))
        ordo.torch.attention(q, q, q, slopes=torch.ones(4))


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
