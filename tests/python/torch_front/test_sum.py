"""ordo.torch.tree_sum against additions in the same order; on CUDA against the CPU."""

from __future__ import annotations

import ordo
import pytest
import torch


def tree(values):
    while len(values) > 1:
        pairs = [values[x : x + 2] for x in range(0, len(values), 2)]
        values = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]


def draw(count, dtype, shape=(33, 17)):
    made = torch.Generator().manual_seed(count)
    return [torch.randn(shape, generator=made).mul(2.0 ** (x % 11)).to(dtype) for x in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 2, 5, 8, 300])
def test_sum_is_the_tree(count, dtype):
    inputs = draw(count, dtype)
    made = ordo.torch.tree_sum(inputs)
    assert made.dtype == torch.float32
    assert torch.equal(made, tree([x.float() for x in inputs]))
    if torch.cuda.is_available():
        there = ordo.torch.tree_sum([x.cuda() for x in inputs])
        assert torch.equal(there.cpu().view(torch.int32), made.view(torch.int32))


def test_in_place_and_without_gradients():
    a, b = draw(2, torch.float32)
    expected = a + b
    made = ordo.torch.tree_sum([a.requires_grad_(), b.t().contiguous().t()], out=a)
    assert made is a and torch.equal(a, expected)
    assert ordo.torch.tree_sum([torch.empty(0, 3)]).shape == (0, 3)


def test_the_negative_bit_counts():
    a, b = draw(2, torch.float32)
    negative = torch._neg_view(-a)
    assert torch.equal(ordo.torch.tree_sum([negative, b]), a + b)
    with pytest.raises(ordo.Error, match=r"out.is_neg\(\) True"):
        ordo.torch.tree_sum([a, b], out=negative)


def test_bad_tensors_are_refused():
    a, sparse = torch.zeros(4, 6), torch.ones(4, 6).to_sparse()
    for inputs, out, message in (
        ([], None, "inputs []"),
        ([a, a[:2]], None, "inputs[1].shape torch.Size([2, 6]): expected torch.Size([4, 6])"),
        ([a, a.half()], None, "inputs[1].dtype torch.float16: expected torch.float32"),
        ([a.double()], None, "inputs[0].dtype torch.float64"),
        ([a.to("meta")], None, "device meta"),
        ([a], a.half(), "out.dtype torch.float16"),
        ([a], torch.zeros(6, 4).t(), "out.stride()"),
        ([a, sparse], None, "inputs[1].layout torch.sparse"),
        ([a], sparse, "out.layout torch.sparse_coo: expected torch.strided"),
    ):
        with pytest.raises(ordo.Error) as error:
            ordo.torch.tree_sum(inputs, out=out)
        assert message in str(error.value)
