"""Score functions of FlexAttention as biases."""

from __future__ import annotations

import math

import ordo
import ordo.torch
import pytest
import torch
from bits import leaf, same

BATCH, HEADS, ROWS, COLUMNS = 2, 4, 6, 7
TABLE, PLACES = leaf(HEADS, 32), torch.arange(COLUMNS) // 3
INF = float("inf")

# The function, and the leading sizes of its bias.
SCORES = {
    "positions": (lambda s, b, h, i, j: s + TABLE[h, i - j + 16], (1, 4)),
    "numbers": (lambda s, b, h, i, j: s - (i - j).abs() * 0.5, (1, 1)),
    "of each sequence": (lambda s, b, h, i, j: b + s, (2, 1)),
    "hidden": (lambda s, b, h, i, j: torch.where(i >= j, s + TABLE[0, i], -INF), (1, 1)),
    "hidden first": (lambda s, b, h, i, j: torch.where(PLACES[i] == PLACES[j], s, -INF) + TABLE[h, j], (1, 4)),
    "one of two": (lambda s, b, h, i, j: torch.where(i >= j, s + TABLE[0, i], s - 1), (1, 1)),
    "nothing": (lambda s, b, h, i, j: s, (1, 1)),
}


@pytest.mark.parametrize("kind", SCORES)
def test_beside_the_formula(kind):
    """The result, and gradients, of the table too."""
    function, leading = SCORES[kind]
    q, k, v = (leaf(BATCH, HEADS, size, 16, seed=x) for x, size in enumerate((ROWS, COLUMNS, COLUMNS)))
    bias = ordo.torch.score_bias(function, BATCH, HEADS, ROWS, COLUMNS)
    assert bias.shape == (*leading, ROWS, COLUMNS) and bias.dtype == torch.float32
    o = ordo.torch.attention(*(x.transpose(1, 2) for x in (q, k, v)), bias=bias)[0].transpose(1, 2)
    places = torch.meshgrid(*(torch.arange(x) for x in (BATCH, HEADS, ROWS, COLUMNS)), indexing="ij")
    right = function(q @ k.mT / math.sqrt(16), *places).softmax(-1) @ v
    torch.testing.assert_close(o, right)
    learned = [q, k, v] + ([TABLE] if bias.requires_grad else [])
    dout = torch.linspace(-1, 1, o.numel()).view_as(o)
    for x, y in zip(*(torch.autograd.grad(made, learned, dout) for made in (o, right))):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_the_sum_of_a_table_repeats():
    def gradient():
        bias = ordo.torch.score_bias(SCORES["positions"][0], BATCH, HEADS, ROWS, COLUMNS)
        q, k = leaf(BATCH, ROWS, HEADS, 16), leaf(BATCH, COLUMNS, HEADS, 16, seed=1)
        return torch.autograd.grad(ordo.torch.attention(q, k, k, bias=bias)[0].sum(), TABLE)[0]

    torch.use_deterministic_algorithms(True)
    try:
        assert same(gradient(), gradient())
    finally:
        torch.use_deterministic_algorithms(False)


WRONG = {
    "softcap": (lambda s, b, h, i, j: torch.tanh(s / 5) * 5, "aten.div.Tensor of the score: expected score"),
    "twice": (lambda s, b, h, i, j: s + s, "aten.add.Tensor of the score"),
    "weighted": (lambda s, b, h, i, j: torch.add(TABLE[h, i], s, alpha=2), "aten.add.Tensor of the score"),
    "taken from": (lambda s, b, h, i, j: TABLE[h, i] - s, "aten.sub.Tensor of the score"),
    "chosen by the score": (lambda s, b, h, i, j: torch.where(s > 0, s, -INF), "aten.gt.Scalar of the score"),
    "without a gradient": (lambda s, b, h, i, j: s.detach() + 1, "aten.detach.default of the score"),
    "another number": (lambda s, b, h, i, j: torch.where(i > j, s, 5.0), "b 0, h 0, row 0, column 0: 5.0 takes the place"),
    "no score": (lambda s, b, h, i, j: TABLE[h, i], "does not follow from the score"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_more_than_a_sum_is_refused(kind):
    function, words = WRONG[kind]
    with pytest.raises(ordo.Error, match=words):
        ordo.torch.score_bias(function, BATCH, HEADS, ROWS, COLUMNS)
