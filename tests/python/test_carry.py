"""Backward passes over parts of the rows, and of some gradients: the bits of one pass."""

from __future__ import annotations

import numpy as np
import ordo
import pytest

ROWS, HEADS, KV_HEADS, DIM = 300, 4, 2, 16


def whole(mask="causal", dropout=0.0):
    p = ordo.Problem(
        batch=2, heads=HEADS, kv_heads=KV_HEADS, q_len=ROWS, head_dim=DIM, mask=mask,
        dropout=dropout, dtype="f32",
    )  # fmt: skip
    draw = np.random.default_rng(18).standard_normal
    q, dout = (draw((2, ROWS, HEADS, DIM), np.float32) for _ in range(2))
    k, v = (draw((2, ROWS, KV_HEADS, DIM), np.float32) for _ in range(2))
    plan = ordo.Plan(p, backend="cpu")
    o, lse = ordo.forward(plan, q, k, v, seed=3)
    return p, (q, k, v, o, lse, dout), ordo.backward(plan, q, k, v, o, lse, dout, seed=3)


def part(p, tensors, first, end):
    """The problem and the tensors of rows first .. end - 1, with all keys."""
    q, k, v, o, lse, dout = tensors
    shard = ordo.Shard(row0=first, q_total=ROWS, kv_total=ROWS)
    plan = ordo.Plan(p.replace(q_len=end - first, kv_len=ROWS, shard=shard), backend="cpu")
    lines = np.ascontiguousarray(lse[:, :, first:end])
    return plan, (q[:, first:end], k, v, o[:, first:end], lines, dout[:, first:end])


@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_parts_have_the_bits_of_one_pass(mask, dropout):
    p, tensors, (dq, dk, dv) = whole(mask, dropout)
    cuts = [0, 128, 192, ROWS]
    ranges = list(zip(cuts, cuts[1:]))
    if mask == "causal":  # descending: last rows first
        ranges.reverse()
    sums = [np.full(tensors[1].shape, np.nan, np.float32) for _ in range(2)]
    for (first, end), carry in zip(ranges, ("out", "in+out", "in")):
        plan, some = part(p, tensors, first, end)
        got = ordo.backward(plan, *some, seed=3, carry=carry, dk_sums=sums[0], dv_sums=sums[1])
        assert np.array_equal(got[0], dq[:, first:end])
        assert (got[1] is None) == (got[2] is None) == (carry != "in")
    assert np.array_equal(got[1], dk) and np.array_equal(got[2], dv)


def test_some_gradients_have_the_bits_of_all():
    p, tensors, (dq, dk, dv) = whole()
    plan = ordo.Plan(p, backend="cpu")
    got = ordo.backward(plan, *tensors, seed=3, gradients=("dq",))
    assert np.array_equal(got[0], dq) and got[1] is None and got[2] is None
    got = ordo.backward(plan, *tensors, seed=3, gradients=("dk", "dv"))
    assert got[0] is None and np.array_equal(got[1], dk) and np.array_equal(got[2], dv)


def test_refusals():
    p, tensors, (dq, dk, dv) = whole()
    plan = ordo.Plan(p, backend="cpu")
    sums = [np.zeros(tensors[1].shape, np.float32) for _ in range(2)]

    def refused(text, **rest):
        with pytest.raises(ordo.Error, match=text):
            ordo.backward(plan, *tensors, **rest)

    refused("carry 'both'", carry="both")
    refused("gradients .'dx'", gradients=("dx",))
    refused("dk given: expected None", dk=dk, gradients=("dq",))
    refused("dk given: expected None with carry 'out'", dk=dk, carry="out")
    refused("dv.data NULL", gradients=("dq", "dk"))
    refused("dq.data, dk.data and dv.data NULL", gradients=())
    refused("dk_sums NULL", carry="out", dv_sums=sums[1])
    refused("dk_sums given", dk_sums=sums[0])
    refused("dk_sums.shape", carry="out", dk_sums=sums[0][:1], dv_sums=sums[1])
    refused("dk_sums.dtype", carry="out", dk_sums=sums[0].astype("f8"), dv_sums=sums[1])
    refused("contiguous", carry="out", dk_sums=sums[0][..., ::-1], dv_sums=sums[1])
    refused("overlap", carry="out", dk_sums=sums[0], dv_sums=sums[0])
    with pytest.raises(ordo.Error, match="shard.row0 32.*multiple of 64"):
        plan, some = part(p, tensors, 32, 96)
        ordo.backward(plan, *some, carry="out", dk_sums=sums[0], dv_sums=sums[1])
