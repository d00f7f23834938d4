"""ordo.torch.backward_part(): the rows of a sequence in parts, and some gradients alone."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch

ROWS, HEADS, KV_HEADS = 300, 4, 2
CUTS = (0, 64, 192, ROWS)


def whole(dtype=torch.float32, dim=16, **rules):
    draw = torch.Generator().manual_seed(18)
    q, dout = (torch.randn(2, ROWS, HEADS, dim, generator=draw).to(dtype) for _ in range(2))
    k, v = (torch.randn(2, ROWS, KV_HEADS, dim, generator=draw).to(dtype) for _ in range(2))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    o, lse = ordo.torch.attention(*leaves, **rules)
    dlse = torch.randn(lse.shape, generator=draw)
    grads = torch.autograd.grad([o, lse], leaves, [dout, dlse])
    return (dout, q.detach(), k.detach(), v.detach(), o.detach(), lse.detach()), dlse, grads


def rows_of(tensors, dlse, first, end):
    dout, q, k, v, o, lse = tensors
    some = (x[:, first:end] for x in (dout, q, o))
    dout, q, o = some
    shard = ordo.Shard(row0=first, q_total=ROWS, kv_total=ROWS)
    lines = dict(dlse=dlse[:, :, first:end], shard=shard)
    return (dout, q, k, v, o, lse[:, :, first:end]), lines


@pytest.mark.parametrize(
    "rules",
    [
        dict(causal=True),
        dict(dropout_p=0.1, seed=5),
        dict(causal=True, window=(100, 0), softcap=5.0, dropout_p=0.1, seed=5),
        dict(slopes=torch.tensor([0.5, 0.25, 0.125, 0.0625]), causal="top-left"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_have_the_bits_of_one_pass(rules, dtype):
    tensors, dlse, (dq, dk, dv) = whole(dtype, **rules)
    ranges = list(zip(CUTS, CUTS[1:]))
    if rules.get("causal"):
        ranges.reverse()
    sums = dict(
        dk_sums=torch.full(tensors[2].shape, torch.nan),
        dv_sums=torch.full(tensors[3].shape, torch.nan),
    )
    for (first, end), carry in zip(ranges, ("out", "in+out", "in")):
        some, lines = rows_of(tensors, dlse, first, end)
        got = ordo.torch.backward_part(*some, **lines, carry=carry, **sums, **rules)
        assert torch.equal(got[0], dq[:, first:end])
        assert (got[1] is None) == (got[2] is None) == (carry != "in")
    assert torch.equal(got[1], dk) and torch.equal(got[2], dv)


def test_some_gradients():
    tensors, dlse, (dq, dk, dv) = whole(causal=True)
    got = ordo.torch.backward_part(*tensors, dlse=dlse, causal=True, gradients=("dq",))
    assert torch.equal(got[0], dq) and got[1] is None and got[2] is None
    got = ordo.torch.backward_part(*tensors, dlse=dlse, causal=True, gradients=("dk", "dv"))
    assert got[0] is None and torch.equal(got[1], dk) and torch.equal(got[2], dv)


def test_without_rows_the_sums_stay():
    tensors, _, _ = whole()
    dout, q, k, v, o, lse = tensors
    none = dout[:, :0], q[:, :0], k, v, o[:, :0], lse[:, :, :0]
    dk_sums, dv_sums = torch.full(k.shape, 2.0), torch.full(v.shape, 3.0)
    sums = dict(dk_sums=dk_sums, dv_sums=dv_sums, scale=0.5)
    ordo.torch.backward_part(*none, carry="in+out", **sums)
    assert (dk_sums == 2).all() and (dv_sums == 3).all()
    dq, dk, dv = ordo.torch.backward_part(*none, carry="in", **sums)
    assert dq.numel() == 0 and (dk == 1).all() and (dv == 3).all()
    ordo.torch.backward_part(*none, carry="out", **sums)
    assert (dk_sums == 0).all() and (dv_sums == 0).all()


def test_the_negative_bit_counts():
    tensors, dlse, _ = whole()
    expected = ordo.torch.backward_part(*tensors, dlse=dlse)
    negative = [torch._neg_view(-x) for x in (*tensors, dlse)]
    found = ordo.torch.backward_part(*negative[:6], dlse=negative[6])
    assert all(torch.equal(x, y) for x, y in zip(expected, found))
