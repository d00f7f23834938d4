"""ordo.torch.attention(sink=): values and gradients against PyTorch in fp64, bits, refusals."""

from __future__ import annotations

import math

import ordo
import ordo.torch
import pytest
import torch
from math64 import same

HEADS, KV_HEADS, DIM = 4, 2, 8


def tensors(batch=2, rows=9, keys=9, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    q = torch.randn(batch, rows, HEADS, DIM, dtype=dtype)
    k, v = (torch.randn(batch, keys, KV_HEADS, DIM, dtype=dtype) for _ in range(2))
    return [x.requires_grad_() for x in (q, k, v, torch.randn(HEADS))]


def exact(q, k, v, sink, causal=True):
    """(o, lse) in fp64 as gpt-oss writes it: the sink is one more column, dropped afterwards."""
    q, k, v, sink = (x.double() for x in (q, k, v, sink))
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(DIM)
    if causal:
        hidden = torch.ones(scores.shape[-2:]).triu(scores.shape[-1] - scores.shape[-2] + 1)
        scores = scores.masked_fill(hidden.bool(), -math.inf)
    column = sink.view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    logits = torch.cat([scores, column], -1)
    o = torch.einsum("bhij,bjhd->bihd", logits.softmax(-1)[..., :-1], v)
    return o, logits.logsumexp(-1)


def gradients(o, lse, inputs):
    weight = torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view_as(o)
    return torch.autograd.grad((o * weight).sum() + (lse**2).sum(), inputs)


def test_a_sink_of_another_type_gets_a_gradient_of_that_type():
    q, k, v, sink = tensors(dtype=torch.bfloat16)
    half = sink.detach().bfloat16().requires_grad_()
    o, lse = ordo.torch.attention(q, k, v, sink=half)
    (grad,) = torch.autograd.grad(o.float().sum() + lse.sum(), [half])
    theirs = exact(q, k, v, half, causal=False)
    (want,) = torch.autograd.grad(theirs[0].sum() + theirs[1].sum(), [half])
    assert grad.dtype == torch.bfloat16
    torch.testing.assert_close(grad, want, rtol=0.02, atol=0.02)


def test_minus_infinity_is_no_sink():
    q, k, v, _ = tensors()
    none = torch.full((HEADS,), -math.inf, requires_grad=True)
    one = ordo.torch.attention(q, k, v, causal=True)
    two = ordo.torch.attention(q, k, v, causal=True, sink=none)
    pairs = zip((*one, *gradients(*one, (q, k, v))), (*two, *gradients(*two, (q, k, v))))
    assert all(same(x, y) for x, y in pairs)
    assert gradients(*ordo.torch.attention(q, k, v, sink=none), [none])[0].eq(0).all()


def test_dropout_never_drops_the_sink():
    q, k, v, sink = tensors(rows=64, keys=64)
    one, two = (
        ordo.torch.attention(q, k, v, sink=sink, dropout_p=0.5, seed=seed) for seed in (1, 2)
    )
    assert same(one[1], two[1]) and not same(one[0], two[0])
    again = ordo.torch.attention(q, k, v, sink=sink, dropout_p=0.5, seed=1)
    assert all(same(x, y) for x, y in zip(one, again))


def test_refusals():
    q, k, v, sink = tensors()
    for wrong, message in (
        (sink[:3], r"sink.shape \(3,\): expected \(4,\)"),
        (sink.view(1, 4), r"sink.shape \(1, 4\)"),
        (0.5, "sink 0.5: expected a tensor"),
    ):
        with pytest.raises(ordo.Error, match=message):
            ordo.torch.attention(q, k, v, sink=wrong)
    (grad,) = torch.autograd.grad(
        ordo.torch.attention(q, k, v, sink=sink)[0].sum(), [sink], create_graph=True
    )
    with pytest.raises(ordo.Error, match="second derivatives"):
        grad.sum().backward()
