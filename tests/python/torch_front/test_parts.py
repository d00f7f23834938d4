"""ordo.torch.backward_part(), tree_sum(), and what FlopCounterMode counts of calls."""

from __future__ import annotations

import ordo
import ordo.torch
import pytest
import torch
import torch.nn.functional as F
from reference import tree
from torch.utils.flop_counter import FlopCounterMode

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


# ---- products that are counted ----


def counted(call, gradients=True):
    with FlopCounterMode(display=False) as counter:
        made = call()
        if gradients:
            made.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("more", [{}, {"causal": True, "dropout_p": 0.5, "seed": 1}, {"sink": torch.zeros(4)}])
def test_as_sdpa(more):
    q, k, v = (torch.randn(2, n, 4, d, requires_grad=True) for n, d in ((24, 16), (40, 16), (40, 8)))
    across, scores = [x.transpose(1, 2) for x in (q, k, v)], 2 * 4 * 24 * 40
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert counted(lambda: F.scaled_dot_product_attention(*across), False) == 2 * scores * (16 + 8)
    assert counted(lambda: ordo.torch.attention(q, k, v, **more)[0]) == 2 * scores * (4 * 16 + 3 * 8)


def test_sequences_and_parts_count_their_own_rows_and_masks_all():
    q, k, v = (torch.randn(64, 4, 16, requires_grad=True) for _ in range(3))
    ends = torch.tensor([0, 40, 64], dtype=torch.int32)
    flops = counted(lambda: ordo.torch.attention(q, k, v, cu_q=ends, cu_kv=ends)[0])
    assert flops == 7 * 2 * 4 * 16 * (40**2 + 24**2)
    q, k, v = (torch.randn(1, 256, 4, 16) for _ in range(3))
    o, lse = ordo.torch.attention(q, k, v)
    some = torch.ones_like(o)[:, :64], q[:, :64], k, v, o[:, :64], lse[:, :, :64].contiguous()
    sums = dict(carry="out", dk_sums=torch.zeros_like(k), dv_sums=torch.zeros_like(v))
    assert counted(lambda: ordo.torch.backward_part(*some, **sums), False) == 5 * 2 * 4 * 16 * 64 * 256
    mask = ordo.BlockMask.from_chunks(256, 256, 128)
    assert counted(lambda: ordo.torch.attention(q, q, q, block_mask=mask), False) == 2 * 2 * 4 * 16 * 256 * 256


# ---- sums in the order of a tree ----


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


def test_sums_in_place_and_without_gradients():
    a, b = draw(2, torch.float32)
    expected = a + b
    made = ordo.torch.tree_sum([a.requires_grad_(), b.t().contiguous().t()], out=a)
    assert made is a and torch.equal(a, expected)
    assert ordo.torch.tree_sum([torch.empty(0, 3)]).shape == (0, 3)


def test_the_negative_bit_counts_in_sums():
    a, b = draw(2, torch.float32)
    negative = torch._neg_view(-a)
    assert torch.equal(ordo.torch.tree_sum([negative, b]), a + b)
    with pytest.raises(ordo.Error, match=r"out.is_neg\(\) True"):
        ordo.torch.tree_sum([a, b], out=negative)


def test_bad_tensors_of_sums_are_refused():
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
